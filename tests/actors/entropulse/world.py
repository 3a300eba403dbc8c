"""Stand-ins for seats, learner and sampler around a real ledger: a supervisor's decisions, watched alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from actors.entropulse.config import EntropulseConfig, EntropulseSettings, EvaluationConfig
from actors.entropulse.decide import Finished, OpenRound, Remain, SwitchPhase, decide
from actors.replay.ledger import phases
from actors.replay.messages import Batch, Lane, NothingToTake, Phase, Reservation
from actors.settings import DemosConfig, SamplingConfig
from tests.actors.replay.ledger_tools import Play, step


def settings(*, demos: int = 2, interval: int = 0, **config: Any) -> EntropulseSettings:
    return EntropulseSettings(
        entropulse=EntropulseConfig(**({"bc_steps": 2, "total_rl_steps": 3, "pulses": 0, "pulse_steps": 2} | config)),
        evaluation=EvaluationConfig(interval=interval),
        eval_tasks=["e0", "e1"],
        sampling=SamplingConfig(max_new_tokens=32),
        demos=DemosConfig(count=demos),
        task_set="e",
        samplers=["sampler/0"],
    )


class World:
    """Seats, a learner and a sampler that do what the ledger gives them, and the supervisor."""

    def __init__(self, folder: Path, config: EntropulseSettings, **rules: Any) -> None:
        self.config = config
        of = config.entropulse
        # As `compose` says it to the ledger.
        told: dict[str, Any] = {"rl_steps_in_all": of.total_rl_steps, "pulse": of.pulse}
        self.play = Play(folder, demos=config.demos.count, **told, **rules)
        self.lanes: list[tuple[Phase, int, Lane]] = []  # of what was handed out: phase, steps left to it, lane
        self.causes: list[tuple[str, str]] = []
        self.rounds: list[tuple[str, str]] = []
        self.entropy = 1.0
        self.taken: list[Batch] = []

    def supervise(self) -> bool:
        decision = decide(self.play.figures(), self.config)
        match decision:
            case SwitchPhase(change=change):
                self.play.do(lambda tx: phases.set_phase(tx, change))
                self.causes.append((str(change.next.phase), change.cause))
            case OpenRound(name=name, temperature=temperature):
                trained = str(self.play.ledger.tx.trained)
                self.play.open_eval(name, trained, self.config.eval_tasks, temperature)
                self.rounds.append((name, trained))
            case Finished():
                return True
            case Remain():
                pass
        return False

    def solves(self, work: Reservation) -> bool:
        return work.lane is not Lane.TRAIN or work.slot == 0

    def act(self) -> None:
        trained = str(self.play.ledger.tx.trained)
        self.play.serving(trained)
        for seat in range(2):
            work = self.play.ask(f"desktop/{seat}")
            if isinstance(work, Reservation):
                seen = self.play.figures()
                self.lanes.append((seen.phase.phase, (seen.phase_limit or 0) - seen.phase_steps, work.lane))
                drawn = [step(trained, surprisal=self.entropy)] if work.lane is Lane.TRAIN else None
                self.play.commit(work, self.solves(work), drawn)
        taken = self.play.take()
        if isinstance(taken, Batch):
            self.taken.append(taken)
            self.got(taken)
        elif isinstance(taken, NothingToTake) and taken.checkpoint:
            self.play.checkpointed(trained)

    def got(self, taken: Batch) -> None:
        self.play.trained(taken)
        self.entropy *= 0.8

    def run(self, looks: int = 400) -> None:
        self.run_until(lambda: False, looks)

    def run_until(self, there: Callable[[], bool], looks: int = 400) -> None:
        for _ in range(looks):
            if there() or self.supervise():
                return
            self.act()
        raise AssertionError(f"not done: {self.play.figures()}")


class Busy(World):
    """The supervisor looks only while the learner is in the middle of a step, if there is one."""

    def __init__(self, folder: Path, config: EntropulseSettings) -> None:
        super().__init__(folder, config)
        self.step: Batch | None = None
        self.late = 0  # steps made after their stay had ended

    def act(self) -> None:
        if self.step is not None:
            self.late += self.step.phase != self.play.figures().phase
            self.play.trained(self.step)
            self.entropy *= 0.8
            self.step = None
        super().act()

    def got(self, taken: Batch) -> None:
        self.step = taken
