"""What an episode is played on: a desktop that is set up, looked at, acted on, then frozen and judged from outside.

A verdict is made of what lies in HOME after the freeze. A fault of the infrastructure is raised as
DesktopFault and is no verdict.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Protocol

import msgspec

from actors.desktop.config import SeatConfig
from actors.desktop.pool.leased import DesktopControl, Frozen, LeasedDesktop
from actors.desktop.recorder import EndState
from actors.errors import DesktopFault
from actors.replay.messages import Lane, Reservation
from apis.actions.gui import Action
from apis.observation import Observation
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


class EpisodeScene(Protocol):
    """A desktop, or what is remembered of one."""

    remembered: bool  # no desktop has taken part in the last look, action or verdict

    async def prepare(self) -> None:
        """Set the task up. Raises DesktopFault, AgentBrokeDesktop, and so do all that follow."""

    async def observe(self) -> Observation:
        """What shows now."""

    async def picture(self) -> bytes:
        """The screen as PNG, for a model that sees it."""

    async def act(self, action: Action, observation: Observation) -> tuple[str, bool | None]:
        """What the policy reads of `action`, chosen while `observation` was shown, and the claim of `Agent.exit`."""

    async def screenshot(self) -> bytes | None:
        """The screen as JPEG, None where there is no desktop. Raises GuestRefused."""

    async def reach_verdict(self) -> None:
        """Get ready to be judged, while the desktop may still be acted on."""

    async def judged(self) -> Judged:
        """The verdict on the end. Raises ConfigError where a path is lacking."""


class DesktopScene:
    """One leased desktop, for one episode."""

    remembered = False

    def __init__(self, work: Reservation, desktop: LeasedDesktop, config: SeatConfig) -> None:
        self._work = work
        self._task: Task = task_of(work.task)
        self._desktop = desktop
        self._control = DesktopControl(desktop, config)
        self._config = config
        self._before = Manifest()  # of HOME after the set-up
        self.observe = self._control.observe
        self.picture = self._control.picture
        self.act = self._control.act
        self.screenshot = self._control.screenshot

    async def prepare(self) -> None:
        """Set the task up, and note what HOME holds then."""
        await self._control.prepare(self._task)
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
        answers = await self._control.carry_out(calls, self._config.setup_timeout_s)
        kept = {
            call.kept: answer for call, answer in zip(calls, answers, strict=True) if call.kept and answer is not None
        }
        return {name: told_as_published(answer.out, self._desktop.home) for name, answer in kept.items()}
