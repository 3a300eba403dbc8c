"""From a batch of the ledger to a plan for the rank.

Invariant: the learner's input can't hold a fault: only committed trajectories and their stored steps get here, and
every step of a group counts in its advantages and denominators. Pure: payloads come as decoded values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from actors.learner.config import LearnerConfig
from actors.learner.messages import StepPlan
from actors.replay.messages import Batch, GroupRef, Phase, StepPayload, StepRef
from policy.advantage import group_advantages, step_rewards
from policy.packing import MicroBatch, PackedSample, group_weights, pack, sample_weights
from runtime.errors import LearnerError
from runtime.message import BlobRef, Version

Payloads = Mapping[BlobRef, StepPayload]


class Planned(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, and the groups it leaves out because all their rewards are equal."""

    plan: StepPlan
    without_signal: list[str]


def blobs(batch: Batch) -> list[BlobRef]:
    """The payloads that planning `batch` reads."""
    steps = [step for group in batch.groups for trajectory in group.trajectories for step in trajectory.steps]
    return [step.blob for step in [*steps, *batch.samples]]


def plan(
    batch: Batch, payloads: Payloads, config: LearnerConfig, *, plan_id: str, version: Version, stay_steps: int
) -> Planned:
    """The optimizer step that makes `version`; `stay_steps` were made in this stay before it.

    Raises LearnerError for a batch nothing can be learned from.
    """
    rl = batch.phase.phase is Phase.RL
    if rl:
        micro_batches, without_signal = _grpo(batch.groups, payloads, config)
    else:
        micro_batches, without_signal = _cross_entropy(batch.samples, payloads, config), []
    if not micro_batches:
        raise LearnerError(f"lease {batch.lease} ({batch.phase.phase}) holds nothing to learn from")
    return Planned(
        plan=StepPlan(
            plan_id=plan_id,
            kind="grpo" if rl else "cross_entropy",
            version=version,
            micro_batches=micro_batches,
            lr=learning_rate(config, batch.phase.phase, stay_steps),
            fresh_optimizer=batch.fresh_optimizer,
            new_reference=batch.new_reference,
            kl_coef=config.kl_coef if rl else 0.0,
            clip_low=config.clip_low,
            clip_high=config.clip_high,
            policy=config.policy,
        ),
        without_signal=without_signal,
    )


def learning_rate(config: LearnerConfig, phase: Phase, stay_steps: int) -> float:
    """The phase's rate, rising linearly over the first `warmup_steps` of a stay."""
    full = {Phase.BC: config.bc_lr, Phase.PULSE: config.pulse_lr}.get(phase, config.rl_lr)
    return full * min(1.0, (stay_steps + 1) / (config.warmup_steps + 1))


def _grpo(groups: Sequence[GroupRef], payloads: Payloads, config: LearnerConfig) -> tuple[list[MicroBatch], list[str]]:
    trained: list[list[tuple[StepPayload, float]]] = []  # per group: its steps with their advantages
    without_signal: list[str] = []
    for group in groups:
        rewards = [
            step_rewards(verified=t.success, well_formed=[step.well_formed for step in t.steps])
            for t in group.trajectories
        ]
        advantages = group_advantages(rewards)
        if advantages is None:
            without_signal.append(group.group)
            continue
        steps = [payloads[step.blob] for t in group.trajectories for step in t.steps]
        flat = [value for trajectory in advantages for value in trajectory]
        trained.append(list(zip(steps, flat, strict=True)))
    weights = group_weights(
        [[len(payload.response_ids) for payload, _ in steps] for steps in trained], config.loss_aggregation
    )
    samples = [
        PackedSample(
            ids=payload.prompt_ids + payload.response_ids,
            response_len=len(payload.response_ids),
            weight=weight,
            advantage=advantage,
            behaviour_logprobs=payload.logprobs,
            temperature=payload.temperature,
        )
        for steps, step_weights in zip(trained, weights, strict=True)
        for (payload, advantage), weight in zip(steps, step_weights, strict=True)
    ]
    return pack(samples, config.token_budget), without_signal


def _cross_entropy(steps: Sequence[StepRef], payloads: Payloads, config: LearnerConfig) -> list[MicroBatch]:
    chosen = [payloads[step.blob] for step in steps]
    weights = sample_weights([len(payload.response_ids) for payload in chosen], config.loss_aggregation)
    samples = [
        PackedSample(
            ids=payload.prompt_ids + payload.response_ids, response_len=len(payload.response_ids), weight=weight
        )
        for payload, weight in zip(chosen, weights, strict=True)
    ]
    return pack(samples, config.token_budget)
