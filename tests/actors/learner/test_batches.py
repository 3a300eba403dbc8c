"""From a batch to the plan of a step."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.learner.batches import (
    Exercises,
    PlannedStep,
    UnreadableError,
    WithoutSignalError,
    blobs,
    plan,
    read_payloads,
    read_pictures,
    with_plan_file,
)
from actors.learner.config import LearnerConfig, RlConfig, Schedule, SftConfig
from actors.replay.messages import (
    Batch,
    GroupRef,
    Phase,
    PhaseRef,
    PictureRef,
    StepPayload,
    StepRef,
    TrajectoryRef,
    Unreadable,
    VersionSpan,
)
from policy.advantage import AdvantageLevel
from policy.errors import LearnerError
from policy.packing import Aggregation, MicroBatch, PackedSample
from policy.plugins import PlayedTask
from policy.settings import Objective
from runtime.errors import ConfigError, PayloadLost
from runtime.messaging.message import BlobRef, Version
from tests.actors.learner.stand_ins import payload

V1 = Version(lineage=0, step=1)


class Stored:
    """Steps with payloads."""

    def __init__(self) -> None:
        self.payloads: dict[BlobRef, StepPayload] = {}
        self._rng = random.Random(0)

    def step(self, length: int, *, well_formed: bool = True, drawn: bool = True) -> StepRef:
        body = payload(self._rng, V1 if drawn else None, length)
        blob = BlobRef(segment="x-000000.seg", offset=len(self.payloads), size=1, digest="")
        self.payloads[blob] = body
        return StepRef(
            blob=blob,
            prompt_tokens=len(body.prompt_ids),
            response_tokens=length,
            well_formed=well_formed,
            oldest=V1 if drawn else None,
        )

    def plan(
        self, taken: Batch, config: LearnerConfig | RlConfig | None = None, version: Version = V1, **more: Any
    ) -> PlannedStep:
        """The plan of a batch; a config may be RL's part alone."""
        of = LearnerConfig(rl=config) if isinstance(config, RlConfig) else config or LearnerConfig()
        return plan(taken, self.payloads, of, plan_id="p", version=version, **more)


@pytest.fixture
def stored() -> Stored:
    return Stored()


def batch(phase: Phase, groups: list[GroupRef], samples: list[StepRef], *, first: bool = False) -> Batch:
    return Batch(
        lease=4,
        phase=PhaseRef(phase=phase, index=1),
        groups=groups,
        samples=samples,
        staleness=[],
        fresh_optimizer=first,
        new_reference=first and phase is Phase.RL,
    )


def group(name: str, *trajectories: tuple[bool, list[StepRef]]) -> GroupRef:
    return GroupRef(
        group=name,
        task="t",
        trajectories=[TrajectoryRef(token=i, success=s, steps=steps) for i, (s, steps) in enumerate(trajectories)],
    )


def samples_of(planned: PlannedStep) -> dict[int, PackedSample]:
    """By the number of response tokens."""
    return {sample.response_len: sample for micro in planned.plan.micro_batches for sample in micro.samples}


def advantages(planned: PlannedStep) -> dict[int, float]:
    return {n: sample.advantage for n, sample in samples_of(planned).items()}


def test_rl_batches_carry_advantages_and_the_papers_weights(stored: Stored) -> None:
    good = (True, [stored.step(2), stored.step(3, well_formed=False)])
    bad = (False, [stored.step(4)])
    even = group("even", (True, [stored.step(9)]), (True, [stored.step(9)]))
    taken = batch(Phase.RL, [group("g", good, bad), even], [], first=True)
    config = LearnerConfig(loss_aggregation=Aggregation.STEP_MEAN, rl=RlConfig(kl_coef=0.5, lr=1e-3, warmup_steps=0))
    planned = stored.plan(taken, config)
    assert planned.without_signal == ["even"]
    made = planned.plan
    assert (made.kind, made.version, made.lr, made.objective.kl_coef) == ("grpo", V1, 1e-3, 0.5)
    assert made.fresh_optimizer
    assert made.new_reference
    samples = samples_of(planned)
    # R = {1, 0 (malformed), 0}: mean 1/3, std sqrt(2)/3.
    assert samples[2].advantage == pytest.approx(2**0.5)
    assert samples[3].advantage == pytest.approx(-(2**-0.5))
    assert samples[4].advantage == pytest.approx(-(2**-0.5))
    assert [samples[n].weight for n in (2, 3, 4)] == pytest.approx([1 / (1 * 3 * n) for n in (2, 3, 4)])
    first = stored.payloads[good[1][0].blob]
    assert samples[2].ids == first.prompt_ids + first.response_ids
    assert samples[2].behaviour_logprobs == first.logprobs
    assert len(blobs(taken)) == 5
    drawn = {n: stored.payloads[step.blob].logprobs for n, step in zip((2, 3, 4), [*good[1], *bad[1]], strict=True)}
    assert planned.figures.pop("entropy") == pytest.approx(-sum(map(sum, drawn.values())) / 9)
    assert planned.figures.pop("advantage_logprob_cov") == pytest.approx(
        # mean A log mu less mean A times mean log mu, over 2, 3 and 4 tokens
        (2**0.5 * sum(drawn[2]) - 0.5**0.5 * sum(drawn[3] + drawn[4])) / 9
        - (2 * 2**0.5 - 7 * 0.5**0.5) / 9 * sum(map(sum, drawn.values())) / 9
    )
    assert planned.figures == {
        "stay_step": 0.0,
        "groups": 1.0,
        "groups_without_signal": 1.0,
        "steps_not_computed": 0.0,
    }


OF_TRAJECTORY = AdvantageLevel.TRAJECTORY
MIXED = [(True, [2]), (False, [4])]  # whether it succeeded, and its steps: the length of a malformed one is negative
ADVANTAGES: dict[str, tuple[dict[str, Any], list[tuple[bool, list[int]]], dict[int, float]]] = {
    "shared by a trajectory": ({"advantage": OF_TRAJECTORY}, [(True, [2, -3]), (False, [4])], {2: 1, 3: 1, 4: -1}),
    "unscaled": ({"advantage": OF_TRAJECTORY, "advantage_std": False}, MIXED, {2: 0.5, 4: -0.5}),
    # Rewards 1/2, 1/2 and -1/2: mean 1/6.
    "a reward of one's own": (
        {"reward": f"{__name__}:shorter", "advantage_std": False}, [(True, [2, 3]), (False, [4])],
        {2: 1 / 3, 3: 1 / 3, 4: -2 / 3},
    ),
    "negatives for less": ({"negative_scale": 0.25}, MIXED, {2: 1.0, 4: -0.25}),
    "what teaches nothing is not computed": ({"negative_scale": 0.0}, MIXED, {2: 1.0}),
}  # fmt: skip


@pytest.mark.parametrize("case", ADVANTAGES)
def test_advantages_by_hand(case: str) -> None:
    rl, trajectories, expected = ADVANTAGES[case]
    stored = Stored()
    played = [(won, [stored.step(abs(n), well_formed=n > 0) for n in steps]) for won, steps in trajectories]
    own = group("g", *played)
    even = group("even", (True, [stored.step(9)]), (True, [stored.step(9)]))
    others = [] if case == "a reward of one's own" else [even]
    taken = msgspec.structs.replace(batch(Phase.RL, [own, *others], []), staleness=[0, 3])
    planned = stored.plan(taken, RlConfig(**rl))
    assert advantages(planned) == pytest.approx(expected)
    assert planned.without_signal == ["even"] * len(others)
    assert (planned.figures["staleness_mean"], planned.figures["staleness_max"]) == (1.5, 3.0)


def test_a_reward_out_of_bounds_and_one_of_verdicts_are_refused(stored: Stored) -> None:
    taken = batch(Phase.RL, [group("g", (True, [stored.step(2)]), (False, [stored.step(4)]))], [])
    with pytest.raises(LearnerError, match=r"learner\.rl\.reward .*:loud gave 99\.0: a reward is from -10 to 10"):
        stored.plan(taken, RlConfig(reward=f"{__name__}:loud"))
    with pytest.raises(ConfigError, match=r"learner\.rl\.reward .*advantage trajectory is of verdicts"):
        RlConfig(reward="a:b", advantage=AdvantageLevel.TRAJECTORY)


def shorter(played: PlayedTask) -> list[float]:
    """A reward that likes short episodes."""
    return [1.0 / len(played.steps) if played.success and one.well_formed else -0.5 for one in played.steps]


def loud(played: PlayedTask) -> list[float]:
    return [99.0] * len(played.steps)


def test_below_its_target_entropy_costs_the_surest_successes_or_gets_a_bonus(stored: Stored) -> None:
    steps = [stored.step(2), stored.step(3), stored.step(4), stored.step(5)]
    for step, surprise in zip(steps, (0.1, 0.2, 0.6, 0.3), strict=True):
        body = stored.payloads[step.blob]
        logprobs = [-surprise] * len(body.logprobs)
        stored.payloads[step.blob] = msgspec.structs.replace(body, logprobs=logprobs)
    taken = batch(Phase.RL, [group("g", (True, steps[:3]), (False, steps[3:]))], [])
    # Entropy is (0.2 + 0.6 + 2.4 + 1.5) / 14 = 0.3357, 58 % below 0.8: of three successes the surest is left out.
    rl = RlConfig(entropy_target=0.8)
    planned = stored.plan(taken, rl)
    samples = samples_of(planned)
    assert sorted(samples) == [3, 4, 5]
    assert planned.plan.objective.entropy_coef == 0.0
    rl = RlConfig(entropy_target=0.8, entropy_coef=0.01)
    planned = stored.plan(taken, rl)
    assert planned.plan.objective.entropy_coef == pytest.approx(0.01 * (1 - 4.7 / 14 / 0.8))
    assert planned.plan.objective.entropy == pytest.approx(4.7 / 14)
    samples = samples_of(planned)
    assert sorted(samples) == [2, 3, 4, 5]
    rl = msgspec.structs.replace(rl, negative_scale=0.0)
    planned = stored.plan(taken, rl)
    samples = samples_of(planned)
    assert samples[5].advantage == 0.0, "the bonus is of all tokens"
    above = stored.plan(taken, RlConfig(entropy_target=0.3))
    assert len(samples_of(above)) == 4


def same(played: PlayedTask) -> list[float]:
    return [0.5] * len(played.steps)


def test_a_batch_that_no_advantage_of_counts_is_given_back_by_its_groups(stored: Stored) -> None:
    mixed = group("g", (True, [stored.step(2)]), (False, [stored.step(3)]))
    with pytest.raises(WithoutSignalError) as caught:
        stored.plan(batch(Phase.RL, [mixed], []), RlConfig(reward=f"{__name__}:same"))
    assert (caught.value.report.without_signal, caught.value.report.blobs) == ([mixed.group], [])


@pytest.mark.parametrize("aggregation", list(Aggregation))
def test_steps_without_any_loss_are_not_computed_and_still_count(aggregation: Aggregation, stored: Stored) -> None:
    taken = batch(Phase.RL, [group("g", (True, [stored.step(2)]), (False, [stored.step(4), stored.step(5)]))], [])
    taken = msgspec.structs.replace(taken, new_reference=True)
    found = {}
    for kl_coef in (0.0, 0.01):
        config = LearnerConfig(rl=RlConfig(negative_scale=0.0, kl_coef=kl_coef), loss_aggregation=aggregation)
        planned = stored.plan(taken, config)
        found[kl_coef] = samples_of(planned)
        assert planned.figures["steps_not_computed"] == 3 - len(found[kl_coef])
        assert planned.plan.new_reference == (kl_coef > 0)
    assert sorted(found[0.01]) == [2, 4, 5], "the KL term holds steps of no advantage, too"
    assert found[0.0] == {2: found[0.01][2]}, "with the share that it has beside them"


def test_a_step_drawn_in_part_with_older_weights_is_not_fresh(stored: Stored) -> None:
    mixed, plain = stored.step(4), stored.step(3)
    body = stored.payloads[mixed.blob]
    older = VersionSpan(version=Version(lineage=0, step=0), start=0, end=2)
    newer = VersionSpan(version=V1, start=2, end=4)
    stored.payloads[mixed.blob] = msgspec.structs.replace(body, spans=[older, newer])
    taken = batch(Phase.RL, [group("g", (True, [mixed]), (False, [plain]))], [])
    planned = stored.plan(taken, version=Version(lineage=0, step=2))
    samples = samples_of(planned)
    assert {n: s.fresh for n, s in samples.items()} == {4: False, 3: True}


def test_the_objective_s_settings_reach_the_plan(stored: Stored) -> None:
    said = RlConfig(
        epochs=3, dual_clip=4.0, tis_cap=5.0, clip_ratio_low=0.1, clip_ratio_high=0.4, importance_ratio="decoupled",
        ratio="sequence", mismatch="token_mask", lr_schedule=Schedule.LINEAR, lr=1.0, warmup_steps=0,
    )  # fmt: skip
    sft = SftConfig(lr=1.0, warmup_steps=0, lr_schedule=Schedule.LINEAR)
    config = LearnerConfig(rl=said, sft=sft, lr_floor=0.0)
    rl = batch(Phase.RL, [group("g", (True, [stored.step(2)]), (False, [stored.step(3)]))], [])
    rl = msgspec.structs.replace(rl, stay_step=3, stay_limit=5)
    made = stored.plan(rl, config).plan
    assert made.epochs == 3
    assert made.objective == Objective(
        dual_clip=4.0, tis_cap=5.0, clip_ratio_low=0.1, clip_ratio_high=0.4, importance_ratio="decoupled",
        ratio="sequence", mismatch="token_mask",
    )  # fmt: skip
    assert made.lr == 0.25
    joined = msgspec.structs.replace(rl, stay_step=1, stay_limit=5, steps_joined=12)  # steps 12 to 16 of 17
    assert stored.plan(joined, config).plan.lr == 1 - 13 / 16
    cloning = msgspec.structs.replace(batch(Phase.BC, [], [stored.step(4)]), stay_step=1, stay_limit=3)
    made = stored.plan(cloning, config).plan
    assert (made.epochs, made.lr) == (1, 0.5)
    again = stored.plan(msgspec.structs.replace(cloning, steps_joined=9), config).plan  # after resampling
    assert again.lr == config.sft.pulse_lr / 2


@pytest.mark.parametrize(("phase", "lr"), [(Phase.BC, 3e-3), (Phase.PULSE, 4e-3)])
def test_other_batches_are_cross_entropy_on_responses(phase: Phase, lr: float, stored: Stored) -> None:
    steps = [stored.step(2, drawn=False), stored.step(6, drawn=False)]
    config = LearnerConfig(
        sft=SftConfig(lr=3e-3, pulse_lr=4e-3, warmup_steps=0), loss_aggregation=Aggregation.TOKEN_MEAN
    )
    planned = stored.plan(batch(phase, [], steps), config)
    made = planned.plan
    assert (made.kind, made.lr, made.objective.kl_coef) == ("cross_entropy", lr, 0.0)
    assert {n: s.weight for n, s in samples_of(planned).items()} == {2: 1 / 8, 6: 1 / 8}


def test_a_batch_without_any_signal_is_refused(stored: Stored) -> None:
    even = group("even", (False, [stored.step(2)]), (False, [stored.step(2)]))
    for taken in (batch(Phase.RL, [even], []), batch(Phase.BC, [], [])):
        with pytest.raises(LearnerError, match="lease 4"):
            stored.plan(taken)


def test_stored_steps_are_read_once_each_and_all_that_are_lost_are_named(stored: Stored) -> None:
    whole, lost, torn = (stored.step(3).blob for _ in range(3))
    asked: list[BlobRef] = []

    def answers(wanted: list[BlobRef]) -> list[bytes | PayloadLost]:
        asked.extend(wanted)
        found = {whole: msgspec.msgpack.encode(stored.payloads[whole]), lost: PayloadLost("freed"), torn: b"\xc1"}
        return [found[blob] for blob in wanted]

    assert read_payloads(answers, [whole, whole], 4) == {whole: stored.payloads[whole]}
    assert asked == [whole], "a payload that comes twice is read once"
    with pytest.raises(UnreadableError, match="lease 4: 2 payloads can't be read, the first: freed") as caught:
        read_payloads(answers, [whole, lost, torn], 4)
    assert caught.value.report == Unreadable(lease=4, blobs=[lost, torn], cause="freed")


def shown(stored: Stored, step: StepRef, png: bytes, number: int) -> BlobRef:
    """`step` with a picture of its own blob."""
    blob = BlobRef(segment="p-000000.seg", offset=number, size=len(png), digest="")
    seen = PictureRef(blob=blob, digest=hashlib.sha256(png).hexdigest(), width=1, height=1, at=1)
    stored.payloads[step.blob] = msgspec.structs.replace(stored.payloads[step.blob], pictures=[seen])
    return blob


@pytest.mark.parametrize("phase", [Phase.RL, Phase.BC])
def test_a_sample_carries_the_very_picture_that_its_model_saw(stored: Stored, phase: Phase) -> None:
    steps = [stored.step(2), stored.step(3)]
    pngs = {shown(stored, one, png, n): png for n, (one, png) in enumerate(zip(steps, (b"a", b"b"), strict=True))}
    taken = batch(phase, [group("g", (True, steps[:1]), (False, steps[1:]))], [])
    taken = taken if phase is Phase.RL else batch(phase, [], steps)
    pictures = read_pictures(lambda wanted: [pngs[blob] for blob in wanted], stored.payloads, 4)
    samples = samples_of(stored.plan(taken, pictures=pictures))
    assert {n: [one.png for one in sample.pictures] for n, sample in samples.items()} == {2: [b"a"], 3: [b"b"]}
    assert with_plan_file(stored.plan(taken, pictures={blob: bytes(900) for blob in pngs}).plan, Path("/nowhere"), 4000)
    with pytest.raises(KeyError):
        stored.plan(taken)  # a sample without its picture would be another one


def test_a_missing_or_changed_picture_makes_its_steps_unreadable_by_name(stored: Stored) -> None:
    missing, changed, whole, text = (stored.step(3) for _ in range(4))
    found: dict[BlobRef, bytes | PayloadLost] = {
        shown(stored, missing, b"a", 0): PayloadLost("freed"),
        shown(stored, changed, b"b", 1): b"B",
        shown(stored, whole, b"c", 2): b"c",
    }
    with pytest.raises(UnreadableError, match="picture_missing: freed") as caught:
        read_pictures(lambda wanted: [found[blob] for blob in wanted], stored.payloads, 4)
    assert caught.value.report.blobs == [missing.blob, changed.blob], "what the ledger knows the steps by"
    del stored.payloads[missing.blob], stored.payloads[text.blob]
    with pytest.raises(UnreadableError, match="picture_changed: "):
        read_pictures(lambda wanted: [found[blob] for blob in wanted], stored.payloads, 4)


def test_a_pulse_without_trajectories_learns_its_exercises_alone(stored: Stored) -> None:
    taken = batch(Phase.PULSE, [], [])
    rehearsal = Exercises(7).of(Version(lineage=0, step=3), FOUR)
    learned = plan(taken, {}, FOUR, plan_id="p", version=Version(lineage=0, step=3), rehearsal=rehearsal).plan
    assert (learned.micro_batches, learned.rehearsal, learned.kind) == (rehearsal[0], [], "cross_entropy")
    with pytest.raises(LearnerError, match="holds nothing to learn from"):
        plan(taken, {}, FOUR, plan_id="p", version=Version(lineage=0, step=3))


FOUR = LearnerConfig(rehearsal=4, rehearsal_coef=0.25, token_budget=700)


def samples(batches: list[MicroBatch]) -> list[PackedSample]:
    return [sample for batch in batches for sample in batch.samples]


def test_a_step_has_its_own_exercises_and_always_the_same() -> None:
    exercises = Exercises(7)
    [drawn] = exercises.of(Version(lineage=0, step=3), FOUR)
    assert len(samples(drawn)) == 4
    assert [drawn] == Exercises(7).of(Version(lineage=0, step=3), FOUR)
    assert [drawn] != exercises.of(Version(lineage=0, step=4), FOUR)
    assert [drawn] == exercises.of(Version(lineage=1, step=3), FOUR), "made again after a crash"
    assert [drawn] != Exercises(8).of(Version(lineage=0, step=3), FOUR)


def test_their_tokens_share_the_coefficient_evenly() -> None:
    [drawn] = Exercises(0).of(Version(lineage=0, step=1), FOUR)
    found = samples(drawn)
    assert sum(sample.weight * sample.response_len for sample in found) == pytest.approx(0.25)
    assert len({sample.weight for sample in found}) == 1
    assert all(batch.tokens <= 700 or len(batch.samples) == 1 for batch in drawn)
    assert all(sample.spans and list(sample.targets())[-1] == len(sample.ids) - 1 for sample in found)
