"""A published task file on a real desktop: set-up, what comes after the last action, and both verdicts."""

from __future__ import annotations

import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from actors.desktop.pool.pool import DesktopPool
from apis.actions.gui import Exit, line
from apis.tasks.osworld import HOME
from apis.tasksets import store
from tests.apis.plays import told
from tests.apis.task_files import bring, launched, of_command, of_file, ran, rule

pytestmark = pytest.mark.usefixtures("own_store")

CLAIM = f"done\n{line(Exit(success=True))}"


def written(folder: Path, name: str, **changes: Any) -> Path:
    """A task file: a script of the guest's is put there and run, a text is to be typed and saved."""
    notes = f"{HOME}/Documents/notes.txt"
    save = "import pyautogui; import time; pyautogui.hotkey('ctrl', 's'); time.sleep(0.5);"
    task = {
        "id": name,
        "instruction": "Type new in notes.txt",
        "config": [
            bring({notes: b"old", "setup.sh": b'echo "ran in $HOME" > made.txt\n'}),
            ran("bash setup.sh", shell=True),
            launched("gedit", notes),
            {"type": "activate_window", "parameters": {"window_name": "notes.txt"}},
        ],
        "evaluator": {
            "postconfig": [
                ran(["python", "-c", save]),
                ran(f"ls {HOME}/Documents", stdout="ls.out"),
            ],
            "func": ["file_contains", "check_include_exclude", "file_contains"],
            "result": [
                of_file("Documents/notes.txt"),
                of_command("cat made.txt; sleep 0.1", shell=True),
                {"type": "cache_file", "path": "ls.out"},
            ],
            "expected": [
                rule(expected=["new"]),
                rule(include=[f"ran in {HOME}"]),
                rule(expected=["notes.txt"]),
            ],
        },
        **changes,
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(task))
    return path


async def test_a_task_file_is_played_and_judged(pool: DesktopPool, tmp_path: Path) -> None:
    broken = [ran(["/nowhere/at-all"])]
    files = [written(tmp_path, "edit"), written(tmp_path, "broken", config=broken)]
    name = store.adopt("mine", files, pinned=False)
    broken_id, edit_id = store.ids(name)

    right = await told(pool, edit_id, "type\nAgent.type(text='new ')", CLAIM)
    assert right.success, right.detail
    untouched = await told(pool, edit_id, CLAIM)
    assert (untouched.success, untouched.faults) == (False, [])
    assert untouched.detail.startswith("file_contains: 1 of 1 texts are absent")
    lost = await told(pool, broken_id, CLAIM)
    assert lost.outcome is None
    assert {(fault.cause, fault.culprit) for fault in lost.faults} == {("setup_failed", "task")}


@pytest.mark.proof
async def test_an_application_says_before_the_freeze_what_it_does(pool: DesktopPool, tmp_path: Path) -> None:
    out = io.BytesIO()
    Image.new("RGB", (64, 48), "red").save(out, "PNG")  # a sound plays on no desktop without a card for it
    shown = f"{HOME}/a b.png"
    started = [bring({shown: out.getvalue()}), launched("vlc", "--image-duration=-1", shown)]
    asked = {
        "func": "is_vlc_playing",
        "result": {"type": "vlc_playing_info", "dest": "status.xml"},
        "expected": rule(type="file_name", file_name="a b.png"),
    }
    files = [written(tmp_path, "playing", config=started, evaluator=asked)]
    files.append(written(tmp_path, "silent", config=started[:1], evaluator=asked))
    name = store.adopt("mine", files, pinned=False)
    playing, silent = [await told(pool, task_id, CLAIM) for task_id in store.ids(name)]
    assert playing.success, playing.detail
    assert (silent.success, silent.faults) == (False, [])


@pytest.mark.proof
@pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed")
async def test_the_browser_remembers_visits_of_the_set_up(pool: DesktopPool, tmp_path: Path) -> None:

    def visits(*urls: str) -> dict[str, Any]:
        ago = "visit_time_from_now_in_seconds"
        pages = [{"url": url, "title": f"About {url}", ago: 3600.0 * n} for n, url in enumerate(urls)]
        return {"type": "update_browse_history", "parameters": {"history": pages}}

    started = launched("google-chrome", "--remote-debugging-port=1337")
    asked = {
        "func": "check_history_deleted",
        "result": {"type": "history", "dest": "history.sqlite"},
        "expected": rule(type="keywords", keywords=["tube"]),
    }
    shown = {"type": "chrome_open_tabs", "parameters": {"urls_to_open": ["chrome://history"]}}
    both = [visits("https://a.org/", "https://tube.org/x", "https://a.org/"), started]
    files = [written(tmp_path, "left", config=[*both, shown], evaluator=asked)]
    files.append(written(tmp_path, "none", config=[visits("https://a.org/"), started], evaluator=asked))
    files.append(written(tmp_path, "late", config=both[::-1], evaluator=asked))
    late, left, none = store.ids(store.adopt("mine", files, pinned=False))

    seen = await told(pool, left, *["wait\nAgent.wait()"] * 3, CLAIM)
    assert (seen.success, seen.faults) == (False, [])
    assert seen.detail.endswith("pages with ['tube'] are left")
    links = re.findall(r" link (About .*)", seen.steps[-1].observation)
    assert set(links) == {"About https://a.org/", "About https://tube.org/x"}  # once a day each, as the page lists them
    solved = await told(pool, none, CLAIM)
    assert solved.success, solved.detail
    lost = await told(pool, late, CLAIM)
    assert {(fault.cause, fault.culprit) for fault in lost.faults} == {("setup_failed", "task")}
    assert "Chromium is running" in lost.faults[0].detail
