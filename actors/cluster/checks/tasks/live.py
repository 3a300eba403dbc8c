"""Oracles on real desktops: every wanted task by every wanted route.

Invariant: each task and route is played at most once to an outcome. Faults are told from outcomes. All desktops are
gone when it returns.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from actors.cluster.checks.tasks.tally import Result
from actors.cluster.config import models
from actors.cluster.config.schema import SeatsConfig
from actors.desktop.answers import Answer, Prompt
from actors.desktop.config import PromptConfig, ProviderConfig, SandboxConfig
from actors.desktop.player import MAX_STEPS, Play, Player, demonstrated
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.providers.sandbox import shares
from apis.actions.gui import Exit, line
from apis.actions.spaces import ActionSpace, routes_in
from apis.observation import Observation
from apis.prompts import Form
from apis.prompts.text import Turn
from apis.tasks import registry as tasks
from policy.tokenizer import Tokenizer
from runtime.errors import ConfigError
from runtime.logs.events import Event
from runtime.program import stop_event

LAST = 3  # steps of a failure that are shown
# Of an oracle, a task's file or its verifier: what is being checked here, so it counts as a failure of that task.
DEFECTS = (ConfigError, LookupError, ValueError, TypeError, AttributeError)


UNTOUCHED = "untouched"  # the route of a task file: nothing is done, and that is claimed to be all


class ClaimsAtOnce:
    """An answerer that says at once that the task is done."""

    def __init__(self, form: Form) -> None:
        done = line(Exit(success=True))
        self._text = f"done\n{done}" if form == "compact" else f"<think>done</think>\n```python\n{done}\n```"

    async def answer(
        self, step: int, prompt: Prompt, observation: Observation, history: list[Turn], last: str | None
    ) -> Answer:
        """The claim."""
        return Answer(self._text, prompt_ids=[], response_ids=[], logprobs=[], spans=[], seconds=0.0)


class TaskRoute(msgspec.Struct, frozen=True):
    """One task by one route."""

    task: str
    route: str


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How to play."""

    seats: int = 2
    noise: float = 0.0  # how often an oracle takes a harmless wrong step and recovers
    form: Form = "compact"
    actions: ActionSpace = "both"
    max_steps: int = MAX_STEPS
    provider: ProviderConfig = SandboxConfig()
    published_metrics: bool = False


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


async def check(
    requests: list[TaskRoute], settings: Settings, heard: Callable[[Result, Troubles], None], out: IO[str] | None = None
) -> bool:
    """Play `requests`; `heard` is told each result as it comes, `out` gets it as a line of JSON.

    Returns False when it was interrupted; what was under way is finished then. Raises ConfigError.
    """
    tokenizer = Tokenizer.load(models.locate(""))
    seats = SeatsConfig(
        count=settings.seats, warm_pool=min(2, settings.seats), screenshots="none", provider=settings.provider
    )
    seats = seats.within(shares.free(), "--desktops")
    prompt = PromptConfig(format=settings.form, action_space=settings.actions)
    troubles = Troubles()
    pool = await DesktopPool.open(seats.of_one_host(), Path(f"check-{os.getpid()}"), troubles)
    try:
        seat_config = msgspec.structs.replace(seats.seat(prompt), published_metrics=settings.published_metrics)
        player = Player(pool, seat_config)
        left = iter(requests)
        with stop_event() as stop:

            async def seat(todo: Iterator[TaskRoute]) -> None:
                for request in todo:
                    result = await _one(player, request, tokenizer, settings)
                    heard(result, troubles)
                    if out is not None:
                        out.write(msgspec.json.encode(result).decode() + "\n")
                        out.flush()
                    if stop.is_set():
                        return

            async with asyncio.TaskGroup() as group:
                for _ in range(settings.seats):
                    group.create_task(seat(left))
            return not stop.is_set()
    finally:
        await pool.close()


async def _one(player: Player, request: TaskRoute, tokenizer: Tokenizer, settings: Settings) -> Result:
    answers = demonstrated(
        tokenizer, form=settings.form, route=request.route, noise=settings.noise, space=settings.actions
    )
    family, split, number = request.task.split("/")
    if request.route == UNTOUCHED:
        answers, number = (lambda _: ClaimsAtOnce(settings.form)), "0"
    try:
        play = await player.play(
            request.task, answers, route=request.route, seed=int(number), max_turns=settings.max_steps
        )
    except DEFECTS as error:
        said = f"{type(error).__name__}: {error}"
        return Result(
            task=request.task, family=family, split=split, route=request.route, played=True, success=False,
            reason="defect", detail=said, steps=0, wall_s=0.0, cpu_s=0.0, faults=[], prompt_chars=0,
        )  # fmt: skip
    return Result(
        task=request.task,
        family=family,
        split=split,
        route=request.route,
        played=play.outcome is not None,
        success=play.success,
        reason=play.outcome.reason if play.outcome else "fault",
        detail=play.detail,
        steps=len(play.steps),
        wall_s=play.wall_s,
        cpu_s=play.cpu_s,
        faults=[fault.cause for fault in play.faults],
        prompt_chars=max((len(step.observation) for step in play.steps), default=0),
        last=[] if play.success else last_lines(play),
    )


def last_lines(play: Play) -> list[str]:
    """What was done in the last steps and what the model was told of it."""
    return [f"{step.response.splitlines()[-1][:160]} -> {(step.result or '')[:160]}" for step in play.steps[-LAST:]]


def requests_for(ids: dict[str, list[str]], routes: tuple[str, ...], space: ActionSpace = "both") -> list[TaskRoute]:
    """Every id of every family by every route it has among `routes` and within `space`.

    They are so ordered that all families advance together.
    """
    columns = [
        [TaskRoute(task_id, route) for task_id in listed]
        for family, listed in ids.items()
        for route in routes_in(space, tasks.FAMILIES[family].routes)
        if not routes or route in routes
    ]
    longest = max(map(len, columns), default=0)
    return [column[place] for place in range(longest) for column in columns if place < len(column)]
