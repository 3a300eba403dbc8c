"""What a program uses of desktops: `computerrl.Task`, `Desktop`, `desktops` and `play`, by the code of a run."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from actors.cluster.checks.tasks import refuse_unless_fit
from actors.cluster.config import models, suites, tasksets
from actors.cluster.config.schema import SeatsConfig
from actors.desktop.answers import Answer, Prompt, packed_prompt
from actors.desktop.config import ProviderConfig, SandboxConfig, SeatConfig
from actors.desktop.player import MAX_STEPS, Play, Player
from actors.desktop.pool.desktops import BootedDesktop
from actors.desktop.pool.leased import DesktopControl, LeasedDesktop
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.providers.sandbox import shares
from actors.errors import DesktopFault
from actors.replay.config import EVERY, TaskRange
from apis.actions.grammar import RefusedAnswer
from apis.actions.gui import Action, functions_for, line
from apis.actions.spaces import ActionSpace
from apis.observation import Observation
from apis.prompts import Form
from apis.prompts.text import Turn
from apis.tasks import registry as tasks
from apis.tasks.osworld import Task
from apis.tasks.words import TRAIN
from policy.tokenizer import Tokenizer
from runtime.errors import ComputerRLError, ProtocolError

ANSWER_S = 3600.0  # between a turn and its answer; then the episode is given up
LEASE_S = 4 * 3600.0  # a person may take long between two actions
NOT_OPEN = "the desktop is not open: use it in an `async with` block"
BY = "library"  # who gave an answer, in a demonstration


class TaskHandle:
    """The task `FAMILY/SPLIT/NUMBER`, or `SET/DOMAIN/ID` of a task set; `FAMILY` alone is its first task.

    Raises ConfigError with the nearest id.
    """

    def __init__(self, task_id: str) -> None:
        found = task_id if tasks.of_set(task_id) else suites.instance(task_id)
        self.file: Task = tasks.task(found)  # in OSWorld's form: set-up and verifier, too
        self.id = self.file.id
        self.instruction = self.file.instruction
        self.apps = tuple(self.file.related_apps)
        self.feasible = self.file.feasible  # where it is not, giving up is the solution

    def __repr__(self) -> str:
        return f"Task({self.id!r})"

    def oracle(self, seed: int = 0, route: str = "") -> Callable[[Seen], str]:
        """The policy that shows how it is done, by "gui", "api" or "mixed"; without a route `seed` chooses.

        Raises ConfigError for a route that its family does not have, and for a task of a task set.
        """
        oracle = tasks.oracle(self.id, seed, route=route)
        return lambda seen: oracle.answer(seen.observation, seen.history, seen.form)

    @staticmethod
    def listed(suite: str, split: str = TRAIN, *, first: int = 0, count: int = 20) -> list[TaskHandle]:
        """`count` tasks of each family of a suite from number `first` on; or of a task set, a folder or a file.

        A family that is never trained on has held-out tasks only. Raises ConfigError.
        """
        if tasksets.is_of_files(suite):
            found = tasksets.chosen(TaskRange(set=suite, count=EVERY, first=first))[:count]
        else:
            loaded = suites.load(suite)
            names = [name for name in loaded.families if split in suites.splits_of(tasks.FAMILIES[name])]
            found = [task_id for name in names for task_id in loaded.ids(name, split, first, count)]
        return [TaskHandle(task_id) for task_id in found]


def task_of(task: str | TaskHandle) -> TaskHandle:
    """A task by its id, or as it is. Raises ConfigError."""
    return task if isinstance(task, TaskHandle) else TaskHandle(task)


class Seen(msgspec.Struct, frozen=True):
    """What a policy is given at each turn."""

    task: TaskHandle
    step: int  # from 0
    prompt: str  # the task and what shows, as a model reads it
    observation: Observation
    last: str | None  # what came of the action before; None at first
    history: Sequence[Turn]  # the turns before
    form: Form  # of prompt and answer
    screenshot: Callable[[], Awaitable[bytes]]  # a JPEG of the screen
    parse: Callable[[str], Action | RefusedAnswer]  # what an answer would mean now
    prompt_ids: Callable[[Tokenizer], list[int]]  # the whole prompt in a model's tokens
    system: str = ""  # the system message; the compact form has none


# The answer is a model's text or a line, such as `Agent.click(e3)`, or a typed action. It may be awaited.
Policy = Callable[[Seen], str | Action | Awaitable[str | Action]]


class DesktopSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which desktops to boot: `screen` is WIDTHxHEIGHT in pixels, `count` of them at the same time.

    A desktop is taken back `lease_s` seconds after it was handed out.
    """

    screen: str = "1280x720"
    count: int = 1
    provider: ProviderConfig = SandboxConfig()
    lease_s: float = LEASE_S


@asynccontextmanager
async def opened(settings: DesktopSettings, tasks: Sequence[str] = ()) -> AsyncIterator[DesktopPool]:
    """A pool that boots a desktop when it is asked for one; `tasks` are ids that will be played.

    Raises ConfigError.
    """
    seats = SeatsConfig(
        count=settings.count, warm_pool=0, screen=settings.screen, provider=settings.provider, screenshots="none"
    )
    refuse_unless_fit(list(tasks), settings.provider)
    seats = seats.within(shares.free(), "count")
    pool = await DesktopPool.open(seats.of_one_host(settings.lease_s), Path(f"front-{os.getpid()}"))
    try:
        yield pool
    finally:
        await pool.close()


class ActionRefused(ComputerRLError):  # noqa: N818 - named after its condition
    """A line is no action here; the text is the reason that a model would read."""


class ActionResult(msgspec.Struct, frozen=True):
    """What came of an action."""

    line: str  # the action, as a model would write it
    text: str  # what a model would read of it
    claim: bool | None = None  # of `Agent.exit`: done, or given up; None for any other action


class DesktopHandle:
    """A fresh desktop, booted when its block begins and destroyed when it ends.

    `task`, an id or a Task, is set up on it. `actions` limits it to "gui" or "api". Other arguments are fields of
    DesktopSettings, such as `screen="1920x1080"`.

    Every method raises DesktopFault when the infrastructure fails, AgentBrokeDesktop when an action has ended the
    desktop, and ProtocolError outside of the block. Entering it raises ConfigError on a machine without desktops.
    """

    def __init__(self, task: str | TaskHandle = "", *, actions: ActionSpace = "both", **settings: Any) -> None:
        self._task = task_of(task) if task else None
        self._settings = DesktopSettings(**settings)
        self._seat = SeatConfig(action_space=actions, screenshots="none")
        self._held = AsyncExitStack()
        self._desktop: LeasedDesktop | None = None
        self._seen: Observation | None = None

    async def __aenter__(self) -> Self:
        """Boot it, and set the task up: some seconds."""
        async with AsyncExitStack() as held:
            pool = await held.enter_async_context(opened(self._settings, [self._task.id] if self._task else []))
            booted = await pool.acquire(self._seat.lease_timeout_s, holder="library")
            held.callback(pool.retire, booted)
            desktop = LeasedDesktop(booted)
            if self._task is not None:
                await DesktopControl(desktop, self._seat).set_up(self._task.file)
            self._desktop, self._held = desktop, held.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Destroy it."""
        self._desktop = None
        await self._held.aclose()

    async def observe(self) -> Observation:
        """Windows and elements that show now, places in screen pixels."""
        self._seen = await self._control.observe()
        return self._seen

    async def act(self, action: str | Action) -> ActionResult:
        """Carry out a typed action, or a line such as `Agent.click(e3)`, and wait until the desktop rests.

        Names of elements and windows are those of the newest observation. Raises ActionRefused for a line that is no
        action; a function of an application that fails is no error, its result begins with "Failed:".
        """
        seen = self._seen or await self.observe()
        typed = self._control.parse(action if isinstance(action, str) else line(action), seen)
        if isinstance(typed, RefusedAnswer):
            raise ActionRefused(typed.reason)
        text, claim = await self._control.act(typed, seen)
        return ActionResult(line(typed), text, claim)

    async def screenshot(self) -> bytes:
        """The screen as JPEG."""
        return await self._control.screenshot()

    async def functions(self) -> dict[str, str]:
        """What can be called while the window in front is there: name -> signature and description."""
        seen = self._seen or await self.observe()
        found = functions_for(seen.app, self._seat.action_space)
        return {name: f"{function.signature}: {function.description}" for name, function in found.items()}

    async def read_file(self, path: str) -> bytes:
        """A file of at most 4 MiB; `path` is relative to HOME. Raises GuestRefused where there is none."""
        return bytes(await self._open.call("read_file", {"path": path}, self._seat.call_timeout_s))

    async def write_file(self, path: str, data: bytes) -> None:
        """Make or replace a file of at most 4 MiB, and its folders; `path` is relative to HOME. Raises GuestRefused."""
        await self._open.call("write_file", {"path": path, "data": data}, self._seat.call_timeout_s)

    @property
    def home(self) -> str:
        """HOME as its programs see it."""
        return self._open.home

    @property
    def _open(self) -> LeasedDesktop:
        if self._desktop is None:
            raise ProtocolError(NOT_OPEN)
        return self._desktop

    @property
    def _control(self) -> DesktopControl:
        return DesktopControl(self._open, self._seat)


async def play(
    task: str | TaskHandle,
    policy: Policy,
    *,
    max_turns: int = MAX_STEPS,
    form: Form = "compact",
    actions: ActionSpace = "both",
    desktops: DesktopPool | None = None,
    **settings: Any,
) -> Play:
    """Play `task` on a fresh desktop: the verdict, and every step with what was seen, answered and done.

    The policy has `max_turns` answers and ends the episode by `Agent.exit`. Success needs that claim and the verifier.
    `form` is of prompts and answers, "compact" or "published". `settings` are fields of DesktopSettings; `desktops`,
    an open pool, is taken in their place.

    Raises DesktopFault when the infrastructure broke the episode, ConfigError for no such task or a machine without
    desktops, and what the policy raises.
    """
    if desktops is None:
        found = task_of(task)
        async with opened(DesktopSettings(**settings), [found.id]) as pool:
            return await play(found, policy, max_turns=max_turns, form=form, actions=actions, desktops=pool)
    seat = SeatConfig(format=form, action_space=actions, screenshots="none")
    answers = _PolicyAnswers(task_of(task), policy, seat)
    player = Player(desktops, answers.seat, retries=0, desktop=answers.leased)
    played = await player.play(answers.task.id, lambda _: answers, max_turns=max_turns)
    if played.outcome is None:
        fault = played.faults[-1]
        raise DesktopFault(fault.cause, fault.detail, fault.culprit)
    return played


class _PolicyAnswers:
    """The policy as the answerer of one episode; its token ids are the bundled model's."""

    def __init__(self, task: TaskHandle, policy: Policy, seat: SeatConfig) -> None:
        self.task = task
        self.seat = seat
        self._policy = policy
        self._tokenizer = Tokenizer.load(models.bundled())
        self._control: DesktopControl | None = None

    def leased(self, booted: BootedDesktop) -> LeasedDesktop:
        desktop = LeasedDesktop(booted)
        self._control = DesktopControl(desktop, self.seat)
        return desktop

    async def answer(
        self, step: int, prompt: Prompt, observation: Observation, history: list[Turn], last: str | None
    ) -> Answer:
        start = time.monotonic()
        control = self._control
        assert control is not None, "an episode has a desktop before its first turn"
        seen = Seen(
            self.task, step, prompt.user, observation, last, tuple(history), self.seat.format, control.screenshot,
            lambda text: control.parse(text, observation),
            lambda tokenizer: tokenizer.prompt_ids(prompt.user, prompt.system, prompt.earlier),
            prompt.system or "",
        )  # fmt: skip
        said = self._policy(seen)
        answer = await said if inspect.isawaitable(said) else said
        text = answer if isinstance(answer, str) else _written(answer, self.seat.format)
        return Answer(
            text=text,
            prompt_ids=(await packed_prompt(self._tokenizer, prompt)).tolist(),
            response_ids=self._tokenizer.response_ids(text),
            logprobs=[],
            spans=[],
            seconds=time.monotonic() - start,
            by=BY,
        )


def _written(action: Action, form: Form) -> str:
    return line(action) if form == "compact" else f"```python\n{line(action)}\n```"


class EpisodeByTurns:
    """Begins `episode`, a call of `play` that lacks its policy, in a running loop."""

    def __init__(self, episode: Callable[[Policy], Coroutine[Any, Any, Play]], answer_s: float = ANSWER_S) -> None:
        self._answer_s = answer_s
        self._turns: asyncio.Queue[Seen] = asyncio.Queue(1)
        self._answers: asyncio.Queue[str] = asyncio.Queue(1)
        self._played = asyncio.ensure_future(episode(self._ask))

    async def look(self) -> Seen | Play:
        """The next turn, or how the episode ended. Raises what `play` does, and TimeoutError after `ANSWER_S`."""
        turn = asyncio.ensure_future(self._turns.get())
        try:
            await asyncio.wait((turn, self._played), return_when=asyncio.FIRST_COMPLETED)
            return turn.result() if turn.done() else self._played.result()
        finally:
            turn.cancel()

    async def answer(self, text: str) -> Seen | Play:
        self._answers.put_nowait(text)
        return await self.look()

    def end(self) -> None:
        self._played.cancel()

    async def _ask(self, seen: Seen) -> str:
        self._turns.put_nowait(seen)
        async with asyncio.timeout(self._answer_s):
            return await self._answers.get()
