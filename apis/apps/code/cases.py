"""VS Code: what each function did is read from its window, as it shows, and from the files that it writes.

Invariant: no case believes an answer alone; each prepares the folders and extensions that it needs.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from apis.apps.check.case import Case, Desk, Step, Table, want
from apis.apps.check.look import Holds, has, look
from apis.guest.code.gallery import OFFERED, packed
from apis.guest.code.start import EXTENSIONS

THEME, LETTERS, NOTES, KEYS = (
    f"computerrl.{name}" for name in ("paper-theme", "letter-snippets", "notes-language", "plain-keys")
)
WAIT_S = 90.0  # a window that gets other folders loads again, which takes a while on a busy machine
GONE = ("is not in the window", "is not installed")  # what is to be taken away has gone already
NONE = "~/proj/none.py"
MERGE = {"path1": "~/Documents/mine.txt", "path2": "~/Documents/hers.txt", "base": "~/Documents/base.txt",
         "result": "~/Documents/result.txt"}  # fmt: skip


def _files() -> Mapping[str, bytes]:
    numbered = "".join(f"line {number}\n" for number in range(1, 41)).encode()
    return {
        "proj/one.py": b"import os\n\n\ndef first(x):\n    return x + 1\n",
        "proj/two.txt": numbered,
        "other/three.txt": b"three\n",
        "Documents/base.txt": b"plum\nfig\npear\n",
        "Documents/mine.txt": b"plum\nmy fig\npear\n",
        "Documents/hers.txt": b"plum\nher fig\npear\n",
        "Documents/day.notes": b"a note\n",
        "Documents/theme.vsix": packed(OFFERED[0]),
    }


def _titled(title: str) -> Holds:
    return lambda looked: any(each["active"] and each["title"].startswith(title) for each in looked["windows"])


def _informs(line: str, there: bool = True) -> Holds:
    return lambda looked: (line in looked["info"].splitlines()) == there and "folders: " in looked["info"]


def _shows(*wanted: tuple[str, Holds]) -> Callable[[Desk, str], Awaitable[None]]:
    async def effect(desk: Desk, _: str) -> None:
        for what, holds in wanted:
            await look(desk, what, holds, wait_s=WAIT_S)

    return effect


def _first(*steps: tuple[str, Mapping[str, Any]]) -> Step:
    async def prepare(desk: Desk) -> None:
        for name, arguments in steps:
            answer = await desk.tool(name, **arguments)
            want(not answer.startswith("refused: ") or any(text in answer for text in GONE), f"{name}: {answer}")

    return prepare


async def _kept(desk: Desk, extension_id: str) -> str:
    """The version of an extension by the editor's own list and the extension's own folder; "" for none."""
    rows = json.loads(await desk.contents(f"{EXTENSIONS}/extensions.json"))
    row = next((each for each in rows if each["identifier"]["id"] == extension_id), None)
    if row is None:
        return ""
    about = json.loads(await desk.contents(f"{EXTENSIONS}/{row['relativeLocation']}/package.json"))
    want(
        about["version"] == row["version"], f"{extension_id} is {row['version']} by the list, {about['version']} by it"
    )
    return str(row["version"])


async def _is(desk: Desk, extension_id: str, version: str) -> None:
    found = await _kept(desk, extension_id)
    want(found == version, f"{extension_id} is {found or 'not there'}, not {version or 'gone'}")


async def _launched(desk: Desk, _: str) -> None:
    await look(desk, "file two.txt", _titled("two.txt"), wait_s=WAIT_S)
    await desk.tool("launch_vscode", path="~/other")
    await look(
        desk,
        "folder other",
        lambda looked: _informs("- ~/other")(looked) and not _informs("- ~/proj")(looked),
        wait_s=WAIT_S,
    )
    await look(desk, "three.txt in the tree", has("tree-item", "three.txt"), wait_s=WAIT_S)
    await desk.tool("launch_vscode", path="~/proj")
    await look(desk, "one.py in the tree", has("tree-item", "one.py"), wait_s=WAIT_S)


async def _installed(desk: Desk, _: str) -> None:
    await _is(desk, THEME, "1.1.0")
    await desk.tool("install_extension", extension_id=THEME, pre_release=True)
    await _is(desk, THEME, "1.2.0")


async def _old_theme(desk: Desk) -> None:
    await desk.tool("uninstall_extension", extension_id=THEME)
    await desk.tool("install_extension", extension_id="~/Documents/theme.vsix")
    await _is(desk, THEME, "1.0.0")


async def _updated(desk: Desk, _: str) -> None:
    await _is(desk, THEME, "1.1.0")
    await desk.tool("disable_extension", extension_id=THEME)  # the window names it no more, and it is updated as well
    told = await desk.tool("install_extension", extension_id=THEME, pre_release=True)
    want(told == f"{THEME} 1.2.0 is installed", told)
    await _is(desk, THEME, "1.2.0")


async def _removed(desk: Desk, _: str) -> None:
    await _is(desk, KEYS, "")


async def _listed(desk: Desk, answer: str) -> None:
    want(f"extensions: {len(answer.splitlines()) - 1}" in answer, answer)
    snippets = await desk.tool("list_extensions", category="snippets")
    want(snippets == f"extensions: 1\n{LETTERS}", f"of category Snippets it says {snippets!r}")
    await _is(desk, LETTERS, "1.0.0")


async def _noted(desk: Desk) -> None:
    own = {"extension_id": NOTES}
    await _first(("uninstall_extension", own), ("install_extension", own))(desk)
    await _first(("goto_file", {"file_path": "~/Documents/day.notes"}))(desk)
    await look(desk, "file of the language that the extension brings", has("push-button", "notes"), wait_s=WAIT_S)


def _lines(number: int) -> Mapping[str, Any]:
    return {"file_path": "~/proj/two.txt", "line": 2 + number % 30, "character": 3}


CASES = (
    Case(function="launch_vscode", right={"path": "~/proj/two.txt"}, says="~/proj/two.txt is open", effect=_launched,
         wrong={"path": NONE}, refusal="path: there is no file or folder"),
    Case(function="goto_file", right={"file_path": "~/proj/one.py", "line": 4, "character": 3},
         says="is open at line 4, character 3",
         effect=_shows(("file one.py", _titled("one.py")), ("line and column", has("push-button", "Ln 4, Col 3")),
                       ("place in the file", _informs("* ~/proj/one.py, line 4, character 3"))),
         wrong={"file_path": NONE}, refusal="file_path: there is no file", again=_lines),
    Case(function="compare_files", right={"file1": "~/proj/one.py", "file2": "~/proj/two.txt"},
         says="~/proj/one.py (left) and ~/proj/two.txt (right)",
         effect=_shows(("two files", _titled("one.py ↔ two.txt"))),
         wrong={"file1": "~/proj/one.py", "file2": NONE}, refusal="file2: there is no file"),
    Case(function="perform_merge", right=MERGE, says="goes to ~/Documents/result.txt",
         effect=_shows(("merge editor", _titled("Merging: result.txt")),
                       ("conflict", has("push-button", "Go to next conflict"))),
         wrong={**MERGE, "base": NONE}, refusal="base: there is no file"),
    Case(function="add_folder", right={"folder": "~/other"}, before=_first(("launch_vscode", {"path": "~/proj"})),
         each=_first(("remove_folder", {"folder": "~/other"})), says="~/other is in the window now",
         effect=_shows(("folder other", _informs("- ~/other")), ("its place in the tree", has("tree-item", "other"))),
         wrong={"folder": "~/nowhere"}, refusal="folder: there is no folder", light=False),  # a window loads again
    Case(function="remove_folder", right={"folder": "~/other"}, each=_first(("add_folder", {"folder": "~/other"})),
         says="~/other is no longer in the window",
         effect=_shows(("window without it", _informs("- ~/other", there=False)),
                       ("tree without it", lambda looked: not has("tree-item", "other")(looked))),
         wrong={"folder": "~/Documents"}, refusal="folder: ~/Documents is not in the window"),
    Case(function="install_extension", right={"extension_id": THEME}, says=f"{THEME} 1.1.0 is installed",
         each=_first(("uninstall_extension", {"extension_id": THEME})), effect=_installed,
         wrong={"extension_id": "nobody.nothing"}, refusal="extension_id: without a network", light=False),
    Case(function="list_extensions", right={"show_versions": True}, says=f"{LETTERS}@1.0.0",
         before=_first(("install_extension", {"extension_id": LETTERS})), effect=_listed,
         wrong={"category": "Cakes"}, refusal="category: write one of"),
    Case(function="update_extensions", each=_old_theme, says=f"{THEME}: 1.0.0 -> 1.1.0", effect=_updated, light=False),
    Case(function="disable_extension", right={"extension_id": NOTES}, before=_noted, says=f"{NOTES} ",
         effect=_shows(("file that is plain text again", has("push-button", "Plain Text"))),
         wrong={"extension_id": "nobody.nothing"}, refusal="extension_id: nobody.nothing is not installed"),
    Case(function="uninstall_extension", right={"extension_id": KEYS}, says=f"{KEYS} 1.3.0 is removed",
         each=_first(("install_extension", {"extension_id": KEYS})), effect=_removed,
         wrong={"extension_id": "nobody.nothing"}, refusal="extension_id: nobody.nothing is not installed",
         light=False),
    Case(function="toggle_sync", right={"state": "off"}, says="synchronisation of settings is off",
         wrong={"state": "maybe"}, refusal="state: write one of", never={"on": "state: this editor has no account"}),
)  # fmt: skip

TABLE = Table(app="code", owner="CodeTools", cases=CASES, files=_files, opens=("{home}/proj",), title="code")
