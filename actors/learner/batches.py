"""Makes the plan of one optimizer step: reads a batch's stored steps, computes advantages, packs, adds rehearsal.

Every step of a group counts in its advantages and denominators. A rank that reads micro-batches from a file reads
exactly what was packed, or nothing.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from types import MappingProxyType

import msgspec

from actors.learner.config import LearnerConfig, RlConfig, Schedule
from actors.learner.folders import PLANS
from actors.learner.messages import PlanFile, StepPlan
from actors.replay.messages import Batch, GroupRef, Phase, StepPayload, StepRef, TrajectoryRef, Unreadable
from policy.advantage import (
    AdvantageLevel,
    covariance,
    group_advantages,
    lean,
    step_rewards,
    trajectory_advantages,
)
from policy.base import EXERCISES, Corpus
from policy.errors import LearnerError
from policy.packing import (
    Aggregation,
    MicroBatch,
    PackedSample,
    SeenPicture,
    group_weights,
    pack,
    pack_cross_entropy,
    sample_weights,
)
from policy.plugins import PlayedStep, PlayedTask, rewards
from policy.settings import Objective
from runtime.disk import store_error
from runtime.errors import PayloadLost, StoreError
from runtime.messaging.message import BlobRef, Version
from runtime.segments import digest_of


def learning_rate(config: LearnerConfig, phase: Phase, segment_step: int, segment_limit: int | None) -> float:
    """Rate of 0-based step `segment_step` of a phase segment of at most `segment_limit` steps.

    It rises linearly over the first `warmup_steps` to the phase's rate. Then it stays there (`constant`), or falls
    along a line or half a cosine to `lr_floor` of it at the segment's last step. A segment without a limit keeps its
    rate. A segment that a trigger ends early has not fallen all the way. RL follows `learner.rl`, cloning and pulses
    `learner.sft`. With `lr_cycle_steps` RL's rate rises and falls again in every cycle of so many steps.
    """
    rl, sft = config.rl, config.sft
    if phase is Phase.RL and rl.lr_cycle_steps:
        segment_step, segment_limit = segment_step % rl.lr_cycle_steps, rl.lr_cycle_steps
    full = {Phase.BC: sft.lr, Phase.PULSE: sft.pulse_lr}.get(phase, rl.lr)
    warmup = rl.warmup_steps if phase is Phase.RL else sft.warmup_steps
    if segment_step < warmup:
        return full * (segment_step + 1) / (warmup + 1)
    schedule = rl.lr_schedule if phase is Phase.RL else sft.lr_schedule
    if schedule is Schedule.CONSTANT or segment_limit is None:
        return full
    last = segment_limit - 1 - warmup  # steps from the top to the end
    done = min(1.0, (segment_step - warmup) / last) if last > 0 else 0.0
    left = 1.0 - done if schedule is Schedule.LINEAR else 0.5 * (1.0 + math.cos(math.pi * done))
    return full * (config.lr_floor + (1.0 - config.lr_floor) * left)


MOST_BYTES = 16 << 20  # of micro-batches inside a message, which may have 64 MiB with all that is in it
BYTES_PER_TOKEN = 16  # at most, encoded: an id takes 5 and a log-probability 9
_NAME = "micro_batches"


def with_plan_file(plan: StepPlan, run_dir: Path, most_bytes: int = MOST_BYTES) -> StepPlan:
    """`plan` as it goes to the rank: itself where it is small, else with its micro-batches in a file of the run's.

    `run_dir` is the run's folder. Raises StoreError.
    """
    samples = [sample for micro in plan.micro_batches for sample in micro.samples]
    seen = sum(len(picture.png) for sample in samples for picture in sample.pictures)
    if seen + sum(len(sample.ids) for sample in samples) * BYTES_PER_TOKEN <= most_bytes:
        return plan
    content = msgspec.msgpack.encode(plan.micro_batches)
    folder = run_dir / PLANS / str(plan.version)
    path = folder / _NAME
    part = path.with_suffix(".part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        raise store_error(f"can't write {path}", error) from error
    plan_file = PlanFile(location=str(path), size_bytes=len(content), digest=digest_of(content).hex())
    return msgspec.structs.replace(plan, micro_batches=[], plan_file=plan_file)


def micro_batches_of(plan: StepPlan) -> list[MicroBatch]:
    """The micro-batches of a plan. Raises StoreError when the file is not what the plan says, or can't be read."""
    if plan.plan_file is None:
        return plan.micro_batches
    try:
        with Path(plan.plan_file.location).open("rb") as file:
            content = file.read(plan.plan_file.size_bytes + 1)
    except OSError as error:
        raise store_error(f"the batch of {plan.plan_id} can't be read from {plan.plan_file.location}", error) from error
    if len(content) != plan.plan_file.size_bytes or digest_of(content).hex() != plan.plan_file.digest:
        raise StoreError(f"{plan.plan_file.location} is not the batch of {plan.plan_id}")
    return msgspec.msgpack.decode(content, type=list[MicroBatch])


Stored = Callable[[list[BlobRef]], Iterable[bytes | PayloadLost]]
_DECODE = msgspec.msgpack.Decoder(StepPayload).decode


class UnreadableError(LearnerError):
    """Payloads of a lease that can't be read, and why."""

    def __init__(self, lease: int, causes: dict[BlobRef, str]) -> None:
        first = next(iter(causes.values()))
        super().__init__(f"lease {lease}: {len(causes)} payloads can't be read, the first: {first}")
        self.report = Unreadable(lease=lease, blobs=list(causes), cause=first)  # for the ledger


class WithoutSignalError(LearnerError):
    """No group of a lease has signal: the ledger knows neither rewards of one's own nor `negative_scale`."""

    def __init__(self, batch: Batch) -> None:
        super().__init__(f"lease {batch.lease}: no advantage of its groups counts")
        names = [group.group for group in batch.groups]
        self.report = Unreadable(lease=batch.lease, blobs=[], cause=str(self), without_signal=names)


def read_payloads(stored: Stored, blobs: Iterable[BlobRef], lease: int) -> dict[BlobRef, StepPayload]:
    """The payloads of `blobs`, as the context's `payloads` reads them. Raises UnreadableError naming all lost ones.

    Raises StoreError where they can't be read for now: that says nothing of the payloads.
    """
    decoded, causes = dict[BlobRef, StepPayload](), dict[BlobRef, str]()
    wanted = list(dict.fromkeys(blobs))
    for blob, stored_bytes in zip(wanted, stored(wanted), strict=True):
        if isinstance(stored_bytes, PayloadLost):
            causes[blob] = str(stored_bytes)
            continue
        try:
            decoded[blob] = _DECODE(stored_bytes)
        except msgspec.DecodeError as error:
            causes[blob] = str(error)
    if causes:
        raise UnreadableError(lease, causes)
    return decoded


PICTURE_MISSING, PICTURE_CHANGED = "picture_missing", "picture_changed"


def read_pictures(stored: Stored, payloads: Payloads, lease: int) -> Pictures:
    """What the models of `payloads` saw, each picture once, by its reference.

    Raises UnreadableError naming every step of which a picture is missing or is not the one that was shown: without it
    the step would be another sample. Raises StoreError as `read_payloads` does.
    """
    wanted = {picture.blob: picture.digest for payload in payloads.values() for picture in payload.pictures}
    pictures, wrong = dict[BlobRef, bytes](), dict[BlobRef, str]()
    for (blob, digest), png in zip(wanted.items(), stored(list(wanted)), strict=True):
        if isinstance(png, PayloadLost):
            wrong[blob] = f"{PICTURE_MISSING}: {png}"
        elif hashlib.sha256(png).hexdigest() != digest:
            wrong[blob] = f"{PICTURE_CHANGED}: {blob.segment} at {blob.offset} is not the picture {digest:.16}"
        else:
            pictures[blob] = png
    causes = {
        step: wrong[picture.blob]
        for step, payload in payloads.items()
        for picture in payload.pictures
        if picture.blob in wrong
    }
    if causes:
        raise UnreadableError(lease, causes)
    return pictures


Payloads = Mapping[BlobRef, StepPayload]
Pictures = Mapping[BlobRef, bytes]  # PNG


def _seen(payload: StepPayload, pictures: Pictures) -> tuple[SeenPicture, ...]:
    return tuple(SeenPicture(at=one.at, digest=one.digest, png=pictures[one.blob]) for one in payload.pictures)


class PlannedStep(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, the groups it leaves out because all their rewards are equal, and the figures that are known before the
    step.
    """

    plan: StepPlan
    without_signal: list[str]
    figures: dict[str, float]


def blobs(batch: Batch) -> list[BlobRef]:
    """The payloads that planning `batch` reads."""
    steps = [step for group in batch.groups for trajectory in group.trajectories for step in trajectory.steps]
    return [step.blob for step in [*steps, *batch.samples]]


def plan(
    batch: Batch,
    payloads: Payloads,
    config: LearnerConfig,
    *,
    plan_id: str,
    version: Version,
    rehearsal: Sequence[list[MicroBatch]] = (),
    pictures: Pictures = MappingProxyType({}),
) -> PlannedStep:
    """The step that makes `version`, with what is rehearsed in each of its optimizer steps.

    `pictures` has every picture of the payloads.

    A step of advantage 0 has no policy term, whatever its tokens' ratios are. It is computed for a KL term, an entropy
    bonus or a loss of one's own alone. It counts in every denominator, and not in the rank's figures. Raises
    WithoutSignalError where no step of RL is computed, LearnerError for a batch without samples.
    """
    figures = {"stay_step": float(batch.stay_step)}
    rl, without_signal, objective = batch.phase.phase is Phase.RL, list[str](), Objective()
    if rl:
        before = msgspec.structs.replace(version, step=version.step - 1)
        samples, without_signal = _grpo(batch, payloads, pictures, config, before)
        figures |= _of_tokens(samples)
        entropy = figures.get("entropy", 0.0)
        samples, objective = _rejected(samples, config.rl, entropy), config.rl.objective(entropy)
        all_count = bool(objective.kl_coef or objective.entropy_coef or objective.loss)
        taught = [sample for sample in samples if sample.advantage or all_count]
        micro_batches = pack(taught, config.token_budget, config.parallel.data)
        figures["groups"] = float(len(batch.groups) - len(without_signal))
        figures["groups_without_signal"] = float(len(without_signal))
        figures["steps_not_computed"] = float(len(samples) - len(taught))
        if batch.staleness:
            figures["staleness_mean"] = sum(batch.staleness) / len(batch.staleness)
            figures["staleness_max"] = float(max(batch.staleness))
    else:
        micro_batches = _cross_entropy(batch.samples, payloads, pictures, config)
        if not micro_batches and rehearsal:  # a pulse that takes no trajectory
            micro_batches, rehearsal = rehearsal[0], rehearsal[1:]
    if rl and not micro_batches:
        raise WithoutSignalError(batch)
    if not micro_batches:
        raise LearnerError(f"lease {batch.lease} ({batch.phase.phase}) holds nothing to learn from")
    return PlannedStep(
        plan=StepPlan(
            plan_id=plan_id,
            kind="grpo" if rl else "cross_entropy",
            version=version,
            micro_batches=micro_batches,
            rehearsal=list(rehearsal),
            lr=_rate(config, batch),
            fresh_optimizer=batch.fresh_optimizer,
            new_reference=batch.new_reference and config.rl.kl_coef > 0,
            objective=objective,
            epochs=config.rl.epochs if rl else 1,
        ),
        without_signal=without_signal,
        figures=figures,
    )


def _rate(config: LearnerConfig, batch: Batch) -> float:
    """The step's learning rate. RL that keeps its optimizer keeps its rate. Cloning again has the rate of pulses."""
    joined, limit, phase = batch.steps_joined, batch.stay_limit, batch.phase.phase
    if phase is Phase.BC and joined:
        return learning_rate(config, Phase.PULSE, batch.stay_step, limit)
    return learning_rate(config, phase, joined + batch.stay_step, None if limit is None else joined + limit)


def _advantages(group: GroupRef, payloads: Payloads, config: LearnerConfig) -> list[list[float]] | None:
    rl = config.rl
    if rl.advantage is AdvantageLevel.STEP:
        of_steps = [_rewards(rl.reward, group.task, t, payloads) for t in group.trajectories]
        found = group_advantages(of_steps, scaled=rl.advantage_std, baseline=rl.baseline)
    else:
        verdicts = [float(t.success) for t in group.trajectories]
        lengths = [len(t.steps) for t in group.trajectories]
        found = trajectory_advantages(verdicts, lengths, scaled=rl.advantage_std, baseline=rl.baseline)
    return None if found is None else lean(found, rl.negative_scale)


def _rewards(name: str, task: str, trajectory: TrajectoryRef, payloads: Payloads) -> list[float]:
    if not name:
        return step_rewards(verified=trajectory.success, well_formed=[step.well_formed for step in trajectory.steps])
    read = ((payloads[step.blob], step.well_formed) for step in trajectory.steps)
    steps = (PlayedStep(one.response, one.action, one.result, formed) for one, formed in read)
    return rewards(name, PlayedTask(task, trajectory.success, tuple(steps)))


def _rejected(samples: list[PackedSample], rl: RlConfig, entropy: float) -> list[PackedSample]:
    """`samples`, the surest answers of positive advantage without it, as many as entropy is below its target.

    One of them keeps it. Positive updates of sure answers lower entropy most (Entrocraft, arXiv 2604.26326).
    """
    good = [n for n, sample in enumerate(samples) if sample.advantage > 0]
    if rl.entropy_coef or not good:
        return samples
    sure = sorted(good, key=lambda n: -math.fsum(samples[n].behaviour_logprobs) / samples[n].response_len)
    out = set(sure[: min(len(good) - 1, int(len(good) * rl.below_target(entropy)))])
    return [msgspec.structs.replace(one, advantage=0.0) if n in out else one for n, one in enumerate(samples)]


def _of_tokens(samples: Sequence[PackedSample]) -> dict[str, float]:
    """Figures of all tokens played for the batch, whatever their advantages: of the policy that drew them.

    `entropy` is -sum log mu / tokens, an unbiased estimate of the mean token entropy at the temperature of drawing.
    """
    drawn = [(sample.advantage, value) for sample in samples for value in sample.behaviour_logprobs]
    if not drawn:
        return {}
    entropy = -math.fsum(value for _, value in drawn) / len(drawn)
    return {"entropy": entropy, "advantage_logprob_cov": covariance(drawn)}


def _grpo(
    batch: Batch, payloads: Payloads, pictures: Pictures, config: LearnerConfig, before: Version
) -> tuple[list[PackedSample], list[str]]:
    trained: list[list[tuple[StepPayload, float]]] = []  # per group: its steps with their advantages
    turns: list[list[int]] = []  # per group: steps of each trajectory
    without_signal: list[str] = []
    for group in batch.groups:
        advantages = _advantages(group, payloads, config)
        if advantages is None:
            without_signal.append(group.group)
            continue
        steps = [payloads[step.blob] for t in group.trajectories for step in t.steps]
        flat = [value for trajectory in advantages for value in trajectory]
        trained.append(list(zip(steps, flat, strict=True)))
        turns.append([len(t.steps) for t in group.trajectories if t.steps])
    weights = group_weights(
        [[len(payload.response_ids) for payload, _ in steps] for steps in trained], config.loss_aggregation, turns
    )
    samples = [
        PackedSample(
            ids=payload.prompt_ids + payload.response_ids,
            response_len=len(payload.response_ids),
            weight=weight,
            advantage=advantage,
            behaviour_logprobs=payload.logprobs,
            temperature=payload.temperature,
            fresh=all(span.version == before for span in payload.spans),
            pictures=_seen(payload, pictures),
        )
        for steps, step_weights in zip(trained, weights, strict=True)
        for (payload, advantage), weight in zip(steps, step_weights, strict=True)
    ]
    return samples, without_signal


def _cross_entropy(
    steps: Sequence[StepRef], payloads: Payloads, pictures: Pictures, config: LearnerConfig
) -> list[MicroBatch]:
    read = [payloads[step.blob] for step in steps]
    weights = sample_weights([len(payload.response_ids) for payload in read], config.loss_aggregation)
    samples = [
        PackedSample(
            ids=payload.prompt_ids + payload.response_ids,
            response_len=len(payload.response_ids),
            weight=weight,
            pictures=_seen(payload, pictures),
        )
        for payload, weight in zip(read, weights, strict=True)
    ]
    return pack(samples, config.token_budget, config.parallel.data)


class Exercises:
    """Draws from the base model's corpus, for models of its vocabulary."""

    def __init__(self, seed: int) -> None:
        self._corpus, self._seed = Corpus(), seed

    def of(self, version: Version, config: LearnerConfig, epochs: int = 1) -> list[list[MicroBatch]]:
        """The exercises of the step that makes `version`, others in each of its `epochs` optimizer steps.

        Weights are `rehearsal_coef` over all tokens of an optimizer step's. A run that begins from another's cloned
        weights counts from 1 again. With the same seed it rehearses first what that cloning rehearsed first.
        """
        rng = Random(f"{self._seed} rehearses for {version.step}")  # noqa: S311 - data, no secret
        drawn = [self._corpus.take(rng.choices(range(EXERCISES), k=config.rehearsal)) for _ in range(epochs)]
        budget, coef, ranks = config.token_budget, config.rehearsal_coef, config.parallel.data
        return [pack_cross_entropy(exercises, budget, Aggregation.TOKEN_MEAN, coef, ranks) for exercises in drawn]
