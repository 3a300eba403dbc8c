"""Kinds of getters and judges on real desktops: a right end is solved, a near miss is not, and neither is a fault.

The end is put there by the set-up itself. Then everything is as in an evaluation.
"""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from actors.desktop.pool.pool import DesktopPool
from apis.tasks.osworld import HOME, data_url
from apis.tasksets import published, store
from tests.apis.plays import told
from tests.apis.task_files import Part, bring, launched, of_command, of_file, ran, rule
from tests.apis.test_package import cases
from tests.apis.test_task_files_on_desktops import CLAIM

pytestmark = pytest.mark.usefixtures("own_store")

LOCK = "org.gnome.desktop.screensaver lock-enabled"
FAR = "https://www.amazon.com/"
CHROME = ("google-chrome", "--remote-debugging-port=1337")


class Kind(NamedTuple):
    """Steps of a right end and of a near miss, what is judged then, and the program that it takes."""

    name: str
    right: list[Part]
    wrong: list[Part]
    evaluator: Part
    needs: str = ""
    published: bool = False


def run(command: str) -> Part:
    return ran(command, shell=True)


def puts(path: str, data: bytes | str) -> Part:
    return bring({f"{HOME}/{path}": data.encode() if isinstance(data, str) else data})


def opened(*urls: str) -> list[Part]:
    return [launched(*CHROME), {"type": "chrome_open_tabs", "parameters": {"urls_to_open": list(urls)}}]


def by(func: str, result: Part, expected: Part, **more: Any) -> Part:
    return {"func": func, "result": result, "expected": expected, **more}


def typed(text: str) -> list[Part]:
    line = (
        f"import pyautogui; pyautogui.hotkey('ctrl', 'alt', 't'); pyautogui.write('{text}'); pyautogui.press('enter')"
    )
    return [ran(["python", "-c", line]), {"type": "sleep", "parameters": {"seconds": 0.5}}]


def made(metric: str, side: str) -> bytes:
    """A document that another library made, of a case of the published package's."""
    found = next(case for case in cases() if case["metric"] == metric)
    return base64.b64decode(found[side]["data"])


def kinds() -> list[Kind]:
    lock = f"gsettings set {LOCK}"
    experiments = rule(type="names", names=["smooth-scrolling"])
    row = {"type": "content_from_vm_file", "path": f"{HOME}/a.xlsx", "file_type": "xlsx", "file_content": "last_row"}
    volume = "pactl list sinks | grep '^[[:space:]]Volume:' | grep -oE '[0-9]+%' | head -1"
    unpacked = {"manifest_version": 3, "name": "mine", "version": "1"}
    shortcut = "[Desktop Entry]\nType=Application\nName={}\nExec=true\n"
    state = '{{"browser": {{"enabled_labs_experiments": [{}]}}}}'
    return [
        Kind(
            "accessible", [puts("a.txt", "tea"), launched("mousepad", f"{HOME}/a.txt")],
            [puts("a.txt", "milk"), launched("mousepad", f"{HOME}/a.txt")],
            by(
                "check_accessibility_tree", {"type": "accessibility_tree"},
                {"type": "rule", "rules": [{"selectors": ["text[st|focused=true]"], "text": "tea", "exact": True}]},
            ),
            published=True,
        ),
        Kind(
            "settings", [run(f"{lock} true")], [run(f"{lock} false")],
            by("exact_match", of_command(f"gsettings get {LOCK}", shell=True), rule(expected="true\n")),
            "gsettings",
        ),
        Kind(
            "favourites", [run("gsettings set org.gnome.shell favorite-apps \"['a.desktop']\"")], [],
            by(
                "check_gnome_favorite_apps", of_command("gsettings get org.gnome.shell favorite-apps", shell=True),
                rule(expected=["a.desktop"]),
            ),
            "gsettings",
        ),
        Kind(
            "volume", [run("pactl set-sink-volume @DEFAULT_SINK@ 100%")], [],
            by("exact_match", of_command(volume, shell=True), rule(expected="100%\n")), "pulseaudio",
        ),
        Kind(
            "terminal", [puts(".bashrc", "printf 'tea %s\\n' here\n")], [],
            by(
                "check_include_exclude", {"type": "vm_terminal_output"}, rule(include=["tea here", "HOME=/home"]),
                postconfig=typed("env | grep ^HOME"),
            ),
        ),
        Kind(
            "fullscreen", [launched("xterm", "-fullscreen")], [launched("xterm")],
            by("is_vlc_fullscreen", {"type": "vm_window_size", "app_class_name": "xterm"}, {"type": "vm_screen_size"}),
            published=True,
        ),
        Kind(
            "tabs", opened("chrome://settings/", FAR)[:1] + opened(FAR)[1:], opened("https://www.apple.com/"),
            by("is_expected_active_tab", {"type": "active_tab_info"}, rule(type="url", url=FAR)), "chromium",
        ),
        Kind(
            "address", opened("https://www.a.org/b/c.html"), opened("https://www.a.org/b/d.html"),
            by(
                "exact_match",
                {"type": "url_dashPart", "goto_prefix": "https://www.", "partIndex": -1, "returnType": "string"},
                rule(expected="c.html"),
            ),
            "chromium", published=True,
        ),
        Kind(
            "experiments", [puts(".config/chromium/Local State", state.format('"smooth-scrolling@1"'))], [],
            by("check_enabled_experiments", {"type": "enabled_experiments"}, experiments),
            published=True,
        ),
        Kind(
            "shortcuts", [puts("Desktop/a.desktop", shortcut.format("Tea"))],
            [puts("Desktop/a.desktop", shortcut.format("Teapot"))],
            by("is_shortcut_on_desktop", {"type": "shortcuts_on_desktop"}, rule(type="name", name="Tea")),
            published=True,
        ),
        Kind(
            "player",
            [run("for each in mp4 mpeg x-matroska x-msvideo webm ogg quicktime x-flv; do"
                 " xdg-mime default vlc.desktop video/$each; done")],
            [run("xdg-mime default vlc.desktop video/webm")],
            by("exact_match", {"type": "default_video_player"}, rule(expected="vlc.desktop")), "xdg-mime",
        ),
        Kind(
            "spacing", [puts("a.docx", made("compare_line_spacing", "right"))],
            [puts("a.docx", made("compare_line_spacing", "wrong"))],
            by(
                "compare_line_spacing", of_file("a.docx"),
                {"type": "cloud_file", "path": data_url(made("compare_line_spacing", "expected")), "dest": "b.docx"},
            ),
            published=True,
        ),
        Kind(
            "last row", [puts("a.xlsx", made("last_row", "right"))], [puts("b.xlsx", made("last_row", "right"))],
            by("exact_match", row, rule(expected=["milk", "2"])),
            published=True,
        ),
        Kind(
            "extension", [puts("Desktop/mine/manifest.json", json.dumps(unpacked)), puts(
                ".config/chromium/Default/Preferences",
                json.dumps({"extensions": {"settings": {"a": {"path": "/home/agent/Desktop/mine"}}}}),
            )], [],
            by("is_in_list", {"type": "find_unpacked_extension_path"}, rule(expected=f"{HOME}/Desktop/mine")),
        ),
    ]  # fmt: skip


NAMES = (
    "accessible", "settings", "favourites", "volume", "terminal", "fullscreen", "tabs", "address", "experiments",
    "shortcuts",
    "player", "spacing", "last row", "extension",
)  # fmt: skip


@pytest.mark.proof
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", NAMES)
async def test_a_kind_of_getter_is_judged_as_known(pool: DesktopPool, tmp_path: Path, name: str) -> None:
    if not published.is_here():
        pytest.skip("make osworld-judge")
    kind = next(one for one in kinds() if one.name == name)
    if kind.needs and not shutil.which(kind.needs, path="/usr/bin:/usr/games"):
        pytest.skip(f"{kind.needs} is not here")
    files = []
    for side, config in (("right", kind.right), ("wrong", kind.wrong)):
        task = {"id": side, "instruction": "Do it", "config": config, "evaluator": kind.evaluator}
        (place := tmp_path / f"{side}.json").write_text(json.dumps(task))
        files.append(place)
    ids = store.ids(store.adopt("mine", files, pinned=False))
    plays = await asyncio.gather(*(told(pool, task_id, CLAIM, published=kind.published) for task_id in ids))
    assert [play.faults for play in plays] == [[], []]
    assert plays[0].success, plays[0].detail
    assert not plays[1].success, plays[1].detail
