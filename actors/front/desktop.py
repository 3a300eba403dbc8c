"""One desktop for a program: `computerrl.Desktop`.

Invariant: it goes the way of an episode. A line is parsed by the grammar, and a desktop is gone when its block ends.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

import msgspec

from actors.desktop.config import SeatConfig
from actors.desktop.hands import Hands
from actors.desktop.pool.leased import LeasedDesktop
from actors.front.pool import DesktopSettings, opened
from actors.front.task import TaskHandle, task_of
from apis.actions.grammar import RefusedAnswer
from apis.actions.gui import Action, functions_for, line
from apis.actions.spaces import ActionSpace
from apis.observation import Observation
from runtime.errors import ComputerRLError, ProtocolError

NOT_OPEN = "the desktop is not open: use it in an `async with` block"


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
                await Hands(desktop, self._seat).prepare(self._task.file)
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
        self._seen = await self._hands.observe()
        return self._seen

    async def act(self, action: str | Action) -> ActionResult:
        """Carry out a typed action, or a line such as `Agent.click(e3)`, and wait until the desktop rests.

        Names of elements and windows are those of the newest observation. Raises ActionRefused for a line that is no
        action; a function of an application that fails is no error, its result begins with "Failed:".
        """
        seen = self._seen or await self.observe()
        typed = self._hands.parse(action if isinstance(action, str) else line(action), seen)
        if isinstance(typed, RefusedAnswer):
            raise ActionRefused(typed.reason)
        text, claim = await self._hands.act(typed, seen)
        return ActionResult(line(typed), text, claim)

    async def screenshot(self) -> bytes:
        """The screen as JPEG."""
        return await self._hands.screenshot()

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
    def _hands(self) -> Hands:
        return Hands(self._open, self._seat)
