"""Functions of a desktop that are tools of an MCP server, which begins with its first call and ends with the desktop.

What a server says is hostile text. One that fails or is late fails the call alone, with `GuestRefused`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from actors.errors import GuestRefused

SAID_CHARS = 5000  # as of every other function
PAGES = 10  # of a list of tools
GONE = "Connection closed"  # what the package says of a server that has ended


@asynccontextmanager
async def opened(server: Sequence[str]) -> AsyncIterator[Any]:
    """A session of `mcp` with a server: its URL, or a command that talks over its input and output."""
    from mcp.client import session, stdio
    from mcp.client import streamable_http as http

    command = stdio.StdioServerParameters(command=server[0], args=list(server[1:]))
    async with http.streamable_http_client(server[0]) if "://" in server[0] else stdio.stdio_client(command) as streams:
        async with session.ClientSession(*streams[:2]) as client:
            await client.initialize()
            yield client


async def listed(server: Sequence[str]) -> list[tuple[str, str, dict[str, Any]]]:
    """Name, description and schema of each tool of a server. Raises what the package `mcp` does."""
    from mcp.types import PaginatedRequestParams

    tools, cursor = [], None
    async with opened(server) as client:
        for _ in range(PAGES):
            page = await client.list_tools(params=PaginatedRequestParams(cursor=cursor))
            tools += [(tool.name, tool.description or "", dict(tool.inputSchema)) for tool in page.tools]
            if (cursor := page.nextCursor) is None:
                break
    return tools


class McpTools:
    """The servers of one desktop; each has a task of its own, in which its session begins and ends."""

    def __init__(self) -> None:
        self._sessions: dict[tuple[str, ...], tuple[asyncio.Future[Any], asyncio.Task[None]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # of all servers, and of those that are ending

    async def call(self, server: tuple[str, ...], tool: str, arguments: Mapping[str, Any], timeout_s: float) -> str:
        """What a tool says. Raises GuestRefused."""
        from mcp import McpError

        if server not in self._sessions or self._sessions[server][1].done():
            session = asyncio.get_running_loop().create_future()
            task = asyncio.create_task(_held(server, session), name="mcp")
            self._sessions[server] = session, task
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            async with asyncio.timeout(timeout_s):
                client = await asyncio.shield(self._sessions[server][0])
                result = await client.call_tool(tool, dict(arguments))
            said, failed = "\n".join(getattr(part, "text", "") for part in result.content), result.isError
        except Exception as error:
            if isinstance(error, McpError) and str(error) != GONE:
                raise GuestRefused("tool_failed", str(error)[:500]) from error
            if held := self._sessions.pop(server, None):
                held[1].cancel()
            late = isinstance(error, TimeoutError)
            why = f"no answer within {timeout_s:g} s" if late else f"its server has ended: {error}"
            raise GuestRefused("function_crashed", f"{tool}: {why}"[:400]) from error
        said = "".join(c for c in said if c.isprintable() or c in "\n\t")[:SAID_CHARS]
        if failed:
            raise GuestRefused("tool_failed", said[:500])
        return said

    async def close(self) -> None:
        """End all servers."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _held(server: tuple[str, ...], session: asyncio.Future[Any]) -> None:
    """Begin a session, and keep it until this task is cancelled."""
    try:
        async with opened(server) as client:
            session.set_result(client)
            await asyncio.Event().wait()
    except Exception as error:
        if session.done():
            raise
        session.set_exception(error)
