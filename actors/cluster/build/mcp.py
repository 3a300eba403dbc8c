"""`apis serve --mcp` and `apis import`: functions of applications as MCP tools, and tools of a server as functions."""

from __future__ import annotations

import argparse
import asyncio
import shlex
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from actors.cluster import output
from actors.cluster.checks.desk import CALL_S, OPEN_MS, provider, sandbox_set
from actors.desktop import mcp
from actors.desktop.link import GuestLink
from apis import built, catalogue
from apis.applications import APP_NAMES, app_named
from apis.build.mcp import schema, taken
from apis.functions.declaration import Function, Parameter, Tool
from apis.functions.values import fitted
from runtime import disk
from runtime.errors import ConfigError
from runtime.program import program
from runtime.system import run as run_loop

LIST_S = 60.0
OPEN = "open_app"


def bring(args: argparse.Namespace) -> int:
    """Write the folder of a server's tools, which `apis accept` pins; 0 where there is any."""
    _needed()
    if args.app not in APP_NAMES:
        raise ConfigError(f"--app {args.app}: no application of that name; there are {', '.join(APP_NAMES)}")
    try:
        server, folder = shlex.split(args.server), Path(args.out)
    except ValueError as error:
        raise ConfigError(f"--server {args.server}: {error}") from error
    if not server or (folder / built.API).exists():
        raise ConfigError(f"{folder} is there already" if server else "--server: it names nothing")
    try:
        tools = run_loop(asyncio.wait_for(mcp.listed(server), LIST_S))
    except Exception as error:  # what a server's program may end with: any error of the package, in groups
        first: BaseException = error
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise ConfigError(
            f"--server {args.server}: no tools can be listed: {str(first) or type(first).__name__}"
        ) from error
    functions, refused = taken(tools)
    for tool, why in refused.items():
        output.line(f"refused: {tool}: {why}", to=sys.stderr)
    if not functions:
        raise ConfigError(f"--server {args.server}: none of its {len(tools)} tools can be a function")
    built.write(folder, built.Api(args.app, args.owner, args.app, functions=functions, server=server))
    built.read(folder)
    todo = f"{program()} apis show {folder}   then  {program()} apis accept {folder}"
    output.line(f"{len(functions)} functions; look at them:  {todo}")
    return 0


def serve(args: argparse.Namespace) -> int:
    """Serve functions on a desktop of its own over this process's input and output, until they end; 0."""
    _needed()
    catalogue.use([f"{folder}@{built.accepted(Path(folder))}" for folder in args.dir])
    takes = {"app": Parameter("choice", list(APP_NAMES)), "path": Parameter("path", default=None)}
    opener = Function("", OPEN, Tool, tuple(each.named(name) for name, each in takes.items()), "Open an application.")
    functions = {f"{each.owner}_{each.name}": each for app in catalogue.TOOLS.values() for each in app}
    run_loop(_serve(args, {OPEN: opener} | functions))
    return 0


async def _serve(args: argparse.Namespace, functions: dict[str, Function]) -> None:
    from mcp import stdio_server, types
    from mcp.server.lowlevel import Server

    async with provider(sandbox_set(args.overrides)) as made:
        desktop = await made.boot(made.usual)
        link = await GuestLink.open(desktop, timeout_s=CALL_S)
        for file in map(Path, args.file):
            await link.call("write_file", path=f"Documents/{file.name}", data=disk.read_bytes(file), timeout_s=CALL_S)

        server: Any = Server("computerrl")

        @server.list_tools()
        async def tools() -> list[types.Tool]:
            return [types.Tool(name=n, description=f.description, inputSchema=schema(f)) for n, f in functions.items()]

        @server.call_tool(validate_input=False)  # `fitted` does
        async def called(name: str, arguments: dict[str, Any]) -> list[types.TextContent]:
            if name not in functions:
                raise ConfigError(f"there is no tool {name}")
            function, given = functions[name], fitted(functions[name], arguments)
            if name != OPEN:
                job = {"owner": function.owner, "name": function.name, "arguments": given}
                said = str(await link.call("tool", timeout_s=CALL_S, **job))
            else:
                file = [f"{desktop.home}/{given['path'].removeprefix('~/')}"] if given["path"] else []
                argv = [*app_named(given["app"]).argv, *file]
                await link.call("open_window", argv=argv, timeout_ms=OPEN_MS, timeout_s=OPEN_MS / 1000 + CALL_S)
                said = "opened"
            return [types.TextContent(type="text", text=said)]

        try:
            async with stdio_server() as (reads, writes):
                await server.run(reads, writes, server.create_initialization_options())
        finally:
            await link.close()
            await made.destroy(desktop)


def _needed() -> None:
    if find_spec("mcp") is None:
        raise ConfigError(f"this needs the package mcp: {sys.executable} -m pip install 'computerrl[mcp]'")
