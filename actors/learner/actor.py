"""The learner: takes batches, has the rank step on them, announces weights, keeps checkpoints.

Invariant: a version never names two different weights: what follows a lost rank is a new lineage. Nothing is
announced before the ledger knows that it is trained. A full disk costs time and no step, and so does a file server that
does not answer. This process loads no tensor library, and may be on another machine than the entry point.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

import actors.replay.messages as ledger
from actors.errors import FencedOff
from actors.learner import batches, messages
from actors.learner.batches import Exercises, UnreadableError, WithoutSignalError, read_payloads
from actors.learner.broadcast import Publisher
from actors.learner.config import LearnerSettings
from actors.learner.folders import Exports, RunFolders, checkpoint_of, newest_known, on_disk
from actors.learner.probe import Probe
from actors.learner.rank import meeting_s
from actors.learner.turns import CardTurns
from actors.sampler.messages import Weights
from policy.errors import LearnerError, NoModel
from runtime.actor import Actor, handles
from runtime.errors import ActorFailed, ActorGone, DeadlineExceeded, DiskRefuses, MailboxFull
from runtime.logs.events import fields_of
from runtime.messaging.message import Request, Version

R = TypeVar("R")


class RankLostError(LearnerError):
    """The rank's process ended while it had an ask of ours."""


LEDGER_TIMEOUT_S = 60.0
LEDGER_GIVE_UP_S = 300.0  # all tries, as of the seats: what is given up here is trained again from a checkpoint
TELL_TIMEOUT_S = 5.0
SHARE_S = 20.0  # the rank copies what is in no shared memory yet
RESTORE_AGAIN_S = 0.5
SKIPS_IN_A_ROW = 5  # steps with non-finite gradients before it is called a failure


class LearnerActor(Actor):
    """Drives one rank. It reports every step to the ledger before it announces the weights to samplers."""

    config: LearnerSettings

    def __init__(self, config: LearnerSettings) -> None:
        super().__init__(config)
        self._version = Version(lineage=0, step=0)
        self._saved: Version | None = None
        self._reported = self._version  # the newest that the ledger knows of
        self._steps = 0
        self._skips = 0
        self._trial_from: Version | None = None  # before the trial under way
        self._busy_s = 0.0
        self._idle_since: float | None = None  # monotonic; None while there is a batch
        self._doing = "starting"

    async def on_start(self) -> None:
        self._folders = await on_disk(RunFolders, self.ctx.home)
        self._gate = self.ctx.disk_gate()
        await on_disk(self._folders.clear_plans)
        self._rank = self.ctx.ref(self.config.rank)
        groups = self.config.groups
        self._publisher = None if groups is None else Publisher(groups, self._rank, self.ctx)
        self._turns = CardTurns(self.config.samplers if self.config.turns else [], self.ctx)
        owner = "" if self.config.transport == "disk" else self.ctx.name
        self._exports = Exports(self._export, self.ctx.home, owner, adapters=self.config.transport == "adapter")
        rehearses = self.config.learner.rehearsal > 0
        self._exercises = Exercises(self.config.seed) if rehearses else None
        self._probe = await on_disk(Probe, self.ctx.home) if self.config.learner.probe_every else None
        await self._restore("start")
        self.ctx.spawn(self._learn(), "learn")

    async def on_stop(self) -> None:
        # A step that the ledger never heard of is not kept: its batch is given out again.
        if self._saved is not None and self._saved < self._version == self._reported:
            # A rank that is in the middle of a step refuses or is late: the steps since the last checkpoint are
            # then trained again after a resume, as after any crash.
            try:
                async with asyncio.timeout(10.0):
                    await self._checkpoint("stop")
                    await self._exports.on_disk(self._version)  # to be evaluated and exported after the run
            except (TimeoutError, ActorGone, DeadlineExceeded, LearnerError, MailboxFull) as error:
                self.ctx.log.emit(messages.RANK_LOST, version=str(self._version), cause=f"no last checkpoint: {error}")

    async def on_config(self, config: LearnerSettings) -> None:
        self.config = config
        await self._tell_samplers(config.samplers)

    def doing(self) -> str:
        return f"{self._doing}, at {self._version}"

    @handles(messages.GetLearnerState, concurrent=True)
    async def state(self, _: messages.GetLearnerState) -> messages.LearnerState:
        """The newest announced weights. Before the first, those that were started from."""
        newest = self._exports.newest
        version, location = (self._version, self.config.model) if newest is None else (newest.version, newest.location)
        return messages.LearnerState(version=version, location=location)

    @handles(messages.WriteWeights, concurrent=True)
    async def write_weights(self, msg: messages.WriteWeights) -> Weights:
        """Raises NoModel when the newest announced weights are others, or lost with the rank."""
        try:
            return await self._exports.written(msg.version)
        except RankLostError as error:
            raise NoModel(f"{msg.version} is lost with its rank: {error}") from error

    @handles(messages.JoinGroup, concurrent=True)
    async def join_group(self, msg: messages.JoinGroup) -> messages.Ticket | messages.SharedWeights | messages.NoGroup:
        if self.config.transport == "shared":
            try:
                return await self._rank.ask(messages.ShareKept(version=msg.version), timeout_s=SHARE_S)
            except (ActorGone, ActorFailed, DeadlineExceeded, MailboxFull, NoModel) as error:
                return messages.NoGroup(reason=str(error))
        if self._publisher is None:
            return messages.NoGroup(reason="weights go by disk alone")
        return await self._publisher.place(msg)

    @handles(messages.DeclineGroup, concurrent=True)
    async def decline_group(self, msg: messages.DeclineGroup) -> None:
        if self._publisher is not None:
            self._publisher.decline(msg.version, [msg.sampler])

    async def _learn(self) -> None:
        while True:
            try:
                if not await self._next():
                    break
            except DiskRefuses as error:
                self._gate.refuse(str(error))
                await self._gate.passed()
            except (RankLostError, NoModel) as error:
                self.ctx.log.emit(messages.RANK_LOST, version=str(self._version), cause=str(error))
                await self._restore(str(error))
        self._doing = "finished"
        self.ctx.log.emit(
            messages.LEARNER_FINISHED, version=str(self._version), steps=self._steps, busy_s=round(self._busy_s, 3)
        )

    async def _next(self) -> bool:
        self._doing = "waiting for a batch"
        wait_s = self.config.take_wait_s
        if self._idle_since is None:
            self._idle_since = self.ctx.clock.now()
        taken = await self._ledger(
            ledger.Take(learner=self.ctx.name, request_id=uuid.uuid4().hex, trained=self._version, wait_s=wait_s),
            wait_s + LEDGER_TIMEOUT_S,
        )
        if isinstance(taken, ledger.NothingToTake):
            if taken.back_to is not None:
                await self._restore("a trial was rolled back", at=taken.back_to)
                return True
            if self._exports.newest is None or self._exports.newest.version != self._version:
                await self._announce(write=True)
            elif taken.checkpoint or taken.final:
                await self._exports.on_disk(self._version)
            if taken.checkpoint or (taken.final and self._saved != self._version):
                await self._checkpoint("phase over" if taken.checkpoint else "run over")
            await self._tell_samplers(self.config.samplers)  # one may have restarted, and nothing newer is coming soon
            await self._turns.over(self._ask_rank)
            return not taken.final
        waited_s, self._idle_since = self.ctx.clock.now() - self._idle_since, None
        self._trial_from = taken.trial_from
        try:
            result = await self._train(taken, waited_s)
        except (UnreadableError, WithoutSignalError) as error:
            if groups := error.report.without_signal:
                self.ctx.log.emit(messages.GROUPS_WITHOUT_SIGNAL, lease=taken.lease, groups=groups)
            await self._ledger(error.report, LEDGER_TIMEOUT_S)
            return True
        await self._report(taken, result)
        self._reported = self._version
        due = self._version.step % self.config.learner.checkpoint_every == 0
        # Nothing is drawn between the steps of cloning or a pulse, so their weights are needed only at the end. A
        # checkpoint may fall on it, or the answer to the next request for a batch says so.
        if due or taken.phase.phase is ledger.Phase.RL:
            await self._announce(write=due)
        if due:
            await self._checkpoint("due")
        return True

    async def _train(self, batch: ledger.Batch, waited_s: float) -> messages.StepResult:
        version = Version(lineage=self._version.lineage, step=self._version.step + 1)
        self._doing = f"packing {version}"
        planned = await asyncio.to_thread(self._plan, batch, version)
        if planned.without_signal:
            self.ctx.log.emit(messages.GROUPS_WITHOUT_SIGNAL, lease=batch.lease, groups=planned.without_signal)
        plan, looked = planned.plan, await self._look(batch)
        self._doing = f"step {version} ({plan.kind})"
        try:
            sent = await asyncio.to_thread(batches.with_plan_file, plan, self.ctx.home)
            result = await self._ask_rank(sent, self.config.step_timeout_s)
        finally:
            await on_disk(self._folders.clear_plans)
        self._version = version
        self._steps += 1
        self._busy_s += result.t1 - result.t0
        sizes = {"micro_batches": len(plan.micro_batches), "samples": sum(len(m.samples) for m in plan.micro_batches)}
        figures = {**planned.figures, **looked, **sizes, "wait_s": waited_s, **result.figures}
        if "entropy" in planned.figures:  # of the same tokens, whatever their advantages and the KL term
            figures |= {"entropy": planned.figures["entropy"], "entropy_computed": result.figures["entropy"]}
        result = msgspec.structs.replace(result, figures=figures)
        self.ctx.log.emit(messages.LEARNER_STEP, **fields_of(_step_report(batch, plan.kind, result)))
        self._watch_skips(result)
        return result

    async def _look(self, batch: ledger.Batch) -> dict[str, float]:
        """What the weights before the step make of the probe, where it is due.

        `probe_entropy` is nats per token, `probe_agreement` the share of kept tokens that have the largest logit.
        """
        learner = self.config.learner
        if self._probe is None or batch.phase.phase is not ledger.Phase.RL or batch.rl_steps % learner.probe_every:
            return {}
        self._doing = f"looking at the probe with {self._version}"
        packed = self._probe.packed(learner.token_budget, learner.parallel.data)
        samplers = [self.ctx.ref(name) for name in self.config.samplers]
        drawn = await self._probe.drawn(samplers, str(self._version))  # first: the rank may need the engines' card
        request = messages.LookAt(version=self._version, micro_batches=packed)
        seen = (await self._ask_rank(request, self.config.step_timeout_s)).figures
        return {"probe_entropy": seen["entropy"], "probe_agreement": seen["accuracy"], **drawn}

    def _plan(self, batch: ledger.Batch, version: Version) -> batches.PlannedStep:
        began = time.perf_counter()
        stored = read_payloads(self.ctx.payloads, batches.blobs(batch), batch.lease)
        pictures = batches.read_pictures(self.ctx.payloads, stored, batch.lease)
        if self._probe is not None and batch.phase.phase is ledger.Phase.RL:
            self._probe.keep(stored.values())
        read = time.perf_counter()
        plan_id = f"{batch.lease}:{version}"
        learner = self.config.learner
        epochs = learner.rl.epochs if batch.phase.phase is ledger.Phase.RL else 1
        rehearsal = [] if self._exercises is None else self._exercises.of(version, learner, epochs)
        planned = batches.plan(
            batch,
            stored,
            learner,
            plan_id=plan_id,
            version=version,
            rehearsal=rehearsal,
            pictures=pictures,
        )
        seconds = {"read_s": read - began, "pack_s": time.perf_counter() - read}
        return msgspec.structs.replace(planned, figures={**planned.figures, **seconds})

    def _watch_skips(self, result: messages.StepResult) -> None:
        self._skips = 0 if result.ok else self._skips + 1
        if self._skips:
            cause = "gradients were not finite"
            self.ctx.log.emit(messages.STEP_SKIPPED, version=str(self._version), cause=cause, in_a_row=self._skips)
        if self._skips >= SKIPS_IN_A_ROW:
            raise LearnerError(f"gradients were not finite {self._skips} steps in a row")

    async def _report(self, batch: ledger.Batch, result: messages.StepResult) -> None:
        trained = ledger.Trained(lease=batch.lease, version=self._version, figures=result.figures)
        try:
            await self._ledger(trained, LEDGER_TIMEOUT_S)
        except FencedOff as error:
            # The ledger gave the batch back meanwhile; its groups may be trained on once more.
            self.ctx.log.emit(messages.LEASE_LOST, lease=batch.lease, version=str(self._version), cause=str(error))

    async def _announce(self, *, write: bool) -> None:
        """Announce the newest weights to the samplers. Those sent by collective go to disk only with `write`."""
        self._doing = f"announcing {self._version}"
        weights, export_s = await self._exports.take(self._version, write=write)
        began, samplers = self.ctx.clock.now(), self.config.samplers
        if self._publisher is not None:
            self._publisher.offer(self._version, samplers)
        missed = await self._tell_samplers(samplers)
        if self._publisher is not None:
            self._publisher.decline(self._version, missed)
        await self._turns.over(self._ask_rank)
        announce_s, reached = self.ctx.clock.now() - began, [name for name in samplers if name not in missed]
        self.ctx.log.emit(
            messages.WEIGHTS_ANNOUNCED, version=str(self._version), location=weights.location, samplers=reached,
            missed=missed, export_s=round(export_s, 4), announce_s=round(announce_s, 4),
        )  # fmt: skip
        if await on_disk(self._folders.weights_count) > self.config.keep_weights:
            figures: ledger.Figures = await self._ledger(ledger.GetFigures(), LEDGER_TIMEOUT_S)
            needed = {round_.version for round_ in figures.evals if not round_.closed}
            await on_disk(self._folders.prune_weights, self.config.keep_weights, needed)

    async def _export(self, request: messages.ExportWeights | messages.WriteKept) -> messages.Saved:
        return await self._ask_rank(request, self.config.load_timeout_s)

    async def _tell_samplers(self, samplers: Sequence[str]) -> list[str]:
        """Announce the newest weights; returns the samplers that could not be reached. They get the next weights."""
        if (newest := self._exports.newest) is None:
            return []
        tells = (self.ctx.ref(name).tell(newest, timeout_s=TELL_TIMEOUT_S) for name in samplers)
        results = await asyncio.gather(*tells, return_exceptions=True)
        missed = []
        for name, error in zip(samplers, results, strict=True):
            if isinstance(error, (ActorGone, DeadlineExceeded, MailboxFull)):
                missed.append(name)
            elif error is not None:
                raise error
        return missed

    async def _checkpoint(self, cause: str) -> None:
        if self._saved == self._version:  # the files are as the ledger knows them, and stay so
            return
        self._doing = f"saving {self._version}"
        location = str(checkpoint_of(self.ctx.home, self._version))
        request = messages.SaveCheckpoint(version=self._version, location=location)
        saved = await self._ask_rank(request, self.config.load_timeout_s)
        version, took_s = str(self._version), round(saved.seconds, 4)
        self.ctx.log.emit(
            messages.CHECKPOINT_SAVED, version=version, location=saved.location, save_s=took_s, cause=cause
        )
        made = ledger.Checkpointed(version=self._version, location=saved.location, digest=saved.digest)
        await self._ledger(made, LEDGER_TIMEOUT_S)
        self._saved = self._version
        needed = None if self._trial_from is None else self._trial_from.step
        await on_disk(self._folders.prune_checkpoints, self.config.keep_checkpoints, needed)

    async def _restore(self, cause: str, at: Version | None = None) -> None:
        """Load the newest checkpoint as a new lineage, or the base model when nothing was ever trained.

        With `at` load the checkpoint of that version. Raises LearnerError where it is gone.
        """
        while True:
            try:
                await self._restore_once(cause, at)
                return
            except DiskRefuses as error:
                self._gate.refuse(str(error))
                await self._gate.passed()
            except (RankLostError, NoModel) as error:
                # Asks wait for the rank's host while it restarts; its restart budget ends this loop.
                self.ctx.log.emit(messages.RANK_LOST, version=str(self._version), cause=str(error))
                await self.ctx.clock.sleep(RESTORE_AGAIN_S)  # a lost rank's link may take a moment to be known as such

    async def _restore_once(self, cause: str, at: Version | None) -> None:
        self._doing = "loading"
        figures: ledger.Figures = await self._ledger(ledger.GetFigures(), LEDGER_TIMEOUT_S)
        parent, location, digest = await self._newest_checkpoint(figures, at)
        fresh = location is None and figures.trained == parent
        lineage = parent.lineage if fresh else max(parent.lineage, figures.trained.lineage) + 1
        version = Version(lineage=lineage, step=parent.step)
        where = self.config.model if location is None else str(location)
        loaded: messages.ModelLoaded = await self._ask_rank(
            messages.LoadModel(location=where, checkpoint=location is not None, version=version, digest=digest),
            self.config.load_timeout_s + meeting_s(self.config.learner.parallel.ranks),
        )
        # The rank does one thing after another, so a save that its learner gave up on is over by now. What it wrote is
        # past `parent`: the ledger is about to undo those steps, and no later resume may go on from them.
        await on_disk(self._folders.forget_after, parent)
        if not fresh:
            await self._ledger(ledger.LearnerResumed(version=version, parent=parent), LEDGER_TIMEOUT_S)
            self.ctx.log.emit(
                messages.LEARNER_RESUMED, version=str(version), parent=str(parent), location=where, cause=cause
            )
        self._version = self._reported = version
        self._saved = version if location is not None else None
        self.ctx.log.emit(messages.LEARNER_STARTED, version=str(version), parameters=loaded.parameters, location=where)
        await self._announce(write=True)
        if location is None:
            await self._checkpoint("first")

    async def _newest_checkpoint(self, figures: ledger.Figures, at: Version | None) -> tuple[Version, Path | None, str]:
        saved = await on_disk(self._folders.checkpoints)
        complete = [one for one in saved if at is None or one[0].step == at.step]
        asked = ledger.GetCheckpointDigests(versions=[version for version, _ in complete])
        known: ledger.CheckpointDigests = await self._ledger(asked, LEDGER_TIMEOUT_S)
        found = newest_known(complete, known.digests, figures.trained)
        if at is not None and found[1] is None:
            raise LearnerError(f"a trial is to be undone, and the checkpoint before it, {at}, is gone")
        return found

    async def _ask_rank(self, msg: Request[R], timeout_s: float) -> R:
        """The rank's answer, within `timeout_s` of the last ask. Raises RankLostError."""
        await self._turns.before(msg)
        while True:
            try:
                return await self._rank.ask(msg, timeout_s=timeout_s)
            except DiskRefuses as error:
                self._gate.refuse(str(error))
                await self._gate.passed()
            except ActorGone as error:
                raise RankLostError(str(error)) from error

    async def _ledger(self, msg: Request[R], timeout_s: float) -> R:
        ledger = self.ctx.ref(self.config.replay)
        return await ledger.ask_until(msg, timeout_s=timeout_s, give_up_s=LEDGER_GIVE_UP_S)


def _step_report(batch: ledger.Batch, kind: str, result: messages.StepResult) -> messages.StepReport:
    figures: dict[str, Any] = {
        name: value if isinstance(value, int) else float(f"{value:.6g}")  # a rate may be 1e-6
        for name, value in result.figures.items()
    }
    own = {name: figures.pop(name) for name in messages.StepReport.__struct_fields__ if name in figures}
    step = {"version": str(result.version), "phase": batch.phase.phase.value, "kind": kind, "lease": batch.lease}
    return msgspec.convert(step | own | {"t0": result.t0, "t1": result.t1, "figures": figures}, messages.StepReport)
