"""The functions of VS Code, as `apis/apps/code.yaml` declares them. An answer is read back from the window."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from guest import Refused
from guest.chromium.devtools import soon
from guest.code import link as code_link
from guest.code import start as code_start
from guest.code.link import Installed, State, installed, show
from guest.files import any_in_home, below_home, folder_in_home, short, there_in_home, to_write, wrong
from guest.tools import public

CALL_S = 8.0  # less than the agent waits
INFO_S, READY_S = 0.25, 0.2
INFO_CHARS = 4800
LABEL_CHARS = 120
BINARY = "seems to be binary"  # part of what the editor says of a file that is no text
MISSING = "VS Code is not installed on this desktop: use another application for the file"


def call(name: str, arguments: dict[str, Any]) -> str:
    """Carry out a function. Raises Refused."""
    if shutil.which("code") is None:
        raise wrong(MISSING)
    return public(CodeTools(), name, arguments)


def info() -> str:
    """The window's folders and open files, the active one marked. Raises Refused."""
    return _told(code_link.ask("state", soon(INFO_S)))[:INFO_CHARS]


def state() -> str:
    """The window's folders as JSON. Raises Refused."""
    folders = code_link.ask("state", soon(CALL_S))["folders"]
    return json.dumps({"folders": [str(folder)[:INFO_CHARS] for folder in folders[:2]]})


def ready() -> bool:
    """Whether the window can be called, which shows a while before; of another machine's own editor, always."""
    return not os.path.isdir(code_start.EDITOR) or code_link.ready(READY_S)


def reachable(argv: list[str]) -> list[str]:
    """`argv` as it is: the program sees to it."""
    return argv


def _told(state: State) -> str:
    lines = [f"folders: {state['folderCount']}", *(f"- {short(each)}" for each in state["folders"])]
    lines += ["..."] * (state["folderCount"] > len(state["folders"]))
    lines.append(f"open files: {state['tabCount']}")
    place = state.get("place")
    for tab in state["tabs"]:
        name = short(tab["path"]) if tab["path"] and not tab["other"] else str(tab["label"])[:LABEL_CHARS]
        at = f", line {place['line']}, character {place['character']}" if tab["active"] and place else ""
        lines.append(f"{'*' if tab['active'] else ' '} {name}{at}{', not saved' if tab['dirty'] else ''}")
    return "\n".join([*lines, *["..."] * (state["tabCount"] > len(state["tabs"]))])


class CodeTools:
    """All of them."""

    def __init__(self) -> None:
        self._until = soon(CALL_S)

    def launch_vscode(self, *, path: str) -> str:
        full = any_in_home(path, "path")
        if not os.path.exists(full):
            raise wrong(f"path: there is no file or folder {path[:80]}")
        try:
            shown = self._show("path", full) if code_link.running() else self._start(full)
        except code_link.Late:
            return f"{short(full)} is being opened; VS Code is still loading"
        return f"{short(full)} is open\n{_told(shown)}"

    def _show(self, argument: str, full: str, line: int = 1, character: int = 1) -> State:
        """Open a file or a folder in the window that there is; what it shows then."""
        try:
            return show(full, self._until, line, character)
        except Refused as refused:
            if BINARY not in str(refused):
                raise
            raise wrong(f"{argument}: {short(full)} can't be shown as text") from refused

    def _start(self, full: str) -> State:
        quiet = subprocess.DEVNULL
        subprocess.Popen(["code", full], stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
        while not code_link.running():
            if time.monotonic() + code_link.LOOK_S >= self._until:
                raise wrong("VS Code did not start")
            time.sleep(code_link.LOOK_S)
        kind = "folderCount" if os.path.isdir(full) else "tabCount"
        return code_link.wait(lambda now: bool(now[kind]), self._until)

    def compare_files(self, *, file1: str, file2: str) -> str:
        left, right = there_in_home(file1, "file1"), there_in_home(file2, "file2")
        code_link.ask("compare", self._until, left=left, right=right)
        self._active(lambda tab: (tab["other"], tab["path"]) == (left, right))
        return f"{short(left)} (left) and {short(right)} (right) are compared side by side"

    def add_folder(self, *, folder: str) -> str:
        full = folder_in_home(folder, "folder")
        before = code_link.ask("state", self._until)
        if full in before["folders"]:
            return f"{short(full)} is in the window already\n{_told(before)}"
        return self._change("addFolder", full, before, f"{short(full)} is in the window now")

    def goto_file(self, *, file_path: str, line: int, character: int) -> str:
        full = there_in_home(file_path, "file_path")
        place = self._show("file_path", full, line, character).get("place") or {}
        if place.get("path") != full:
            raise wrong(f"file_path: {short(full)} can't be shown as text")
        at = f"line {place['line']}, character {place['character']}"
        beyond = "" if (place["line"], place["character"]) == (line, character) else "; there is nothing further on"
        return f"{short(full)} is open at {at}{beyond}"

    def perform_merge(self, *, path1: str, path2: str, base: str, result: str) -> str:
        left, two, old = (there_in_home(*each) for each in ((path1, "path1"), (path2, "path2"), (base, "base")))
        new = to_write(result, "result")
        code_link.ask("state", self._until)  # or nothing is written, where no window answers
        fresh = not os.path.exists(new)
        if fresh:
            shutil.copyfile(old, new)
        try:
            code_link.ask("merge", self._until, one=left, two=two, base=old, result=new)
        except code_link.Late:  # the merge editor may still come, and needs the file
            raise
        except Refused:
            if fresh:
                Path(new).unlink(missing_ok=True)
            raise
        self._active(lambda tab: (tab["other"], tab["path"]) == (old, new))
        return (
            f"the merge editor shows {short(left)} and {short(two)}; what is accepted goes to {short(new)} when saved"
        )

    def remove_folder(self, *, folder: str) -> str:
        full = below_home(folder, "folder")  # the window lists one that was deleted, too
        before = code_link.ask("state", self._until)
        if full not in before["folders"]:
            there = ", ".join(short(each) for each in before["folders"][:10]) or "none"
            raise wrong(f"folder: {short(full)[:LABEL_CHARS]} is not in the window; its folders: {there}")
        return self._change("removeFolder", full, before, f"{short(full)} is no longer in the window")

    def install_extension(self, *, extension_id: str, pre_release: bool) -> str:
        if extension_id.lower().endswith(".vsix"):
            return self._install(there_in_home(extension_id, "extension_id"), "extension_id")
        offered = code_start.best(extension_id, pre_release)
        if offered is None:
            there = ", ".join(code_start.ids())
            raise wrong(f"extension_id: without a network there are {there}, and .vsix files of yours like ~/a.vsix")
        old = _version(offered.id)
        if old and code_start.order(old) >= code_start.order(offered.version):
            return f"{offered.id} {old} is installed already"
        return self._install(self._packed(offered), "extension_id")

    def _packed(self, offered: code_start.Offered) -> str:
        place = Path(os.environ["XDG_RUNTIME_DIR"], f"{offered.id}-{offered.version}.vsix")
        place.write_bytes(code_start.packed(offered))
        return str(place)

    def _install(self, file: str, argument: str) -> str:
        name = os.path.basename(file)[:80]
        before, shown = installed(), code_link.ask("state", self._until)["extensions"]
        try:
            code_link.ask("install", self._until, path=file)
        except code_link.Late as late:  # VS Code goes on with it
            raise code_link.Late("tool_failed", f"{argument}: {name} may still come to be installed: {late}") from late
        except Refused as refused:
            raise wrong(f"{argument}: {name} was not installed: {refused}") from refused
        new = sorted(set(installed()) - set(before))
        if not new:
            return f"{name} was installed already"
        fresh = all(each.id != new[0].id for each in before)
        if fresh or new[0].id in shown:  # one that is switched off stays so, and the window never names it
            code_link.wait(lambda now: new[0].id in now["extensions"], self._until)
        return f"{new[0].id} {new[0].version} is installed"

    def uninstall_extension(self, *, extension_id: str) -> str:
        known = _known(extension_id)
        code_link.ask("uninstall", self._until, id=known.id)
        if _version(known.id):
            raise wrong(f"{known.id} is still installed: close its dialog in the window")
        return f"{known.id} {known.version} is removed"

    def list_extensions(self, *, show_versions: bool, category: str | None) -> str:
        wanted = next((each for each in code_start.CATEGORIES if each.lower() == (category or "").lower()), None)
        if category is not None and wanted is None:
            raise wrong(f"category: write one of {', '.join(code_start.CATEGORIES)}")
        listed = [each for each in installed() if wanted is None or wanted in each.categories]
        lines = [f"{each.id}@{each.version}" if show_versions else each.id for each in listed]
        return "\n".join([f"extensions: {len(listed)}", *lines])

    def update_extensions(self) -> str:
        updates = []
        for each in installed():
            newest = code_start.best(each.id, each.pre_release)
            if newest and code_start.order(newest.version) > code_start.order(each.version):
                self._install(self._packed(newest), newest.id)
                updates.append(f"{each.id}: {each.version} -> {newest.version}")
        return "\n".join([f"updated: {len(updates)}", *updates]) if updates else "all extensions are up to date"

    def disable_extension(self, *, extension_id: str) -> str:
        known = _known(extension_id)
        fresh = code_link.switch_off(known.id, self._until)
        code_link.wait(lambda now: known.id not in now["extensions"], self._until)
        return f"{known.id} is switched off" if fresh else f"{known.id} was switched off already"

    def toggle_sync(self, *, state: str) -> str:
        if code_link.ask("syncs", self._until)["offered"]:
            raise wrong("state: sign in or out in the window's menu of accounts")
        if state == "on":
            raise wrong("state: this editor has no account and no network to synchronise settings with")
        return "the synchronisation of settings is off"

    def _change(self, method: str, full: str, before: State, done: str) -> str:
        """Change the folders, and wait for the window where that loads it or its extensions again; what it shows."""
        after = code_link.ask(method, self._until, path=full)
        if not after["done"]:
            raise wrong(f"folder: the window does not let {short(full)} be changed")
        there = method == "addFolder"

        def changed(now: State) -> bool:
            return (full in now["folders"]) == there and not (after["reloads"] and now["born"] == before["born"])

        try:
            return f"{done}\n{_told(code_link.wait(changed, self._until))}"
        except code_link.Late:
            return f"{done}; VS Code is still loading its folders"

    def _active(self, true: Callable[[dict[str, Any]], bool]) -> None:
        code_link.wait(lambda now: any(tab["active"] and true(tab) for tab in now["tabs"]), self._until)


def _version(extension_id: str) -> str:
    """The version that is installed; "" for none."""
    return next((each.version for each in installed() if each.id == extension_id.lower()), "")


def _known(extension_id: str) -> Installed:
    """The extension that is installed. Raises Refused."""
    every = installed()
    extension = next((each for each in every if each.id == extension_id.lower()), None)
    if extension is None:
        there = ", ".join(each.id for each in every[:20]) or "none"
        raise wrong(f"extension_id: {extension_id[:80]} is not installed; there are: {there}")
    return extension
