"""An episode's scene made of what is remembered, until something is not.

A desktop is leased at most once, by the first look, action or verdict that is not remembered. The actions so
far are carried out on it first, and each screen and result is compared. What comes otherwise is a fault, and its line
is dropped. No fault is remembered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from actors.desktop.memo import Memo, by_place
from actors.desktop.pool.desktops import BootedDesktop
from actors.desktop.pool.leased import FAILED
from actors.desktop.scene import EpisodeScene, Judged
from actors.errors import AgentBrokeDesktop, DesktopFault
from apis.actions.gui import Action, line
from apis.observation import Observation
from apis.plans.action import plan
from apis.tasks.verify.verify import TaskVerdict

NOT_REMEMBERED = "not_remembered"  # cause of a fault where no desktop may be booted
DISAGREES = "memo_disagrees"
Lease = Callable[[], Awaitable[EpisodeScene]]  # a scene on a desktop, not yet prepared


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
        self._real: EpisodeScene | None = None
        self._shown: Observation | None = None  # by the desktop, since its last action
        self._verdict: TaskVerdict | None = None
        self.remembered = True

    async def prepare(self) -> None:
        """Nothing, where the first screen is remembered. Raises as `EpisodeScene` does."""
        if self._memo.seen(self._key) is None:
            await self._desktop()

    async def observe(self) -> Observation:
        """What shows, from the memo or the desktop."""
        if self._real is None and (shown := self._memo.seen(self._key)) is not None:
            self.remembered, self._seen = True, shown
            return shown
        real = await self._desktop()
        self.remembered = False
        if self._shown is None:
            self._shown = await real.observe()
            self._memo.keep(self._key, self._task, seen=self._shown)
        else:
            self._shown = await real.observe()  # once more after an answer that was refused
        return self._shown

    async def picture(self) -> bytes:
        """A memo has none: the desktop's."""
        return await (await self._desktop()).picture()

    async def act(self, action: Action, observation: Observation) -> tuple[str, bool | None]:
        """What the action answers, from the memo or the desktop."""
        todo = plan(action, observation)
        if todo.ends is not None:  # it asks nothing of a desktop
            return todo.result, todo.ends
        key = self._memo.after(self._key, line(action))
        if self._real is None and (answered := self._memo.result(key)) is not None:
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
        """The desktop's, where there is one."""
        return None if self._real is None else await self._real.screenshot()

    async def reach_verdict(self) -> None:
        """Lease a desktop where the verdict is not remembered."""
        if self._real is None:
            self._verdict = self._memo.verdict(self._key)
            if self._verdict is None:
                await self._desktop()

    async def judged(self) -> Judged:
        """The verdict, from the memo or the desktop."""
        if self._verdict is not None:
            return Judged(self._verdict, self._verdict.reason)
        self.remembered = False
        judged = await (await self._desktop()).judged()
        if judged.end is not None or judged.verdict.success:
            self._memo.keep(self._key, self._task, verdict=judged.verdict)
        return judged

    async def after(self, actions: Sequence[Action]) -> str | None:
        """Begin after `actions` of an earlier episode: carry them out, and what the last one answered.

        They are no steps of this episode: nothing learns from them.
        """
        answered = None
        for action in actions:
            answered, _ = await self.act(action, await self.observe())
        return answered

    def branch(self, lease: Lease) -> RememberedScene:
        """Another scene of the same task after the same actions; its desktop is its own, leased when it is needed."""
        other = RememberedScene(self._task, self._memo, lease)
        other._key, other._trail = self._key, list(self._trail)
        return other

    async def _desktop(self) -> EpisodeScene:
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


class NoDesktops:
    """The pool where only what is remembered is played: it has none."""

    quarantined: tuple[str, ...] = ()

    async def acquire(self, timeout_s: float, holder: str = "") -> BootedDesktop:
        """Raises DesktopFault."""
        raise DesktopFault(NOT_REMEMBERED, "desktops.memo is only, and the memo does not know what comes next", "memo")

    async def well(self, timeout_s: float) -> bool:
        """Always."""
        return True

    def fit(self, config: object, fit_seats: int) -> None:
        """There is nothing to fit."""

    def retire(self, booted: BootedDesktop) -> None:
        """Nothing was booted."""

    def succeeded(self) -> None:
        """Nothing is counted."""

    def faulted(self, error: DesktopFault) -> None:
        """Nothing is counted."""

    async def close(self) -> None:
        """Nothing is open."""
