"""A ledger to play with: settings, a blocking ledger over a real file, and short ways to say what happens."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from actors.replay.config import LedgerSettings, ReplayConfig
from actors.replay.database.auditing import refuse_unsound
from actors.replay.database.transaction import Transaction
from actors.replay.ledger import demo_tasks, episodes, figures, phases, training
from actors.replay.ledger.store import Job, Ledger
from actors.replay.messages import (
    Batch,
    Checkpointed,
    Commit,
    Fault,
    Figures,
    LearnerResumed,
    NothingToTake,
    NoWork,
    OpenEval,
    Outcome,
    Phase,
    PhaseRef,
    Release,
    Reservation,
    Reserve,
    Sampling,
    Serving,
    SetPhase,
    StepEvidence,
    StepPayload,
    StepRef,
    Take,
    Trained,
    Unreadable,
)
from actors.replay.rules.cold_start import DemoTask
from actors.settings import DemosConfig, SamplingConfig
from runtime.errors import ComputerRLError
from runtime.messaging.message import BlobRef, Version
from runtime.segments import SegmentStore

FAULT = Fault(cause="connection_lost", detail="reset by peer", culprit="seat")
BROKEN = Fault(cause="setup_failed", detail="no such file", culprit="task")
_numbers = itertools.count(1)


def settings(
    *,
    demos: int = 0,
    incarnation: str = "",
    rl_steps_in_all: int | None = None,
    rollout_share: float = 0.0,
    single_version: bool = False,
    pulse: str = "full",
    max_new_tokens: int = 96,
    **rules: Any,
) -> LedgerSettings:
    """Small groups: G = 2, one group per step, S = 1 unless said otherwise."""
    small = {"group_size": 2, "min_group_size": 2, "groups_per_step": 1, "retries": 1, "sft_batch_size": 4} | rules
    return LedgerSettings(
        seed=7,
        train_tasks=["t0", "t1", "t2"],
        demo_tasks=["d0", "d1"],
        max_turns=5,
        demos=DemosConfig(count=demos),
        rules=ReplayConfig(**small),
        incarnation=incarnation,
        sampling=SamplingConfig(max_new_tokens=max_new_tokens),
        rl_steps_in_all=rl_steps_in_all,
        rollout_share=rollout_share,
        single_version=single_version,
        pulse=pulse,
    )


def v(text: str) -> Version:
    """`v("0.3")`."""
    return Version.parse(text)


def step(
    version: str | None = "0.0",
    *,
    newest: str = "",
    well_formed: bool = True,
    segment: str = "seat-000000.seg",
    surprisal: float = 0.6,
) -> StepRef:
    """A step whose payload is nowhere."""
    number = next(_numbers)
    blob = BlobRef(segment=segment, offset=24 + number * 100, size=50, digest=f"{number:032x}")
    oldest = None if version is None else v(version)
    return StepRef(
        blob=blob, prompt_tokens=10, response_tokens=3, well_formed=well_formed, oldest=oldest,
        newest=v(newest) if newest else oldest, surprisal=surprisal,
    )  # fmt: skip


def payload(**more: object) -> StepPayload:
    """A stored step of a demonstration, but for what is named."""
    plain: dict[str, object] = {
        "prompt_ids": [1, 2, 3], "response_ids": [4, 5], "logprobs": [], "spans": [], "temperature": 1.0,
        "observation": "", "response": "Agent.wait()", "action": None, "refusal": None, "result": None,
        "screenshot": None, "observe_ms": 1.25, "generate_ms": 0.0, "act_ms": 1e-9,
    }  # fmt: skip
    return msgspec.convert(plain | more, StepPayload)


class Play:
    """A ledger and everybody who talks to it."""

    def __init__(self, folder: Path, config: LedgerSettings | None = None, **rules: Any) -> None:
        self.path = folder / "ledger.sqlite"
        self.settings = config or settings(**rules)
        self.wall = 1000.0
        self.ledger = self._open()

    def _open(self) -> Ledger:
        ledger = Ledger(self.path, self.settings, self._now)
        # Kills here are of connections, never of the machine: the disk's own time proves nothing.
        ledger._connection.execute("PRAGMA synchronous=OFF")
        return ledger

    def _now(self) -> float:
        return self.wall

    def reopen(self, incarnation: str | None = None, **changed: Any) -> None:
        """As after kill -9: the old connection is dropped without any goodbye."""
        self.ledger._connection.close()
        self.settings = msgspec.structs.replace(self.settings, **changed)
        if incarnation is not None:
            self.settings = msgspec.structs.replace(self.settings, incarnation=incarnation)
        self.ledger = self._open()

    def do(self, job: Job) -> Any:
        """One job; raises its refusal. Afterwards everything must add up."""
        result = self.ledger.run([job])[0]
        self.check()
        if isinstance(result, ComputerRLError):
            raise result
        return result

    def check(self) -> None:
        """Counters equal rows, and the group counts add up."""
        refuse_unsound(self.ledger.tx.connection, strata=demo_tasks.rules_of(self.ledger.tx) is not None)
        seen = self.figures()
        alive = seen.groups_open + seen.groups_ready + seen.groups_leased
        assert seen.groups_opened == alive + sum(seen.endings.values())

    def figures(self) -> Figures:
        """The snapshot."""
        result: Figures = self.ledger.run([lambda tx: figures.figures(tx, 0)])[0]
        return result

    def events(self, name: str) -> list[dict[str, Any]]:
        """What was logged under a name so far."""
        return [fields for event, fields in self.ledger.tx.events if event.name == name]

    # -- seats

    def ask(self, seat: str = "desktop/0", request_id: str | None = None) -> Reservation | NoWork | None:
        """A wish for work."""
        wish = Reserve(seat=seat, request_id=request_id or f"r{next(_numbers)}")
        answers: list[Reservation | NoWork | None] = self.do(lambda tx: episodes.reserve_many(tx, [wish]))
        return answers[0]

    def reserve(self, seat: str | None = None) -> Reservation:
        """Work for a seat of its own."""
        found = self.ask(seat or f"desktop/{next(_numbers)}")
        assert isinstance(found, Reservation), found
        return found

    def commit(self, work: Reservation, success: bool, steps: list[StepRef] | None = None, **outcome: Any) -> None:
        """An episode ended."""
        end = Outcome(success=success, reason="verified" if success else "not_verified", **outcome)
        version = None if work.lane == "demo" else str(work.pin or "0.0")
        played = steps if steps is not None else [step(version), step(version)]
        msg = Commit(token=work.token, seat="s", outcome=end, steps=played, wall_s=2.0, busy_s=1.0)
        self.do(lambda tx: episodes.commit(tx, msg))

    def release(self, work: Reservation, fault: Fault = FAULT) -> None:
        """Infrastructure broke it."""
        msg = Release(token=work.token, seat="s", fault=fault)
        self.do(lambda tx: episodes.release(tx, msg))

    def group(self, outcomes: list[bool], version: str = "0.0") -> str:
        """Play one whole group; its id."""
        names = set()
        for outcome in outcomes:
            work = self.reserve()
            names.add(work.group)
            self.commit(work, outcome, [step(version), step(version)])
        assert len(names) == 1
        return str(names.pop())

    # -- the learner

    def take(self, trained: str | None = None, request_id: str | None = None) -> Batch | NothingToTake | None:
        """The learner asks."""
        version = v(trained) if trained else self.ledger.tx.trained
        msg = Take(learner="learner", request_id=request_id or f"l{next(_numbers)}", trained=version)
        answer: Batch | NothingToTake | None = self.do(lambda tx: training.take(tx, msg))
        return answer

    def batch(self) -> Batch:
        """The learner asks and gets."""
        found = self.take()
        assert isinstance(found, Batch), found
        return found

    def trained(self, batch: Batch, version: str | None = None, **figures_: float) -> None:
        """The batch became a step."""
        now = self.ledger.tx.trained
        made = v(version) if version else Version(lineage=now.lineage, step=now.step + 1)
        msg = Trained(lease=batch.lease, version=made, figures=figures_ or {"entropy": 1.0})
        self.do(lambda tx: training.trained(tx, msg))

    def learn(self, version: str = "0.0") -> None:
        """A step on a group of a success and a failure."""
        self.group([True, False], version)
        self.trained(self.batch())

    def unreadable(self, batch: Batch, blobs: list[BlobRef]) -> None:
        """The learner can't read `blobs` of the batch."""
        msg = Unreadable(lease=batch.lease, blobs=blobs, cause="gone")
        self.do(lambda tx: training.unreadable(tx, msg))

    def serving(self, version: str, sampler: str = "sampler/0") -> None:
        """A sampler serves a version."""
        self.do(lambda tx: phases.serving(tx, Serving(sampler=sampler, version=v(version))))

    def checkpointed(self, version: str) -> None:
        """A checkpoint was written."""
        self.do(lambda tx: training.checkpointed(tx, Checkpointed(version=v(version), location="x", digest="d")))

    def resumed(self, version: str, parent: str) -> None:
        """The learner came back."""
        self.do(lambda tx: training.resumed(tx, LearnerResumed(version=v(version), parent=v(parent))))

    # -- the supervisor

    def phase(self, phase: Phase, steps: int | None = None, cause: str = "counted") -> None:
        """Go to a phase."""
        now = self.ledger.tx.segment().ref
        after = PhaseRef(phase=phase, index=now.index + 1)
        msg = SetPhase(expected=now, next=after, cause=cause, evidence={"steps": 1.0}, steps=steps)
        self.do(lambda tx: phases.set_phase(tx, msg))

    def rl(self, steps: int | None = None) -> Play:
        """To RL, with a sampler that serves the newest weights; this."""
        self.phase(Phase.RL, steps)
        self.serving(str(self.ledger.tx.trained))
        return self

    def open_eval(self, name: str, version: str, tasks: list[str], temperature: float = 1.0, episodes: int = 1) -> None:
        """Open an evaluation round."""
        sampling = Sampling(temperature=temperature, max_new_tokens=32)
        of = " ".join(sorted(tasks))
        msg = OpenEval(round=name, version=v(version), tasks=tasks, task_set=of, sampling=sampling, episodes=episodes)
        self.do(lambda tx: phases.open_round(tx, msg))

    def demonstrate(self, count: int) -> None:
        """Record successful demonstrations."""
        for _ in range(count):
            self.commit(self.reserve(), True, [step(None), step(None, well_formed=False)])


class StoredPlay(Play):
    """A ledger whose episodes have payloads, in segments next to it."""

    def __init__(
        self, folder: Path, config: LedgerSettings | None = None, *, max_bytes: int = 1 << 30, **rules: Any
    ) -> None:
        super().__init__(folder, config, **rules)
        self.folder = folder
        self.segments = folder / "segments"
        self.store = SegmentStore(self.segments, "seat", max_bytes)

    def stored(
        self, version: str | None, text: str, screenshot: bytes = b"", pictures: Iterable[bytes] = ()
    ) -> StepRef:
        """A step that shows `text`, with what it refers to."""
        shot = self.store.append(screenshot) if screenshot else None
        shown = [self.store.append(one) for one in pictures]
        blob = self.store.append(msgspec.msgpack.encode(payload(observation=text, screenshot=shot)))
        return msgspec.structs.replace(step(version), blob=blob, screenshot=shot, pictures=shown)


Start = Callable[..., Play]


def series(tx: Transaction) -> list[StepEvidence]:
    """Of every RL step that counts, oldest first."""
    rows = tx.rows(
        "SELECT e.body FROM evidence e CROSS JOIN leases l ON l.id = e.lease WHERE l.state = 'trained' ORDER BY e.lease"
    )
    return [msgspec.json.decode(row["body"], type=StepEvidence) for row in rows]


def demo_tasks_begun(tx: Transaction) -> list[DemoTask]:
    """Every task tried so far, in the order in which they were begun."""
    return [demo_tasks._demo_task(row) for row in tx.rows("SELECT * FROM shown ORDER BY n")]
