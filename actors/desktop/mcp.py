"""Functions of a desktop that are tools of an MCP server, which begins with its first call and ends with the desktop.

What a server says is hostile text. One that fails or is late fails the call alone, with `GuestRefused`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from actors.errors import GuestRefused

SAID_CHARS = 5000  # as of every other function
PAGES = 10  # of a list of tools


def target(server: Sequence[str]) -> Any:
    """What the client of `mcp` connects to: a URL, or a command that talks over its input and output."""
    from mcp import StdioServerParameters

    if server[0].startswith(("http://", "https://")):
        return server[0]
    return StdioServerParameters(command=server[0], args=list(server[1:]))


async def listed(server: Sequence[str]) -> list[tuple[str, str, dict[str, Any]]]:
    """Name, description and schema of each tool of a server. Raises what the package `mcp` does."""
    from mcp import Client

    tools: list[Any] = []
    async with Client(target(server)) as client:
        cursor = None
        for _ in range(PAGES):
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            if (cursor := page.next_cursor) is None:
                break
    return [(tool.name, tool.description or "", dict(tool.input_schema)) for tool in tools]


class McpTools:
    """The servers of one desktop."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, ...], asyncio.Queue[Any]] = {}
        self._tasks: dict[tuple[str, ...], asyncio.Task[None]] = {}
        self._ending: list[asyncio.Task[None]] = []  # cancelled, while their servers end

    async def call(self, server: tuple[str, ...], tool: str, arguments: Mapping[str, Any], timeout_s: float) -> str:
        """What a tool says. Raises GuestRefused."""
        if server not in self._tasks or self._tasks[server].done():
            self._asked[server] = asyncio.Queue(maxsize=1)  # a desktop's calls come one by one
            self._tasks[server] = asyncio.create_task(self._serve(server), name="mcp")
        task, answer = self._tasks[server], asyncio.get_running_loop().create_future()
        self._asked[server].put_nowait((tool, dict(arguments), answer))
        await asyncio.wait({task, answer}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            why = f"no answer within {timeout_s:g} s"
            if task.done() and not task.cancelled():
                why = f"its server has ended: {task.exception()}"
            answer.cancel()
            task.cancel()
            if self._tasks.get(server) is task:
                self._ending.append(self._tasks.pop(server))
            raise GuestRefused("function_crashed", f"{tool}: {why}"[:400])
        said, failed = answer.result()
        if failed:
            raise GuestRefused("tool_failed", said[:500])
        return str(said)

    async def _serve(self, server: tuple[str, ...]) -> None:
        from mcp import Client, MCPError

        async with Client(target(server)) as client:
            while True:
                tool, arguments, answer = await self._asked[server].get()
                try:
                    result = await client.call_tool(tool, arguments)
                    said, failed = "\n".join(getattr(part, "text", "") for part in result.content), result.is_error
                except MCPError as error:
                    said, failed = str(error), True
                if not answer.done():
                    answer.set_result(("".join(c for c in said if c.isprintable() or c in "\n\t")[:SAID_CHARS], failed))

    async def close(self) -> None:
        """End all servers."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), *self._ending, return_exceptions=True)
        self._tasks.clear()
