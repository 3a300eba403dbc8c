"""What an episode is played on: a desktop that is set up, looked at, acted on, then frozen and judged from outside.

A verdict is made of what lies in HOME after the freeze. A fault of the infrastructure is raised as DesktopFault and is
no verdict.

A scene may be made of what is remembered, until something is not. A desktop is leased at most once, by the first look,
action or verdict that is not remembered. The actions so far are carried out on it first, and each screen and result is
compared. What comes otherwise is a fault, and its line is dropped. No fault is remembered. A scene without a desktop
waits for what another scene's desktop is about to show after the same actions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TypeVar

import msgspec

from actors.desktop.config import SeatConfig
from actors.desktop.memo import Memo, by_place
from actors.desktop.memo_file import Key
from actors.desktop.pool.leased import FAILED, DesktopControl, Frozen, LeasedDesktop
from actors.desktop.recorder import EndState
from actors.errors import AgentBrokeDesktop, DesktopFault
from actors.replay.messages import Lane, Reservation
from apis.actions.gui import Action, line
from apis.observation import Observation
from apis.plans.action import plan
from apis.tasks.osworld import Task
from apis.tasks.registry import judged, of_set, sought
from apis.tasks.registry import task as task_of
from apis.tasks.registry import wanted as wanted_of_family
from apis.tasks.verify.manifest import Manifest
from apis.tasks.verify.verify import Read, TaskVerdict, WantedFile
from apis.tasksets import store
from apis.tasksets.judge import NOTHING, Judging, afterwards, asked_live, told_as_published
from apis.tasksets.judge import wanted as wanted_by_metrics
from apis.tasksets.published import PublishedError

SAVED_MS = 10_000  # the longest wait for what a task file's keys save
# A verdict of the published package may wait for minutes: it has threads of its own, or no other work would find one.
PUBLISHED = ThreadPoolExecutor(max_workers=2, thread_name_prefix="published")


async def judged_apart(
    task: Task,
    read: Read,
    before: Manifest,
    after: Manifest,
    outputs: Mapping[str, str],
    *,
    published_metrics: bool,
    strict: bool,
) -> TaskVerdict:
    """The verdict of `judged`, in a thread: the event loop goes on meanwhile. Raises ConfigError."""
    how = partial(judged, published_metrics=published_metrics, strict=strict)
    threads = PUBLISHED if published_metrics else None
    return await asyncio.get_running_loop().run_in_executor(threads, how, task, read, before, after, outputs)


def wanted_of(task: Task, before: Manifest) -> list[WantedFile]:
    """The files that the verifier of `task` reads; `before` is HOME after the set-up.

    Raises ConfigError where a path is lacking.
    """
    return wanted_by_metrics(task) if of_set(task.id) else wanted_of_family(task, before)


class Judged(msgspec.Struct, frozen=True):
    """A verdict, its sentence, and what it was made of where that can be kept."""

    verdict: TaskVerdict
    detail: str
    end: EndState | None = None


class DesktopScene(DesktopControl):
    """One leased desktop, for one episode. `RememberedScene` has the same methods."""

    remembered = False  # no desktop has taken part in the last look, action or verdict

    def __init__(self, work: Reservation, desktop: LeasedDesktop, config: SeatConfig) -> None:
        super().__init__(desktop, config)
        self._work = work
        self._task: Task = task_of(work.task)
        self._before = Manifest()  # of HOME after the set-up

    async def prepare(self) -> None:
        """Set the task up, and note what HOME holds then."""
        await self.set_up(self._task)
        if self._task.feasible:
            self._before = await self._desktop.manifest(self._config.verify_timeout_s, sought(self._task))

    async def reach_verdict(self) -> None:
        """A desktop can be judged at any time."""

    async def judged(self) -> Judged:
        """Freeze it and judge its files. Raises AgentBrokeDesktop, DesktopFault, ConfigError."""
        judging = self._judging() if of_set(self._task.id) else NOTHING
        outputs = await self._live(judging)
        wanted = wanted_of(self._task, self._before)
        seen = await self._desktop.frozen_files(wanted, self._config.verify_timeout_s, judging)
        outputs |= {name: told_as_published(out, self._desktop.home) for name, out in seen.outputs.items()}
        verdict = await self._verdict(seen, outputs)
        end = None
        if seen.files is not None:
            end = EndState(seen.files, self._before, seen.manifest, self._desktop.home, outputs)
        return Judged(verdict, asked_live(verdict.reason, judging.asked), end)

    async def _verdict(self, seen: Frozen, outputs: dict[str, str]) -> TaskVerdict:
        """The verdict; other seats go on meanwhile. Raises DesktopFault where the task or its verifier is at fault."""
        if seen.trouble:
            return TaskVerdict(False, seen.trouble)
        asked = self._config.published_metrics
        try:
            return await judged_apart(
                self._task,
                seen.read,
                self._before,
                seen.manifest,
                outputs,
                published_metrics=asked,
                strict=self._work.lane is not Lane.EVAL and not asked,
            )
        except PublishedError as error:
            raise DesktopFault("not_judged", str(error), "verifier") from error

    def _judging(self) -> Judging:
        """What a task file asks for after the last action. Raises ConfigError."""
        at, fixture = self._desktop, store.Fixtures(self._task).content
        return afterwards(self._task, at.home, fixture, at.screen, outside=at.tries)

    async def _live(self, judging: Judging) -> dict[str, str]:
        """Carry out what the desktop itself must do or say; what its commands wrote, by name.

        A step that the guest refuses, as of a window that the policy has closed, is left out: the files decide.
        """
        calls = [call if call.optional is not None else replace(call, optional=0) for call in judging.live]
        answers = await self.carry_out(calls, self._config.setup_timeout_s)
        if any(call.method == "hotkey" for call in calls):  # what it saves is written late by a busy machine
            await self._desktop.call("settle", {"timeout_ms": SAVED_MS, "quiet_ms": 300}, self._config.setup_timeout_s)
        kept = {
            call.kept: answer for call, answer in zip(calls, answers, strict=True) if call.kept and answer is not None
        }
        return {name: told_as_published(answer.out, self._desktop.home) for name, answer in kept.items()}


JUDGED = b"judged"  # behind the key of what waits for a verdict
PICTURED = b"pictured"  # or for a picture
NOT_REMEMBERED = "not_remembered"  # cause of a fault where no desktop may be booted
DISAGREES = "memo_disagrees"
Known = TypeVar("Known")
Lease = Callable[[], Awaitable[DesktopScene]]  # a scene on a desktop, not yet prepared


class RememberedScene:
    """What is remembered of `task`; `lease` gives a desktop when it is needed, and `back` is called after that."""

    def __init__(self, task: str, memo: Memo, lease: Lease, back: Callable[[], None] = lambda: None) -> None:
        self._task = task
        self._memo = memo
        self._lease = lease
        self._back = back
        self._key = memo.root(task)
        # What was shown, done and answered so far; an episode bounds it.
        self._trail: list[tuple[Observation, Action, str]] = []
        self._seen: Observation | None = None  # what the memo has shown since the last action
        self._real: DesktopScene | None = None
        self._shown: Observation | None = None  # by the desktop, since its last action
        self._verdict: TaskVerdict | None = None
        self._expected: Key | None = None  # what other scenes may wait for
        self.remembered = True

    async def prepare(self) -> None:
        """Nothing, where the first screen is remembered. Raises as `DesktopScene` does."""
        if await self._known(self._key, self._memo.seen) is None:
            await self._desktop()

    async def observe(self) -> Observation:
        if (shown := await self._known(self._key, self._memo.seen)) is not None:
            self.remembered, self._seen = True, shown
            return shown
        real = await self._desktop()
        self.remembered = False
        if self._shown is None:
            self._shown = await real.observe()
            self._memo.keep(self._key, self._task, seen=self._shown)
        else:
            self._shown = await real.observe()  # once more after an answer that was refused
        self.ended()
        return self._shown

    async def picture(self) -> bytes:
        """The screen that `observe` has just shown, as PNG. Raises as `DesktopScene` does."""
        if (known := await self._known(self._key + PICTURED, lambda _: self._memo.picture(self._key))) is not None:
            return known
        taken = await (await self._desktop()).picture()
        self.remembered = False
        self._memo.keep(self._key, self._task, picture=taken)
        self.ended()
        return taken

    async def act(self, action: Action, observation: Observation) -> tuple[str, bool | None]:
        todo = plan(action, observation)
        if todo.ends is not None:  # it asks nothing of a desktop
            return todo.result, todo.ends
        key = self._memo.after(self._key, line(action))
        if (answered := await self._known(key, self._memo.result)) is not None:
            self._trail.append((by_place(observation), action, answered))
            self._key, self._seen = key, None
            return answered, None
        real = await self._desktop()
        self.remembered = False
        answered, ends = await real.act(action, observation if self._shown is None else self._shown)
        self._trail.append((by_place(observation), action, answered))
        self._key, self._shown = key, None
        if not answered.startswith(FAILED):  # it may be of a slow program: another desktop may do it
            self._memo.keep(key, self._task, result=answered)
        return answered, ends

    async def screenshot(self) -> bytes | None:
        return None if self._real is None else await self._real.screenshot()

    async def reach_verdict(self) -> None:
        """Lease a desktop where the verdict is not remembered."""
        self._verdict = await self._known(self._key + JUDGED, lambda _: self._memo.verdict(self._key))
        if self._real is None and self._verdict is None:
            await self._desktop()

    async def judged(self) -> Judged:
        if self._verdict is not None:
            return Judged(self._verdict, self._verdict.reason)
        self.remembered = False
        judged = await (await self._desktop()).judged()
        if judged.end is not None or judged.verdict.success:
            self._memo.keep(self._key, self._task, verdict=judged.verdict)
        self.ended()
        return judged

    async def _known(self, key: Key, of: Callable[[Key], Known | None]) -> Known | None:
        """What `of` knows of `key`, now or once another scene's desktop has shown it; None means that this one's will.

        A scene that has a desktop asks that.
        """
        if self._real is None:
            while (known := of(key)) is None and await self._memo.awaited(key):
                continue  # what was awaited has come, or its desktop has gone and the first to ask takes its place
            if known is not None:
                return known
        if self._expected != key:  # a result and the screen after it have one key: the screen is still to come
            self.ended()
        if self._memo.expect(key):
            self._expected = key
        return None

    def ended(self) -> None:
        """No other scene waits for this one any longer."""
        if self._expected is not None:
            self._memo.settle(self._expected)
            self._expected = None

    async def _desktop(self) -> DesktopScene:
        """The desktop, after the actions so far."""
        if self._real is not None:
            return self._real
        real = await self._lease()
        await real.prepare()
        key, shown = self._memo.root(self._task), None
        try:
            for seen, action, answered in self._trail:
                shown = await real.observe()
                self._agree(key, "screen", self._memo.keep(key, self._task, seen=shown) and by_place(shown) == seen)
                key = self._memo.after(key, line(action))
                now, _ = await real.act(action, shown)
                self._agree(key, "result", self._memo.keep(key, self._task, result=now) and now == answered)
                shown = None
            if self._seen is not None:
                shown = await real.observe()
                known = self._memo.keep(key, self._task, seen=shown)
                self._agree(key, "screen", known and by_place(shown) == self._seen)
        except AgentBrokeDesktop as broken:  # under what went well before
            self._memo.drop(key, self._task, "end")
            raise DesktopFault(DISAGREES, f"remembered actions have broken a desktop: {broken}", "memo") from broken
        self._real, self._shown = real, shown
        self._back()
        return real

    def _agree(self, key: bytes, what: str, agrees: bool) -> None:
        """Raise DesktopFault where the desktop shows or answers another thing than the policy has seen.

        What the policy has seen counts: its line may have been dropped or seen otherwise by another seat since then.
        """
        if not agrees:
            self._memo.drop(key, self._task, what)
            detail = f"after the same actions a desktop has another {what} than the memo: its line is dropped"
            raise DesktopFault(DISAGREES, detail, "memo")
