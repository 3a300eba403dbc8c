"""What a task file needs that is not here: one answer for every command.

Invariant: pure. The plans that are played are made here too, so a task that lacks nothing has a plan for each step.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from typing import Any

import msgspec

from apis.plans.action import Call
from apis.tasks.metrics.registry import METRICS
from apis.tasks.osworld import HOME, Evaluator, Step, Task
from apis.tasksets import commands, getters
from apis.tasksets.fixtures import called
from apis.tasksets.needs import Lacking, Need, Verdict, verdict_of
from apis.tasksets.steps import calls_of, carried

AtHand = Callable[[str, str], bool]  # whether the fixture of this URL and name is at hand
Present = Callable[[str], bool]  # whether a program is here
# Applications that a task file names, and the program that each needs.
NAMED = {
    "gimp": "gimp", "thunderbird": "thunderbird", "vscode": "code", "vs_code": "code", "vlc": "vlc", "picard": "picard",
    "ubuntu_media_player": "vlc", "chrome": "chromium", "browser": "chromium", "pdf": "evince", "image": "eog",
    "excel": "soffice", "word": "soffice", "powerpoint": "soffice",
}  # fmt: skip
BROWSERS = ("tabs", "visited")  # calls of the guest's agent that need Chromium
PAGES = ("is_expected_tabs", "is_expected_active_tab", "is_expected_search_query")


class Covered(msgspec.Struct, frozen=True):
    """A task file's verdict and what it needs."""

    id: str
    verdict: Verdict
    needs: list[Need]


def covered(task: Task, at_hand: AtHand, present: Present, tail: Container[str] = ()) -> Covered:
    """The verdict on `task`, given which fixtures are at hand and which programs are present.

    `tail` has the published metrics that judge what the ones here do not.
    """
    needs = sorted(set(lacks(task, at_hand, present, tail)))
    return Covered(task.id, verdict_of(needs), needs)


def lacks(task: Task, at_hand: AtHand, present: Present, tail: Container[str] = ()) -> Iterator[Need]:
    """Each thing that `task` needs and that is not here."""
    for step in task.config:
        yield from _step(step, at_hand, present)
    for name in task.related_apps:
        program = NAMED.get(name.lower().replace("libreoffice ", "libreoffice_"))
        if program and not present(program):
            yield Need("application", program)
    if not task.feasible:
        return
    evaluator = task.evaluator
    for step in evaluator.postconfig:
        yield from _step(step, at_hand, present)
    yield from _judging(evaluator, at_hand, present, tail)
    if task.proxy:
        yield Need("network", "web pages by a proxy")


def _step(step: Step, at_hand: AtHand, present: Present) -> Iterator[Need]:
    missing: list[str] = []

    def fixture(url: str, name: str) -> bytes:
        try:
            return carried(url)
        except Lacking:
            if not at_hand(url, name):
                missing.append(called(url, name))
            return b""

    try:
        calls = calls_of(step, HOME, fixture)
    except Lacking as lacking:
        yield lacking.need
    else:
        yield from (Need("application", name) for name in _absent(calls, present))
    yield from (Need("fixture", one) for one in missing)


def _absent(calls: list[Call], present: Present) -> list[str]:
    """Programs of `calls` that are not present; a path leads to what the task brings along."""
    started = (call.args["argv"] for call in calls if "argv" in call.args)
    named = {name for argv in started if not argv[0].startswith((".", "/home")) for name in commands.programs_of(argv)}
    named |= {"chromium" for call in calls if call.method in BROWSERS}
    return sorted(name for name in named if not present(name))


def _judging(evaluator: Evaluator, at_hand: AtHand, present: Present, tail: Container[str]) -> Iterator[Need]:
    for name, _, expected, options in evaluator.rows():
        if name not in METRICS:
            if name not in tail:
                yield Need("metric", name)
        elif name not in tail and (lacking := METRICS[name].lacks(options)):
            yield Need("metric", f"{name}: {lacking}")
        if name in PAGES or (name == "is_vlc_playing" and dict(expected.get("rules", {})).get("type") == "url"):
            yield Need("network", f"pages for {name}")
    for getter in getters.sides(evaluator):
        try:
            getters.refuse_lacking(getter)
        except Lacking as lacking:
            yield lacking.need
            continue
        yield from (Need("fixture", called(*one)) for one in getters.fixtures_of(getter) if not at_hand(*one))
    try:
        asked = getters.commands_of(evaluator, HOME)
    except Lacking as lacking:
        yield lacking.need
        return
    yield from (Need("application", name) for name in _absent(asked, present))


def row(found: Covered) -> dict[str, Any]:
    """As `tasks check --json` prints it."""
    return {"id": found.id, "verdict": found.verdict, "needs": [str(need) for need in found.needs]}
