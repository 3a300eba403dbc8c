"""Oracles on real desktops: plays every wanted task by every wanted route, counts what was solved, and judges that.

A fault never counts as an episode that was played, and a family with no play at all is not good.
"""

from __future__ import annotations

import asyncio
import os
import statistics
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from actors.cluster.config import models
from actors.cluster.config.schema import SeatsConfig
from actors.desktop.answers import Answer, Prompt
from actors.desktop.config import PromptConfig
from actors.desktop.player import Answers, Play, Player, demonstrated
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.providers.sandbox import shares
from actors.replay.demos.composition import step_kind
from actors.replay.statistics import Rate
from apis.actions.gui import Exit, line
from apis.actions.spaces import routes_in
from apis.observation import Observation
from apis.prompts.text import Turn
from apis.tasks import registry as tasks
from policy.tokenizer import Tokenizer
from runtime.errors import ConfigError
from runtime.logs.events import Event
from runtime.program import stop_event

RequestT = TypeVar("RequestT")
LAST = 3  # steps of a failure that are shown
SOLVED_LEAST = 0.98  # of what was played, per family and route
FAULTS_MOST = 0.02  # of all episodes begun
# Of an oracle, a task's file or its verifier: what is being checked here, so it counts as a failure of that task.
DEFECTS = (ConfigError, LookupError, ValueError, TypeError, AttributeError)
UNTOUCHED = "untouched"  # the route of a task file: nothing is done, and that is claimed to be all


class ClaimsAtOnce:
    """An answerer that says at once that the task is done."""

    async def answer(
        self, step: int, prompt: Prompt, observation: Observation, history: list[Turn], last: str | None
    ) -> Answer:
        """The claim."""
        claim = f"done\n{line(Exit(success=True))}"
        return Answer(claim, prompt_ids=[], response_ids=[], logprobs=[], spans=[], seconds=0.0)


class TaskRoute(msgspec.Struct, frozen=True):
    """One task by one route."""

    task: str
    route: str

    @property
    def kind(self) -> tuple[str, str, str]:
        """Family, split and route."""
        family, split, _ = self.task.split("/")
        return family, split, self.route


class Result(TaskRoute, frozen=True, kw_only=True):
    """One task as an oracle played it."""

    played: bool  # False: every try was broken by the infrastructure
    success: bool
    reason: str
    detail: str
    steps: int = 0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    faults: list[str] = []  # their causes
    kinds: list[str] = []  # of its steps (actors/replay/demos/composition.py)
    last: list[str] = []  # of a failure: what was done last and what came of it


class Troubles:
    """The pool's log: keeps how often boots failed and what was said last."""

    def __init__(self) -> None:
        self.count = 0
        self.last = ""

    def emit(self, event: Event, *, trace: str | None = None, **fields: object) -> None:
        """Remember warnings."""
        if event.level in ("warning", "error"):
            self.count += 1
            self.last = f"{event.name}: {fields.get('cause', '')} {fields.get('detail', '')}".strip()


async def in_turns(
    requests: Iterable[RequestT],
    seats: SeatsConfig,
    troubles: Troubles,
    one: Callable[[DesktopPool, SeatsConfig, RequestT], Awaitable[None]],
) -> bool:
    """`one` for each of `requests` on the desktops of `seats`, so many at a time.

    Returns False when it was interrupted; what was under way is finished then. Raises ConfigError.
    """
    config = seats.within(shares.free(), "--desktops")
    pool = await DesktopPool.open(config.of_one_host(), Path(f"check-{os.getpid()}"), troubles)
    left = iter(requests)
    try:
        with stop_event() as stop:

            async def seat(todo: Iterator[RequestT]) -> None:
                for request in todo:
                    await one(pool, config, request)
                    if stop.is_set():
                        return

            async with asyncio.TaskGroup() as group:
                for _ in range(seats.count):
                    group.create_task(seat(left))
            return not stop.is_set()
    finally:
        await pool.close()


async def check(
    requests: Sequence[TaskRoute],
    seats: SeatsConfig,
    heard: Callable[[Result, Troubles], None],
    *,
    published_metrics: bool = False,
) -> bool:
    """Play `requests` as `in_turns` does; `heard` gets each result as it comes. Raises ConfigError."""
    tokenizer, troubles = Tokenizer.load(models.locate("")), Troubles()

    async def one(pool: DesktopPool, config: SeatsConfig, request: TaskRoute) -> None:
        seat = msgspec.structs.replace(config.seat(PromptConfig()), published_metrics=published_metrics)
        heard(await _one(Player(pool, seat), request, tokenizer), troubles)

    return await in_turns(requests, seats, troubles, one)


async def _one(player: Player, request: TaskRoute, tokenizer: Tokenizer) -> Result:
    answers: Answers = lambda _: ClaimsAtOnce()  # noqa: E731
    seed = 0
    if request.route != UNTOUCHED:
        answers = demonstrated(tokenizer, route=request.route)
        seed = int(request.task.rpartition("/")[2])
    try:
        play = await player.play(request.task, answers, route=request.route, seed=seed)
    except DEFECTS as error:
        detail = f"{type(error).__name__}: {error}"
        return Result(
            task=request.task, route=request.route, played=True, success=False, reason="defect", detail=detail
        )
    return Result(
        task=request.task,
        route=request.route,
        played=play.outcome is not None,
        success=play.success,
        reason=play.outcome.reason if play.outcome else "fault",
        detail=play.detail,
        steps=len(play.steps),
        wall_s=play.wall_s,
        cpu_s=play.cpu_s,
        faults=[fault.cause for fault in play.faults],
        kinds=[step_kind(step) for step in play.steps],
        last=[] if play.success else _last(play),
    )


def _last(play: Play) -> list[str]:
    return [f"{step.response.splitlines()[-1][:160]} -> {(step.result or '')[:160]}" for step in play.steps[-LAST:]]


def requests_for(ids: dict[str, list[str]], routes: tuple[str, ...]) -> list[TaskRoute]:
    """Every id of every family by every route it has among `routes`; () is any.

    They are so ordered that all families advance together.
    """
    columns = [
        [TaskRoute(task_id, route) for task_id in listed]
        for family, listed in ids.items()
        for route in routes_in("both", tasks.FAMILIES[family].routes)
        if not routes or route in routes
    ]
    longest = max(map(len, columns), default=0)
    return [column[place] for place in range(longest) for column in columns if place < len(column)]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one family, split and route."""

    family: str
    split: str
    route: str
    wanted: int
    played: int
    solved: int
    interval: tuple[float, float]  # Wilson, 95 %
    faults: int
    steps: float | None  # mean
    wall_s: float | None  # median
    cpu_s: float | None  # median, of the guest's processes

    @property
    def good(self) -> bool:
        """Enough of what was played is solved."""
        return self.played > 0 and self.solved >= SOLVED_LEAST * self.played


def row(kind: tuple[str, str, str], results: Iterable[Result], wanted: int) -> Row:
    """The figures of those of `results` that are of this family, split and route."""
    mine = [result for result in results if result.kind == kind]
    played = [result for result in mine if result.played]
    rate = Rate(sum(result.success for result in played), len(played))
    return Row(
        family=kind[0],
        split=kind[1],
        route=kind[2],
        wanted=wanted,
        played=rate.n,
        solved=rate.successes,
        interval=rate.interval,
        faults=sum(len(result.faults) for result in mine),
        steps=statistics.fmean(result.steps for result in played) if played else None,
        wall_s=statistics.median(result.wall_s for result in played) if played else None,
        cpu_s=statistics.median(result.cpu_s for result in played) if played else None,
    )


def complaints(rows: Iterable[Row]) -> list[str]:
    """Why the suite is not good; empty when it is."""
    wrong = []
    faults = episodes = 0
    for one in rows:
        faults += one.faults
        episodes += one.played + one.faults
        what = f"{one.family} {one.split} by {one.route}"
        if not one.played:
            wrong.append(f"{what}: nothing was played")
        elif one.played < one.wanted:
            wrong.append(f"{what}: {one.played} of {one.wanted} played")
        elif not one.good:
            wrong.append(f"{what}: {one.solved} of {one.played} solved, {SOLVED_LEAST:.0%} is the least")
    if episodes and faults / episodes > FAULTS_MOST:
        wrong.append(f"{faults} faults in {episodes} episodes begun: {FAULTS_MOST:.0%} is the most")
    return wrong
