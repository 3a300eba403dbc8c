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
    """The servers of one desktop."""

    def __init__(self) -> None:
        self._servers: dict[tuple[str, ...], tuple[asyncio.Task[None], asyncio.Queue[Any]]] = {}
        self._tasks: list[asyncio.Task[None]] = []  # of all servers, and of those that are ending

    async def call(self, server: tuple[str, ...], tool: str, arguments: Mapping[str, Any], timeout_s: float) -> str:
        """What a tool says. Raises GuestRefused."""
        if server not in self._servers or self._servers[server][0].done():
            asked: asyncio.Queue[Any] = asyncio.Queue(maxsize=1)  # a desktop's calls come one by one
            self._tasks.append(asyncio.create_task(_serve(server, asked), name="mcp"))
            self._servers[server] = self._tasks[-1], asked
        (task, asked), answer = self._servers[server], asyncio.get_running_loop().create_future()
        asked.put_nowait((tool, dict(arguments), answer))
        await asyncio.wait({task, answer}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            ended = task.done() and not task.cancelled()
            why = f"its server has ended: {task.exception()}" if ended else f"no answer within {timeout_s:g} s"
            task.cancel()
            self._servers.pop(server, None)
            raise GuestRefused("function_crashed", f"{tool}: {why}"[:400])
        said, failed = answer.result()
        if failed:
            raise GuestRefused("tool_failed", said[:500])
        return str(said)

    async def close(self) -> None:
        """End all servers."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _serve(server: tuple[str, ...], asked: asyncio.Queue[Any]) -> None:
    from mcp import McpError

    async with opened(server) as client:
        while True:
            tool, arguments, answer = await asked.get()
            try:
                result = await client.call_tool(tool, arguments)
                said, failed = "\n".join(getattr(part, "text", "") for part in result.content), result.isError
            except McpError as error:
                if str(error) == "Connection closed":  # of the package: the server has ended
                    raise
                said, failed = str(error), True
            answer.set_result(("".join(c for c in said if c.isprintable() or c in "\n\t")[:SAID_CHARS], failed))
