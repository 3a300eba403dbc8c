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
from actors.cluster.build.command import write_json
from actors.cluster.checks.desk import CALL_S, OPEN_MS, provider, sandbox_set
from actors.desktop import mcp
from actors.desktop.link import GuestLink
from apis import built, catalogue
from apis.applications import APP_NAMES, app_named
from apis.build.mcp import schema, taken
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
        raise ConfigError(f"--server {args.server}: no tools can be listed: {error or type(error).__name__}") from error
    functions, names, refused = taken(tools)
    for tool, why in refused.items():
        output.line(f"refused: {tool}: {why}", to=sys.stderr)
    if not functions:
        raise ConfigError(f"--server {args.server}: none of its {len(tools)} tools can be a function")
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / built.CASES, {})
    write_json(folder / built.CODE, names)
    write_json(folder / built.API, built.Api(args.app, args.owner, args.app, "", [], functions, server=server))
    built.read(folder)
    output.line(
        f"{len(functions)} functions; look at them:  {program()} apis show {folder}   then  {program()} apis accept"
        f" {folder}"
    )
    return 0


def serve(args: argparse.Namespace) -> int:
    """Serve functions on a desktop of its own over this process's input and output, until they end; 0."""
    _needed()
    catalogue.use([f"{folder}@{built.accepted(Path(folder))}" for folder in args.dir])
    functions = {f"{each.owner}_{each.name}": each for app in catalogue.TOOLS.values() for each in app}
    run_loop(_serve(args, functions))
    return 0


async def _serve(args: argparse.Namespace, functions: dict[str, Any]) -> None:
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
            text = {"type": "string"}
            properties = {"app": {**text, "enum": list(APP_NAMES)}, "path": {**text, "description": "below the home"}}
            opener = {"type": "object", "properties": properties, "required": ["app"], "additionalProperties": False}
            return [
                types.Tool(name=OPEN, description="Open an application, with a file.", inputSchema=opener),
                *(types.Tool(name=n, description=f.description, inputSchema=schema(f)) for n, f in functions.items()),
            ]

        @server.call_tool(validate_input=False)  # `catalogue.call` does
        async def called(name: str, arguments: dict[str, Any]) -> list[types.TextContent]:
            return [types.TextContent(type="text", text=await _called(link, desktop.home, functions, name, arguments))]

        try:
            async with stdio_server() as (reads, writes):
                await server.run(reads, writes, server.create_initialization_options())
        finally:
            await link.close()
            await made.destroy(desktop)


async def _called(link: GuestLink, home: str, functions: dict[str, Any], name: str, arguments: dict[str, Any]) -> str:
    """What a function says. What it raises is the text of a failed call."""
    if name not in {OPEN, *functions}:
        raise ConfigError(f"there is no tool {name}")
    if name == OPEN:
        if (app := arguments.get("app")) not in APP_NAMES:
            raise ConfigError(f"app: {app!r} is none of {', '.join(APP_NAMES)}")
        argv = [*app_named(str(app)).argv]
        if path := str(arguments.get("path", "")):
            argv.append(f"{home}/{path.removeprefix('~/')}")
        await link.call("open_window", argv=argv, timeout_ms=OPEN_MS, timeout_s=OPEN_MS / 1000 + CALL_S)
        return "opened"
    function = functions[name]
    action = catalogue.call(function.owner, function.name, **arguments)
    given = {"owner": action.owner, "name": action.name, "arguments": action.arguments}
    return str(await link.call("tool", timeout_s=CALL_S, **given))


def _needed() -> None:
    if find_spec("mcp") is None:
        raise ConfigError(f"this needs the package mcp: {sys.executable} -m pip install 'computerrl[mcp]'")
