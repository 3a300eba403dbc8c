"""Each kind of step of published task files: what is right, two near misses, garbage and another name, as known."""

from __future__ import annotations

from typing import Any, NamedTuple, get_args

import pytest

from apis.plans.action import Call
from apis.tasks import osworld
from apis.tasks.osworld import HOME, UnknownStep, data_url
from apis.tasksets.package import Lacking
from apis.tasksets.steps import calls_of
from tests.apis.task_files import Part, loaded
from tests.apis.test_task_files import GUEST

LACKS = {"googledrive": "account", "login": "account"}
SCREEN = (1920, 1080)


class Twin(NamedTuple):
    """A step: parameters, and what the calls that it becomes say; near misses become others, or lack something."""

    kind: str
    right: dict[str, Any]
    said: list[Any]
    near: list[tuple[dict[str, Any], list[Any] | str]]
    garbage: dict[str, Any]


def file(path: str, url: str = data_url(b"x")) -> Part:
    return {"files": [{"url": url, "path": path}]}


def command(*words: str) -> dict[str, Any]:
    return {"command": list(words)}


def run(kind: str) -> Twin:
    """A command that is waited for, under either of its names."""
    near: list[tuple[dict[str, Any], list[Any] | str]] = [
        (command("sudo", "ls"), "root"),
        (command("ls", f"{HOME}er"), [["ls", f"{HOME}er"]]),
        (command("ls", "|", "wc"), [["/bin/bash", "-c", "ls | wc"]]),
    ]
    return Twin(kind, command("ls", f"{HOME}/a"), [["ls", f"{GUEST}/a"]], near, {"command": 5})


def visits(*ago_s: Any, **more: Any) -> dict[str, Any]:
    """A page that was visited so many seconds ago, once for each."""
    page = {"url": "https://a.org/", "title": "A"}
    return {"history": [page | {"visit_time_from_now_in_seconds": each} | more for each in ago_s]}


def window(kind: str, *keys: Any) -> Twin:
    near: list[tuple[dict[str, Any], list[Any] | str]] = [
        ({"window_name": "a - Calc"}, ["a - Calc", *keys]),
        ({"window_name": "Google Chrome"}, ["Chromium", *keys]),
        ({"window_name": "a.py - Visual Studio Code"}, ["code", *keys]),
    ]
    return Twin(kind, {"window_name": "a", "strict": not keys}, ["a", *keys], near, {"window": "a"})


NOT_HERE: list[tuple[dict[str, Any], list[Any] | str]] = [
    (file("a.txt", "https://x.org/a.odt"), "fixture"),
    (file("/etc/a"), "root"),
]
TWINS = [
    Twin("download", file("a.txt"), ["a.txt"], NOT_HERE, {"files": 5}),
    Twin(
        "open",
        {"path": f"{HOME}/a.png"},
        [["eog", f"{GUEST}/a.png"]],
        [({"path": f"{HOME}/a.pdf"}, [["evince", f"{GUEST}/a.pdf"]]), ({"path": "/usr/a.png"}, "root")],
        {"path": ["a"]},
    ),
    Twin(
        "launch",
        command("google-chrome", "--remote-debugging-port=1"),
        [["chromium"]],
        [(command("socat", "x"), []), (command("gnome-control-center"), "application")],
        {"command": {}},
    ),
    run("execute"),
    run("command"),
    Twin("sleep", {"seconds": 2}, [], [({"seconds": 0}, []), ({"seconds": 9}, [])], {"seconds": "soon"}),
    window("activate_window"),
    window("close_window", ["alt", "f4"]),
    Twin(
        "chrome_open_tabs",
        {"urls_to_open": ["chrome://settings"]},
        [["chrome://settings"]],
        [({"urls_to_open": ["https://x.org"]}, [["https://x.org"]]), ({"urls_to_open": []}, [])],
        {"urls_to_open": "chrome://settings"},
    ),
    Twin(
        "chrome_close_tabs",
        {"urls_to_close": ["chrome://settings"]},
        [["not chrome://settings"]],
        [({"urls_to_close": ["about:blank"]}, [["not about:blank"]]), ({"urls_to_close": []}, [])],
        {"urls_to_close": 5},
    ),
    Twin(
        "update_browse_history",
        visits(3600),
        [[["https://a.org/", "A", 3600]]],
        [
            (visits(0, 0.5), [[["https://a.org/", "A", 0], ["https://a.org/", "A", 0.5]]]),
            (visits(), []),
            (visits(-1), "step"),
            (visits(1e9), "step"),
            (visits(1, url=""), "step"),
            (visits(1, url="x" * 2049), "step"),
            (visits(1, visit_count=2), "step"),
            (visits(*range(501)), "step"),
            ({"history": {"url": "a"}}, "step"),
        ],
        {"history": [{"url": "https://a.org/", "title": "A"}]},
    ),
]


def becomes(kind: str, parameters: dict[str, Any]) -> list[Any] | str:
    """What the step's calls name, or the kind of what it lacks."""
    (step,) = loaded(config=[{"type": kind, "parameters": parameters}]).config
    try:
        return [_said(call) for call in calls_of(step, GUEST, screen=SCREEN) if call.method != "settle" and _said(call)]
    except Lacking as lacking:
        return lacking.need.kind


def _said(call: Call) -> Any:
    if call.method == "tabs":
        return [*call.args["opened"], *(f"not {url}" for url in call.args["closed"])]
    return next((call.args[key] for key in ("argv", "path", "visits", "title", "keys") if key in call.args), None)


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.kind)
def test_a_step_becomes_what_is_known(twin: Twin) -> None:
    assert becomes(twin.kind, twin.right) == twin.said
    assert [becomes(twin.kind, parameters) for parameters, _ in twin.near] == [said for _, said in twin.near]
    assert becomes(twin.kind, twin.garbage) == "step"
    assert becomes(f"{twin.kind}s", twin.right) == "step"


def test_every_kind_of_step_has_a_twin_or_lacks_something() -> None:
    kinds = {kind.__struct_config__.tag for kind in get_args(osworld.Step) if kind is not UnknownStep}
    assert kinds - {twin.kind for twin in TWINS} == set()
    assert {kind: becomes(kind, {}) for kind in LACKS} == LACKS
