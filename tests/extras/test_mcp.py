"""Functions as MCP tools for the package's own client, and tools of a server written by it as functions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="mcp is not installed: make extras")

from mcp import ClientSession, StdioServerParameters, stdio_client

from actors.desktop.mcp import McpTools
from actors.errors import GuestRefused
from apis import built

CLI = [sys.executable, "-m", "actors.cluster.cli", "apis"]
SERVER = '''
import os, time
from typing import Any, Literal
from mcp.server.fastmcp import FastMCP

server = FastMCP("notes")
notes: list[str] = []

@server.tool()
def add_note(text: str, kind: Literal["plain", "bold"] = "plain") -> str:
    """Add a note."""
    if not text:
        raise ValueError("text: it is empty")
    notes.append(text)
    return f"{len(notes)} notes, {kind}\\x1b[31m" + "x" * (9000 if text == "long" else 0)

@server.tool()
def hang() -> str:
    """Never answer."""
    time.sleep(60)
    return ""

@server.tool()
def leave() -> str:
    """End the server."""
    os._exit(1)

@server.tool()
def odd(options: dict[str, Any]) -> str:
    """Take anything."""
    return ""

server.run()
'''


def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | env
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120, env=environment)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("notes")
    (place / "server.py").write_text(SERVER)
    server, out = f"{sys.executable} {place / 'server.py'}", place / "out"
    made = run(*CLI, "import", "--server", server, "--app", "text_editor", "--owner", "NotesTools", "--out", str(out))
    assert made.returncode == 0, made.stderr
    assert "refused: odd: options: object" in made.stderr
    assert "server.py" in run(*CLI, "show", str(out)).stdout
    assert "is not accepted" in run(sys.executable, "-c", "import apis.catalogue", COMPUTERRL_APIS=str(out)).stderr
    built.accept(out)
    return out


@pytest.mark.parametrize(
    ("server", "why"), [(f"{sys.executable} -m nope", "Connection closed"), ("nope", "No such file"), ("true", "\\w+")]
)
def test_a_server_that_does_not_answer_is_refused_in_one_line(tmp_path: Path, server: str, why: str) -> None:
    words = ("--server", server, "--app", "text_editor", "--owner", "NotesTools", "--out", str(tmp_path / "out"))
    refused = run(*CLI, "import", *words)
    assert re.search(rf"no tools can be listed: .*{why}", refused.stderr.splitlines()[-1])
    assert not (tmp_path / "out").exists()


async def test_tools_are_called_and_what_fails_is_the_call_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(built.PLACES_ENV, str(folder))
    server, tool = built.served("NotesTools", "add_note") or ((), "")
    tools = McpTools()
    try:
        assert await tools.call(server, tool, {"text": "a", "kind": "bold"}, 60) == "1 notes, bold[31m"
        assert (await tools.call(server, tool, {"text": "b"}, 60)).startswith("2 notes")
        assert len(await tools.call(server, tool, {"text": "long"}, 60)) == 5000
        with pytest.raises(GuestRefused, match="add_note"):
            await tools.call(server, tool, {"text": ""}, 60)
        with pytest.raises(GuestRefused, match="no answer within"):
            await tools.call(server, "hang", {}, 1.0)
        assert (await tools.call(server, tool, {"text": "c"}, 60)).startswith("1 notes"), "another server"
        with pytest.raises(GuestRefused, match="its server has ended"):
            await tools.call(server, "leave", {}, 60)
        assert (await tools.call(server, tool, {"text": "d"}, 60)).startswith("1 notes"), "another server"
        with pytest.raises(GuestRefused, match="function_crashed"):
            await tools.call(("/nowhere/server",), tool, {}, 20)
    finally:
        await tools.close()


USED = """
import asyncio, sys
from actors.cluster.checks.desk import CALL_S, provider, sandbox_set
from actors.desktop.link import GuestLink
from actors.desktop.provider import DesktopSpec
from apis.actions.grammar import parse
from apis.prompts.system import compact_system
assert "class NotesTools" in compact_system("text_editor") or "add_note(text: str" in compact_system("text_editor")
action = parse("NotesTools.add_note(text='a')", "text_editor")
async def main():
    async with provider(sandbox_set([f"desktops.provider.state_dir={sys.argv[1]}"])) as made:
        desktop = await made.boot(DesktopSpec())
        link = await GuestLink.open(desktop, timeout_s=CALL_S)
        args = {key: getattr(action, key) for key in ("owner", "name", "arguments")}
        print(await link.call("tool", **args, timeout_s=CALL_S))
        await link.close()
        await made.destroy(desktop)
asyncio.run(main())
"""


@pytest.mark.desktop
@pytest.mark.timeout(300)
def test_a_desktop_has_the_tools_of_a_server(folder: Path, state_dir: str) -> None:
    used = run(sys.executable, "-c", USED, state_dir, COMPUTERRL_APIS=str(folder))
    assert used.stdout.startswith("1 notes, plain"), used.stderr


@pytest.mark.desktop
@pytest.mark.timeout(300)
async def test_functions_are_served_as_tools(state_dir: str, tmp_path: Path) -> None:
    text = tmp_path / "book.csv"
    text.write_text("a,b\n1,2\n")
    words = [*CLI[1:], "serve", "--mcp", "--file", str(text), "--set", f"desktops.provider.state_dir={state_dir}"]
    server = StdioServerParameters(command=CLI[0], args=words, env=dict(os.environ), cwd=os.getcwd())
    async with stdio_client(server) as streams, ClientSession(*streams) as client:
        await client.initialize()
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert len(names) == 104
        opened = await client.call_tool("open_app", {"app": "vlc"})
        assert not opened.isError, opened
        done = await client.call_tool("VLCTools_set_settings", {"field": "qt-max-volume", "value": "150"})
        assert not done.isError, done
        assert "150" in (await client.call_tool("VLCTools_get_settings", {})).content[0].text
        early = await client.call_tool("VLCTools_get_current_time", {})
        assert (early.isError, "nothing is playing" in early.content[0].text) == (True, True), early
        for name, arguments, word in (
            ("VLCTools_set_settings", {"field": "qt-max-volume", "value": [1]}, "value"),
            ("VLCTools_set_settings", {"field": "qt-max-volume"}, "value"),
            ("VLCTools_set_volume", {}, "no tool VLCTools_set_volume"),
            ("open_app", {"app": "emacs"}, "app: write one of 'text_editor'"),
            ("open_app", {}, "app"),
        ):
            wrong = await client.call_tool(name, arguments)
            assert (wrong.isError, word in wrong.content[0].text) == (True, True), wrong
