"""The supervisor of the run's phases.

Invariant: the supervisor holds no truth of its own. It reads the ledger's figures, asks the pure machine, and carries
one decision out. After a kill, the same figures lead to the same decision.
"""

from __future__ import annotations

import asyncio
import math
import os
import shutil
from collections.abc import Collection
from pathlib import Path

from actors.entropulse.config import EntropulseSettings
from actors.entropulse.decide import AFTER_BC, FINAL, Finished, OpenRound, Remain, SwitchPhase, decide
from actors.errors import LedgerError
from actors.learner.messages import GetLearnerState, WriteWeights
from actors.replay.messages import Figures, GetFigures, OpenEval, Sampling, WaitFigures
from actors.sampler.messages import Pin, Unpin
from policy.errors import NoModel
from runtime.actor import Actor
from runtime.errors import StoreError
from runtime.logs.events import declare
from runtime.messaging.message import Version
from runtime.messaging.refs import TRANSIENT

ROUND_WEIGHTS_KEPT = declare("round_weights_kept", "info", version=str, round=str, samplers=list[str])
ROUND_WEIGHTS_RELEASED = declare("round_weights_released", "info", version=str)
SUPERVISOR_WAITS = declare("supervisor_waits", "warning", cause=str)


class PinnedFolders:
    """`<run_dir>/pinned/<version>`: links to the learner's exports, or copies across file systems.

    `<run_dir>/kept/<version>` likewise, for weights that stay after the run.
    """

    def __init__(self, run_dir: Path) -> None:
        self._folder = run_dir / "pinned"
        self._kept = run_dir / "kept"

    def clear(self) -> None:
        """Remove what a killed supervisor left half done."""
        for folder in (self._folder, self._kept):
            for part in folder.glob(".*.part"):
                shutil.rmtree(part)

    def location(self, version: Version) -> Path:
        return self._folder / str(version)

    def pin(self, version: Version, export: Path) -> Path:
        """Keep `export`. Raises StoreError when it is gone, because the learner removed it meanwhile."""
        return self._take(version, export, self.location(version))

    def keep(self, version: Version, export: Path) -> Path:
        """Keep `export` after its round, too. Raises StoreError like `pin`."""
        return self._take(version, export, self._kept / str(version))

    def forget(self, wanted: Collection[Version]) -> None:
        """Delete what is kept of versions not in `wanted`: a resume abandoned their rounds."""
        for version in _all_but(self._kept, wanted):
            shutil.rmtree(self._kept / str(version))

    def _take(self, version: Version, export: Path, target: Path) -> Path:
        if target.exists():
            return target
        scratch = target.with_name(f".{version}.part")
        try:
            shutil.rmtree(scratch, ignore_errors=True)
            shutil.copytree(export, scratch, copy_function=_link)
            os.replace(scratch, target)
        except (OSError, shutil.Error) as error:
            raise StoreError(f"can't keep the weights {version} from {export}: {error}") from error
        return target

    def surplus(self, needed: Collection[Version]) -> list[Version]:
        return _all_but(self._folder, needed)

    def release(self, version: Version) -> None:
        shutil.rmtree(self.location(version))


def _all_but(folder: Path, needed: Collection[Version]) -> list[Version]:
    versions = sorted(Version.parse(path.name) for path in folder.glob("[0-9]*"))
    return [version for version in versions if version not in needed]


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


LOOK_S = 0.5  # figures change with every commit, and no decision is urgent
WAIT_S = 15.0  # at most so long between two looks: samplers that restarted get their pins again
ASK_S = 30.0
PIN_S = 120.0
KEPT_ROUNDS = (AFTER_BC, FINAL)  # their weights stay, to be evaluated and exported after the run


class EntropulseActor(Actor):
    """Moves the run through its phases. Config: `EntropulseSettings`."""

    config: EntropulseSettings

    def __init__(self, config: EntropulseSettings) -> None:
        super().__init__(config)
        self._doing = "starting"
        self._kept: set[Version] = set()  # of the rounds in KEPT_ROUNDS that the ledger knows
        # What samplers were last asked about versions of open rounds: to keep them or not, and when.
        self._asked: dict[Version, tuple[bool, float]] = {}

    async def on_start(self) -> None:
        self._pins = PinnedFolders(self.ctx.run_dir)
        await asyncio.to_thread(self._pins.clear)
        self.ctx.spawn(self._supervise(), "supervise")

    def doing(self) -> str:
        return self._doing

    async def _supervise(self) -> None:
        replay = self.ctx.ref(self.config.replay)
        seen = -1
        while True:
            try:
                figures = await replay.ask(WaitFigures(since=seen, wait_s=WAIT_S), timeout_s=WAIT_S + ASK_S)
                await self._keep_pins(figures)
                if await self._act(figures):
                    return
                seen = figures.revision
            except (*TRANSIENT, NoModel) as error:
                # A peer restarts, or the learner went on, or removed an export before it was pinned: look again.
                self.ctx.log.emit(SUPERVISOR_WAITS, cause=str(error))
            await self.ctx.clock.sleep(LOOK_S)

    async def _act(self, figures: Figures) -> bool:
        """Carry out one decision; whether the run is done."""
        decision = decide(figures, self.config)
        match decision:
            case SwitchPhase(change=change):
                self._doing = f"to {change.next.phase}: {change.cause}"
                try:
                    await self.ctx.ref(self.config.replay).ask(change, timeout_s=ASK_S)
                except LedgerError as error:
                    # A resume moved the phase between the figures and the change: decide again.
                    self.ctx.log.emit(SUPERVISOR_WAITS, cause=str(error))
                else:
                    if self.config.single_version:  # to draw for RL, or to play rounds, at once
                        await self._keep_pins(await self.ctx.ref(self.config.replay).ask(GetFigures(), timeout_s=ASK_S))
            case OpenRound():
                self._doing = f"opens evaluation {decision.name}"
                try:
                    await self._open(decision, figures)
                except LedgerError as error:
                    now = await self.ctx.ref(self.config.replay).ask(GetFigures(), timeout_s=ASK_S)
                    if now.trained.lineage == figures.trained.lineage:
                        raise
                    # A resume abandoned the weights while they were pinned: decide again.
                    self.ctx.log.emit(SUPERVISOR_WAITS, cause=str(error))
            case Remain(waits_for=what):
                self._doing = f"{figures.phase.phase}: waits for {what}"
            case Finished():
                self._doing = "finished"
                return True
        return False

    async def _open(self, wanted: OpenRound, figures: Figures) -> None:
        """Keep the learner's weights, pin them where engines have room, then open the round on them."""
        state = await self.ctx.ref(self.config.learner).ask(GetLearnerState(), timeout_s=ASK_S)
        # The learner names the newest weights it has exported, which may be one step behind what the ledger knows.
        # One of another lineage is what a resume has just abandoned.
        other = (wanted.exact and state.version != figures.trained) or state.version.step < wanted.least
        if other or state.version.lineage != figures.trained.lineage:
            self._doing = f"waits for the export of {figures.trained} to open evaluation {wanted.name}"
            return
        weights = await self.ctx.ref(self.config.learner).ask(WriteWeights(version=state.version), timeout_s=PIN_S)
        await asyncio.to_thread(self._pins.pin, state.version, Path(weights.location))
        if wanted.name in KEPT_ROUNDS:
            await asyncio.to_thread(self._pins.keep, state.version, Path(weights.location))
        if not self.config.single_version:
            await self._tell(state.version, keep=True)
        opened = OpenEval(
            round=wanted.name,
            version=state.version,
            tasks=self.config.trial_tasks if wanted.trial else self.config.eval_tasks,
            task_set=self.config.trial_set if wanted.trial else self.config.task_set,
            sampling=Sampling(temperature=wanted.temperature, max_new_tokens=self.config.sampling.max_new_tokens),
            episodes=1 if wanted.trial else self.config.evaluation.episodes,
        )
        await self.ctx.ref(self.config.replay).ask(opened, timeout_s=ASK_S)
        self.ctx.log.emit(
            ROUND_WEIGHTS_KEPT, version=str(state.version), round=wanted.name,
            samplers=[] if self.config.single_version else list(self.config.samplers),
        )  # fmt: skip

    async def _tell(self, version: Version, *, keep: bool) -> None:
        """Have all samplers keep a version, or let it go. Raises the first error of theirs, once all have answered."""
        self._asked.pop(version, None)  # one that raises may have done it nevertheless: what it holds is not known
        message = Pin(version=version, location=str(self._pins.location(version))) if keep else Unpin(version=version)
        asked = [self.ctx.ref(name).ask(message, timeout_s=PIN_S if keep else ASK_S) for name in self.config.samplers]
        for answer in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
        self._asked[version] = keep, self.ctx.clock.now()

    async def _keep_pins(self, figures: Figures) -> None:
        """Tell samplers what to keep for open rounds once more, and what not; delete what no round needs any more.

        Engines that hold one version keep that of the oldest round, and none while rounds stand back for RL.
        """
        wanted = {round_.version for round_ in figures.evals if round_.round in KEPT_ROUNDS}
        if wanted != self._kept:
            await asyncio.to_thread(self._pins.forget, wanted)
            self._kept = wanted
        open_rounds = list(dict.fromkeys(round_.version for round_ in figures.evals if not round_.closed))
        most = 0 if figures.rounds_wait else 1 if self.config.single_version else len(open_rounds)
        failed: list[Exception] = []
        for number, version in reversed(list(enumerate(open_rounds))):  # what is to be let go first
            kept, when = self._asked.get(version, (None, -math.inf))
            if kept != (number < most) or self.ctx.clock.now() - when >= WAIT_S:
                try:
                    await self._tell(version, keep=number < most)
                except TRANSIENT as error:  # the others are asked nevertheless
                    failed.append(error)
        if failed:
            raise failed[0]
        for version in await asyncio.to_thread(self._pins.surplus, open_rounds):
            await self._tell(version, keep=False)
            del self._asked[version]
            await asyncio.to_thread(self._pins.release, version)  # only now: until then it is asked again
            self.ctx.log.emit(ROUND_WEIGHTS_RELEASED, version=str(version))
