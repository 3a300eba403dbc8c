"""Plays single tasks on a pool's desktops, without a ledger. It uses the same `Episode` as a seat.

Invariant: a fault of the infrastructure is counted, and the task is played again on another desktop within a budget. A
fault never becomes an outcome. The played steps stay in memory and belong to the caller.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from actors.desktop.answers import Answerer
from actors.desktop.config import SeatConfig
from actors.desktop.demonstrators import of_oracle
from actors.desktop.episode import Episode
from actors.desktop.memo import Memo
from actors.desktop.pool.desktops import BootedDesktop
from actors.desktop.pool.leased import LeasedDesktop
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.recorder import EndState, Recorder
from actors.desktop.scene import DesktopScene, RememberedScene
from actors.errors import DesktopFault
from actors.replay.messages import Fault, Lane, Outcome, Phase, PhaseRef, Reservation, Sampling, StepPayload, StepRef
from apis.actions.spaces import ActionSpace
from policy.tokenizer import Tokenizer
from runtime.messaging.message import BlobRef

MAX_STEPS = 12
FAULT_BUDGET = 2  # retries of one task
Answers = Callable[[Reservation], Answerer]  # a fresh answerer for every try


class Play(msgspec.Struct, frozen=True, kw_only=True):
    """One task as it was played. `outcome` is None when every try was broken by the infrastructure."""

    task: str
    route: str = ""
    outcome: Outcome | None
    detail: str  # the verifier's sentence, or what broke
    steps: list[StepPayload]
    faults: list[Fault] = []
    wall_s: float = 0.0  # of the last try, from a leased desktop to the outcome
    cpu_s: float = 0.0  # the guest's processor seconds in that time
    boot_cpu_s: float = 0.0  # and before it: the boot's

    @property
    def success(self) -> bool:
        return self.outcome is not None and self.outcome.success


class Player:
    """Plays tasks, any number at the same time, on the desktops of `pool`; what `memo` knows needs none."""

    def __init__(
        self,
        pool: DesktopPool,
        config: SeatConfig | None = None,
        *,
        retries: int = FAULT_BUDGET,
        desktop: Callable[[BootedDesktop], LeasedDesktop] = LeasedDesktop,
        memo: Memo | None = None,
    ) -> None:
        self._pool = pool
        self._memo = memo
        self._config = config or SeatConfig(screenshots="none")
        self._retries = retries
        self._desktop = desktop

    async def play(
        self, task: str, answers: Answers, *, route: str = "", seed: int = 0, max_turns: int = MAX_STEPS
    ) -> Play:
        """Play `task` (its id) once to an outcome; `answers` is asked for an answerer at every try.

        Faults beyond the budget end it without an outcome. Raises ConfigError for a task that does not exist.
        """
        work = _reservation(task, seed, max_turns)
        faults: list[Fault] = []
        while True:
            steps = _Steps()
            try:
                tried = await self._try(work, answers(work), steps)
            except DesktopFault as broken:
                faults.append(Fault(cause=broken.cause, detail=broken.detail[:400], culprit=broken.culprit))
                if len(faults) <= self._retries:
                    continue
                tried = Play(task=task, outcome=None, detail=str(broken), steps=steps.payloads)
            return msgspec.structs.replace(tried, route=route, faults=faults)

    async def _try(self, work: Reservation, answerer: Answerer, steps: _Steps) -> Play:
        leased: list[BootedDesktop] = []

        async def lease() -> DesktopScene:
            leased.append(await self._pool.acquire(self._config.lease_timeout_s, holder=work.task))
            return DesktopScene(work, self._desktop(leased[0]), self._config)

        try:
            scene = await lease() if self._memo is None else RememberedScene(work.task, self._memo, lease)
            before, began = await _cpu_s(leased), time.monotonic()
            episode = Episode(work, scene, answerer=answerer, recorder=steps, config=self._config, enter=lambda _: None)
            played, wall_s = await episode.play(), time.monotonic() - began
            used_s = await _cpu_s(leased) - before
            if leased:
                self._pool.succeeded()
            return Play(
                task=work.task,
                outcome=played.outcome,
                detail=played.detail,
                steps=steps.payloads,
                wall_s=wall_s,
                cpu_s=max(0.0, used_s),
                boot_cpu_s=before,
            )
        finally:
            for booted in leased:
                self._pool.retire(booted)


async def _cpu_s(leased: list[BootedDesktop]) -> float:
    """Processor seconds that the guests of these desktops have used since they booted."""
    return sum([(await booted.provider.probe(booted.desktop)).cpu_s for booted in leased])


def demonstrated(
    tokenizer: Tokenizer, *, form: str = "compact", route: str = "", noise: float = 0.0, space: ActionSpace = "both"
) -> Answers:
    """The task's own oracle by `route` ("": chosen by the seed) within `space`, as the answers of `Player.play`."""
    return lambda work: of_oracle(work, tokenizer, form, noise, route, space=space)


class _Steps(Recorder):
    """Keeps payloads in memory in place of a run's segments."""

    def __init__(self) -> None:
        self.payloads: list[StepPayload] = []  # an episode's steps bound them

    async def picture(self, jpeg: object) -> BlobRef | None:
        return None

    async def end_state(self, step: StepRef, end: EndState) -> StepRef:
        return step

    async def step(self, payload: StepPayload, *, well_formed: bool) -> StepRef:
        self.payloads.append(payload)
        return StepRef(
            blob=BlobRef(segment="", offset=0, size=0, digest=""),
            prompt_tokens=len(payload.prompt_ids),
            response_tokens=len(payload.response_ids),
            well_formed=well_formed,
            oldest=None,
        )


def _reservation(task: str, seed: int, max_turns: int) -> Reservation:
    return Reservation(
        token=0,
        lane=Lane.DEMO,
        task=task,
        group="",
        slot=0,
        seed=seed,
        sampling=Sampling(temperature=1.0, max_new_tokens=0),
        max_turns=max_turns,
        pin=None,
        phase=PhaseRef(phase=Phase.DEMO, index=0),
    )
