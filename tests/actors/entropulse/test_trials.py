"""A supervisor that tries pulses: over a real ledger with planted curves, and on simulated policies."""

from __future__ import annotations

import math
import random
from pathlib import Path
from statistics import fmean
from typing import Any, Self

import msgspec

from actors.cluster.report import page
from actors.cluster.report.run_data import Switch
from actors.entropulse.config import EntropulseConfig
from actors.entropulse.curves import collapsed, worth_keeping
from actors.entropulse.decide import OpenRound, Remain, SwitchPhase, decide
from actors.replay.database import queries
from actors.replay.messages import Batch, Lane, NothingToTake, Phase, PhaseRef, Reservation, TrialFigures
from runtime.messaging.message import Version
from tests.actors.entropulse.world import World, settings
from tests.bench.test_bench_programme import played

TRIALS: dict[str, Any] = {
    "pulse": "trials", "pulses": 2, "total_rl_steps": 42, "rl_steps_per_phase": 6, "plateau_window": 6,
    "min_phase_steps": 4, "pulse_steps": 3,
}  # fmt: skip
TASKS = [f"e{n}" for n in range(20)]
SCATTER = 0.6  # standard deviation of ln entropy from batch to batch; recorded trunks have 0.56 and 0.68


class Trials(World):
    """Success stays and entropy falls. A pulse that `helps` raises success; held-out tasks are solved likewise."""

    def __init__(self, folder: Path, *, helps: bool = False, **config: Any) -> None:
        known = {"trial_tasks": TASKS, "trial_set": "t"}
        of = msgspec.structs.replace(settings(**(TRIALS | config)), **known)
        super().__init__(folder, of)
        self.helps, self.level = helps, 0.6
        self.levels: dict[Version, float] = {}  # of the weights that a round may have pinned
        self.drawn = 0
        self.back: list[Version] = []

    def supervise(self) -> bool:
        decision = decide(self.play.figures(), self.config)
        if isinstance(decision, OpenRound):
            trained = str(self.play.ledger.tx.trained)
            tasks = self.config.trial_tasks if decision.trial else self.config.eval_tasks
            self.play.open_eval(decision.name, trained, tasks, decision.temperature)
            self.rounds.append((decision.name, trained))
            return False
        return super().supervise()

    def solves(self, work: Reservation) -> bool:
        if work.lane is Lane.EVAL and work.pin is not None:
            return int(work.task[1:] or 0) < 20 * self.levels.get(work.pin, self.level)
        self.drawn += 1
        return work.lane is Lane.DEMO or work.slot == 0 or (self.drawn * 7919 % 100) / 100 < self.level

    def got(self, taken: Batch) -> None:
        if taken.phase.phase is Phase.PULSE:
            self.level += 0.08 if self.helps else -0.02
        super().got(taken)
        self.levels[self.play.ledger.tx.trained] = self.level

    def act(self) -> None:
        super().act()
        taken = self.play.take()
        if isinstance(taken, NothingToTake) and taken.back_to is not None:
            now = self.play.ledger.tx.trained
            self.back.append(taken.back_to)
            self.play.resumed(f"{now.lineage + 1}.{taken.back_to.step}", str(taken.back_to))
            self.level = self.levels[taken.back_to]
            self.levels[self.play.ledger.tx.trained] = self.level
        elif isinstance(taken, Batch):
            self.got(taken)

    def trials(self) -> TrialFigures:
        found = self.play.figures().trials
        assert found is not None
        return found


def test_a_pulse_that_helps_is_tried_and_kept(tmp_path: Path) -> None:
    world = Trials(tmp_path, helps=True, pulses=1)
    world.run(2000)
    causes = [cause for _, cause in world.causes]
    assert causes.index("trial") + 1 == causes.index("kept")
    assert not world.back
    assert world.play.figures().steps[Phase.PULSE] == TRIALS["pulse_steps"]


def test_one_that_does_not_is_rolled_back_to_its_checkpoint(tmp_path: Path) -> None:
    world = Trials(tmp_path)
    world.run(4000)
    verdicts = [one for one in world.causes if one[1] in ("trial", "kept", "rolled_back")]
    assert verdicts == [("pulse", "trial"), ("rl", "rolled_back")] * 2
    shown = queries.trials(tx := world.play.ledger.tx.connection)
    assert [(row["phase"], row["cause"]) for row in shown] == verdicts
    assert [row["cause"] for row in queries.phases(tx)][-2:] == ["after_trial", "counted"]
    assert [row["name"] for row in queries.rounds(tx)] == ["after_bc", "final"], "no trial's"
    assert [row["name"] for row in queries.rounds_so_far(tx)] == ["after_bc", "final"]
    decisions = [Switch(phase=row["phase"], start=1, cause=row["cause"], evidence={"lost": 2.0}) for row in shown]
    table = page.trials_of(msgspec.structs.replace(played("r", {}), trials=decisions))
    assert [tuple(row) for row in table.rows][1] == ("RL", 1, "rolled back", "lost 2")
    first = next(batch for batch in world.taken if batch.phase.phase is Phase.PULSE)
    assert first.trial_from == world.back[0], "what the learner goes back to is what it was asked to keep"
    figures = world.play.figures()
    assert (figures.steps[Phase.RL], figures.steps.get(Phase.PULSE, 0)) == (42, 0), "undone steps are made again"
    renewed = [batch for batch in world.taken if batch.fresh_optimizer and batch.phase.phase is Phase.RL]
    assert len(renewed) == 1, "RL goes on with its optimizer"


def test_a_pulse_that_was_kept_stays_when_a_later_one_is_rolled_back(tmp_path: Path) -> None:
    world = Trials(tmp_path, helps=True, total_rl_steps=90)
    while "kept" not in [cause for _, cause in world.causes]:
        world.act()
        world.supervise()
    world.helps = False
    world.run(4000)
    verdicts = [cause for _, cause in world.causes if cause in ("trial", "kept", "rolled_back")]
    assert verdicts == ["trial", "kept", "trial", "rolled_back"]
    assert world.play.figures().steps == {Phase.BC: 2, Phase.RL: 90, Phase.PULSE: TRIALS["pulse_steps"]}
    tx = world.play.ledger.tx
    left = [tx.trial_left(segment) for segment in tx.path()[::-1] if tx.segment(segment.root).cause == "trial"]
    assert left == [False, True]


def test_a_learner_that_is_killed_on_its_way_back_is_sent_back_again(tmp_path: Path) -> None:
    world = Trials(tmp_path, pulses=1)
    while world.causes[-1:] != [("rl", "rolled_back")]:
        world.act()
        world.supervise()
    tx = world.play.ledger.tx
    end = tx.trained
    world.play.resumed(f"{end.lineage + 1}.{end.step}", str(end))
    assert world.trials().state == "going_back"
    assert decide(world.play.figures(), world.config) == Remain("the learner to go back to the weights before trial 1")
    taken = world.play.take()
    assert isinstance(taken, NothingToTake)
    assert taken.back_to is not None
    world.play.resumed(f"{end.lineage + 2}.{taken.back_to.step}", str(taken.back_to))
    assert world.trials().state == "left"
    assert not isinstance(world.play.take(), Batch), "the trial is not played again"
    world.run(4000)
    assert [cause for _, cause in world.causes].count("trial") == 1


def begun(world: Trials) -> TrialFigures:
    """Plays until a trial has begun."""
    while not any(cause == "trial" for _, cause in world.causes):
        world.act()
        world.supervise()
    return world.trials()


def test_a_trial_none_of_whose_tasks_could_be_played_is_undone(tmp_path: Path) -> None:
    world = Trials(tmp_path, helps=True, pulses=1)
    begun(world)
    while not any(one.round == "trial1_before" and one.closed for one in world.play.figures().evals):
        world.act()
    of_before = "SELECT id FROM rounds WHERE name = 'trial1_before'"
    world.play.ledger.tx.execute(f"UPDATE episodes SET task = 'another' WHERE round_id IN ({of_before})")
    world.run(4000)
    assert "rolled_back" in [cause for _, cause in world.causes]


def test_no_pulse_is_tried_without_a_success_to_learn(tmp_path: Path) -> None:
    world = Trials(tmp_path)
    figures, trials = world.play.figures(), TrialFigures(
        under_way=False, begun=1, state="", success=[0.5] * 20, entropy=[0.8**n for n in range(20)], judged=False,
        gained=0, lost=0,
    )  # fmt: skip
    of = msgspec.structs.replace(
        figures, phase=PhaseRef(phase=Phase.RL, index=2), phase_limit=6, phase_steps=6, trials=trials,
        checkpointed=figures.trained, steps={"rl": 20}, successes_kept=3,
    )  # fmt: skip
    assert decide(of, world.config) == OpenRound("trial2_before", 1.0, True, trial=True)
    without = decide(msgspec.structs.replace(of, successes_kept=0), world.config)
    assert isinstance(without, SwitchPhase)
    assert without.change.cause == "counted"


def test_a_trial_that_a_resume_undid_may_be_made_again(tmp_path: Path) -> None:
    world = Trials(tmp_path)
    assert begun(world).begun == 1
    tx = world.play.ledger.tx
    world.play.resumed(f"{tx.trained.lineage + 1}.2", "0.2")
    assert world.trials().begun == 0


class Simulated:
    """A policy's figures: its success rises or stays with each step of RL, and its entropy falls slowly or fast.

    A pulse cures an `ill` one. A batch's entropy scatters as in recorded runs. Episodes of a step, 24, and the 100
    tasks of a trial's rounds are drawn with its success at that time.
    """

    STEPS, SEGMENT, PULSE = 120, 12, 12

    def __init__(self, seed: int, *, ill: bool) -> None:
        self.rng = random.Random(seed)
        self.ill, self.tried, self.kept = ill, 0, 0
        self.level, self.nats = self.rng.uniform(0.35, 0.55), 0.15
        self.success, self.entropy = list[float](), list[float]()
        self.config = EntropulseConfig(pulse="trials", pulses=3, rl_steps_per_phase=self.SEGMENT)

    def segment(self) -> None:
        """Success rises by 0.2 points a step where nothing ails it, and stays while entropy falls."""
        for _ in range(self.SEGMENT):
            self.level = min(0.95, self.level + (0.0 if self.ill else 0.002))
            self.nats *= 0.97 if self.ill else 0.995
            groups = [min(1.0, max(0.0, self.rng.gauss(self.level, 0.15))) for _ in range(3)]
            self.success.append(fmean(self.rng.random() < p for p in groups for _ in range(8)))
            self.entropy.append(self.nats * math.exp(self.rng.gauss(0, SCATTER)))

    def run(self) -> Self:
        """All segments of RL, and trials between them; one that is undone leaves nothing."""
        for _ in range(self.STEPS // self.SEGMENT):
            self.segment()
            if self.tried >= self.config.pulses or collapsed(self.success, self.entropy, self.config) is None:
                continue
            self.tried += 1
            if worth_keeping(*self.rounds(self.level, self.level + self.PULSE * 0.002 * self.ill))[0]:
                self.kept, self.ill = self.kept + 1, False
                self.success, self.entropy = [], []
        return self

    def rounds(self, before: float, after: float) -> tuple[int, int]:
        """Of 100 tasks that either round solves by itself: those that the second alone solves, the first alone."""
        hard = [min(1.0, max(0.0, self.rng.gauss(before, 0.35))) for _ in range(100)]
        both = [(self.rng.random() < p, self.rng.random() < min(1.0, max(0.0, p + after - before))) for p in hard]
        return sum(b > a for a, b in both), sum(b < a for a, b in both)


def test_a_pulse_is_tried_on_simulated_policies_whose_entropy_has_collapsed() -> None:
    played_out = [Simulated(seed, ill=True).run() for seed in range(200)]
    tried = sum(bool(one.tried) for one in played_out)
    assert tried >= 180, tried
    # It gains 2.4 points, which 100 tasks show in four of ten; there are three trials.
    kept = sum(one.kept for one in played_out)
    assert kept >= 70, kept


def test_nothing_is_tried_on_healthy_simulated_policies() -> None:
    tried = sum(bool(Simulated(seed, ill=False).run().tried) for seed in range(200))
    assert tried <= 4, tried


def test_a_pulse_is_kept_by_an_exact_sign_test() -> None:
    assert worth_keeping(5, 3) == (False, {"gained": 5.0, "lost": 3.0, "chance": 93 / 256})
    assert worth_keeping(5, 2) == (True, {"gained": 5.0, "lost": 2.0, "chance": 29 / 128})
    assert worth_keeping(0, 0)[0] is False, "nothing changed"
