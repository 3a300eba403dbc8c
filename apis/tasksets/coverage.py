"""What a task file needs that is not here: one answer for every command.

Invariant: pure. The plans that are played are made here too, so a task that lacks nothing has a plan for each step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

from apis.plans.action import Call
from apis.tasks.metrics.metric import lacking_rule
from apis.tasks.metrics.registry import METRICS
from apis.tasks.osworld import HOME, Evaluator, Getter, Step, Task
from apis.tasksets import commands, getters, judge, offline
from apis.tasksets.fixtures import called
from apis.tasksets.needs import Lacking, Need, Verdict, verdict_of
from apis.tasksets.package import LEFT_METRICS, REFUSED_METRICS
from apis.tasksets.steps import calls_of, carried, sound_server

AtHand = Callable[[str, str], bool]  # whether the fixture of this URL and name is at hand
Present = Callable[[str], bool]  # whether a program is here
# Applications that a task file names, and the program that each needs.
NAMED = {
    "gimp": "gimp", "thunderbird": "thunderbird", "vscode": "code", "vs_code": "code", "vlc": "vlc", "picard": "picard",
    "ubuntu_media_player": "vlc", "chrome": "chromium", "browser": "chromium", "pdf": "evince", "image": "eog",
    "excel": "soffice", "word": "soffice", "powerpoint": "soffice",
}  # fmt: skip
BROWSERS = ("tabs", "visited")  # calls of the guest's agent that need Chromium
PUBLISHED = "the published package (make osworld-judge)"


class Covered(msgspec.Struct, frozen=True):
    """A task file's verdict and what it needs."""

    id: str
    verdict: Verdict
    needs: list[Need]
    judge: Literal["here", "published"] = "here"  # who says whether it is solved
    offline: str = ""  # why no policy can solve it without a network; "" where nothing says so
    notes: list[str] = []

    @property
    def solvable(self) -> bool:
        """Whether it can be played here, and nothing says that it can't be solved."""
        return self.verdict == "runnable" and not self.offline


def covered(task: Task, at_hand: AtHand, present: Present, *, published: bool = False) -> Covered:
    """The verdict on `task`, given which fixtures are at hand and which programs are present.

    With `published` the published package judges what no metric here does.
    """
    needs = sorted(set(lacks(task, at_hand, present, published=published)))
    left = [row[0] for row in _rows(task) if row[0] not in REFUSED_METRICS and not judge.native(*row)]
    notes = [f"{name} (published): {LEFT_METRICS[name].weak}" for name in left if _weak(name)]
    if task.proxy:
        notes.append("the published desktops reach pages by a proxy, these reach none")
    verdict = verdict_of(needs)
    return Covered(task.id, verdict, needs, "published" if left else "here", offline.reason(task), notes)


def _rows(task: Task) -> list[tuple[str, Getter, Getter, Getter]]:
    return task.evaluator.rows() if task.feasible else []


def _weak(name: str) -> bool:
    return name in LEFT_METRICS and bool(LEFT_METRICS[name].weak)


def lacks(task: Task, at_hand: AtHand, present: Present, *, published: bool = False) -> Iterator[Need]:
    """Each thing that `task` needs and that is not here."""
    for step in task.config:
        yield from _step(step, at_hand, present)
    yield from (Need("application", name) for name in _absent(sound_server(task), present))
    for name in task.related_apps:
        program = NAMED.get(name.lower().replace("libreoffice ", "libreoffice_"))
        if program and not present(program):
            yield Need("application", program)
    if not task.feasible:
        return
    for step in task.evaluator.postconfig:
        yield from _step(step, at_hand, present)
    yield from _judging(task.evaluator, at_hand, present, published=published)
    if offline.empty_at_start(task):
        yield Need("network", "what pages leave in the browser, since the set-up opens them")


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
    named |= {"chromium" for call in calls if call.method in BROWSERS or call.args.get("owner") == "BrowserTools"}
    return sorted(name for name in named if not present(name))


def _metric(name: str, result: Getter, expected: Getter, options: Getter, *, published: bool) -> Iterator[Need]:
    """What one function of an evaluator needs."""
    if judge.native(name, result, expected, options):
        return
    rule = expected.get("rules")
    if name in LEFT_METRICS:
        if unknown := lacking_rule(frozenset(LEFT_METRICS[name].types), rule) or lacking_rule(frozenset(), options):
            yield Need("metric", f"{name}: {unknown}")
        elif not published:
            yield Need("judge", f"{PUBLISHED} for {name}")
    elif name in REFUSED_METRICS:
        yield Need("metric", f"{name}: {REFUSED_METRICS[name]}")
    elif name not in METRICS:
        yield Need("metric", name)
    elif getters.left(result) or getters.left(expected) or METRICS[name].lacks(options):
        if unknown := lacking_rule(METRICS[name].types, rule):
            yield Need("metric", f"{name}: {unknown}")
        elif not published:
            yield Need("judge", f"{PUBLISHED} for {name}")
    else:
        yield Need("metric", f"{name}: {METRICS[name].lacking(options, rule)}")


def _judging(evaluator: Evaluator, at_hand: AtHand, present: Present, *, published: bool) -> Iterator[Need]:
    for row in evaluator.rows():
        yield from _metric(*row, published=published)
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
    return {
        "id": found.id,
        "verdict": found.verdict,
        "solvable": found.solvable,
        "judge": found.judge,
        "needs": [str(need) for need in found.needs],
        "offline": found.offline,
        "notes": found.notes,
    }
