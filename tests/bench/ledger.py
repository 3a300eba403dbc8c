"""What each request of an actor costs a ledger of many episodes.

Invariant: the ledger's thread carries out each timed request in a durable transaction of its own. A second column times
the same requests to a small ledger on the same disk. Machines differ; the two columns hardly should.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster import output
from actors.replay.database.ledger_file import LEDGER
from actors.replay.database.transaction import Transaction
from actors.replay.ledger import episodes, figures, phases, retention, training
from actors.replay.ledger.store import Ledger
from actors.replay.messages import (
    Batch,
    Checkpointed,
    Commit,
    Fault,
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
    StepRef,
    Take,
    Trained,
)
from runtime.errors import ComputerRLError, ConfigError
from runtime.messaging.message import BlobRef, Version
from runtime.segments import SegmentStore
from tests.bench import synthetic
from tests.bench.report import Target, percentile

SMALL = 2_000  # episodes of the reference
STEPS_OF_EPISODE = 5
MEDIAN_MS, P99_MS = 20.0, 100.0
LEAST, MOST = 1_000, 20_000_000
NOT_HELD = ("open",)  # happens once in the life of a ledger's actor, and reads all of it on purpose


def step_of(blob: BlobRef, version: Version) -> StepRef:
    """A step whose payload lies in `blob`, drawn by weights of `version`."""
    return StepRef(
        blob=blob,
        prompt_tokens=900,
        response_tokens=20,
        well_formed=True,
        oldest=version,
        newest=version,
        function="click",
        line=f"{blob.offset:016x}",
        surprisal=4.0,
    )


class RequestTimes(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of request, in milliseconds."""

    request: str
    times: int
    median_ms: float
    p99_ms: float
    small_median_ms: float
    small_p99_ms: float


class LedgerResult(msgspec.Struct, frozen=True, kw_only=True):
    """All that `make bench NAME="capacity ledger"` prints."""

    episodes: int
    made_s: float
    size_mib: float
    requests: list[RequestTimes]
    targets: list[Target]
    met: bool


class _Played:
    """A ledger that is asked what a run asks it, with the seconds of every request."""

    def __init__(self, folder: Path) -> None:
        self.seconds: dict[str, list[float]] = {}
        self._folder = folder / "segments"
        self._numbers = iter(range(1 << 60))
        self._store = SegmentStore(self._folder, "bench")
        with self._time("open"):
            self.ledger = Ledger(folder / LEDGER, synthetic.settings())
        self._serve()

    @contextmanager
    def _time(self, request: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds.setdefault(request, []).append(time.perf_counter() - began)

    def _do(self, request: str, job: Callable[[Transaction], Any]) -> Any:
        with self._time(request):
            (answer,) = self.ledger.run([job])
        self.ledger.tx.events.clear()
        if isinstance(answer, ComputerRLError):
            raise answer
        return answer

    def _serve(self) -> None:
        for n in range(4):
            msg = Serving(sampler=f"sampler/{n}", version=self.ledger.tx.trained)
            self._do("Serving", partial(phases.serving, msg=msg))

    def _steps(self, version: Version) -> list[StepRef]:
        made = []
        for _ in range(STEPS_OF_EPISODE):
            blob = self._store.append(f"payload {next(self._numbers)}".encode())
            made.append(step_of(blob, version))
        return made

    def episode(self, success: bool) -> bool:
        """Reserve and end one; False when there is no work."""
        seat = f"desktop/{next(self._numbers) % 64}"
        wish = Reserve(seat=seat, request_id=f"bench {next(self._numbers)}")
        (work,) = self._do("Reserve", partial(episodes.reserve_many, requests=[wish]))
        if not isinstance(work, Reservation):
            return False
        if work.token % 50 == 0:
            fault = Fault(cause="connection_lost", detail="", culprit="seat")
            broken = Release(token=work.token, seat=seat, fault=fault)
            self._do("Release", partial(episodes.release, msg=broken))
            return True
        steps = self._steps(work.pin or self.ledger.tx.trained)
        outcome = Outcome(success=success, reason="verified" if success else "not_verified")
        done = Commit(token=work.token, seat=seat, outcome=outcome, steps=steps, wall_s=9.0, busy_s=5.0)
        self._do("Commit", partial(episodes.commit, msg=done))
        return True

    def step(self, number: int) -> None:
        """One optimizer step of RL, with all that a run asks meanwhile."""
        wins = 0
        while self.episode(wins % 2 == 0):
            wins += 1
            if wins % 8 == 0:
                self._do("figures", partial(figures.figures, revision=0))
                self._do("expire", episodes.expire)
        now = self.ledger.tx.trained
        take = Take(learner="learner", request_id=f"take {next(self._numbers)}", trained=now)
        batch = self._do("Take", partial(training.take, msg=take))
        if not isinstance(batch, Batch):
            raise ConfigError("the ledger gave no batch")
        made = Version(lineage=now.lineage, step=now.step + 1)
        msg = Trained(lease=batch.lease, version=made, figures={"loss": 0.5, "entropy": 0.4})
        self._do("Trained", partial(training.trained, msg=msg))
        self._serve()
        self._do("collect", retention.collect)
        self._do("sweep", partial(retention.sweep, folder=self._folder))
        if number % 5 == 4:
            saved = Checkpointed(version=made, location="x", digest="")
            self._do("Checkpointed", partial(training.checkpointed, msg=saved))

    def pulse(self) -> None:
        """A round, a pulse of two steps, and RL again."""
        now = self.ledger.tx.trained
        sampling = Sampling(temperature=1.0, max_new_tokens=96)
        tasks = [f"family{n % 12}/held-out/{n}" for n in range(64)]
        opened = OpenEval(round=f"r{now}", version=now, tasks=tasks, task_set="set", sampling=sampling)
        self._do("OpenEval", partial(phases.open_round, msg=opened))
        self._enter(Phase.PULSE, 2)
        while self.episode(True):
            pass
        for _ in range(2):
            now = self.ledger.tx.trained
            take = Take(learner="learner", request_id=f"take {next(self._numbers)}", trained=now)
            batch = self._do("Take of a pulse", partial(training.take, msg=take))
            made = Version(lineage=now.lineage, step=now.step + 1)
            msg = Trained(lease=batch.lease, version=made, figures={"loss": 0.5, "entropy": 0.4})
            self._do("Trained", partial(training.trained, msg=msg))
        saved = Checkpointed(version=self.ledger.tx.trained, location="x", digest="")
        self._do("Checkpointed", partial(training.checkpointed, msg=saved))
        self._enter(Phase.RL, None)
        self._serve()

    def _enter(self, phase: Phase, steps: int | None) -> None:
        now = self.ledger.tx.segment().ref
        to = PhaseRef(phase=phase, index=now.index + 1)
        msg = SetPhase(expected=now, next=to, cause="counted", evidence={}, steps=steps)
        self._do("SetPhase", partial(phases.set_phase, msg=msg))

    def close(self) -> None:
        """Close what is open."""
        self.ledger.close()
        self._store.close()


def measure(wanted: int, steps: int) -> LedgerResult:
    """Make a ledger of `wanted` episodes and play `steps` optimizer steps on it. Raises ConfigError."""
    if not LEAST <= wanted <= MOST:
        raise ConfigError(f"--episodes is {wanted}: from {LEAST} to {MOST}")
    if steps < 5:
        raise ConfigError(f"--steps is {steps}: at least 5")
    folder = Path(tempfile.mkdtemp(prefix="computerrl-ledger-"))
    try:
        sizes = {"small": SMALL, "large": wanted}
        seconds: dict[str, dict[str, list[float]]] = {}
        made_s = 0.0
        for name, size in sizes.items():
            (folder / name).mkdir()
            began = time.perf_counter()
            synthetic.make(folder / name / LEDGER, size)
            made_s = time.perf_counter() - began
            played = _Played(folder / name)
            try:
                for number in range(steps):
                    played.step(number)
                    if number % 10 == 9:
                        played.pulse()
            finally:
                played.close()
            seconds[name] = played.seconds
        size_mib = (folder / "large" / LEDGER).stat().st_size / (1 << 20)
    finally:
        shutil.rmtree(folder)
    requests = [_timed(name, seconds["large"][name], seconds["small"][name]) for name in seconds["large"]]
    targets = [
        target
        for one in requests
        if one.request not in NOT_HELD
        for target in (
            Target(name=f"{one.request}, median", measured=one.median_ms, bound=MEDIAN_MS, unit="ms"),
            Target(name=f"{one.request}, 99th percentile", measured=one.p99_ms, bound=P99_MS, unit="ms"),
        )
    ]
    met = all(target.met for target in targets)
    return LedgerResult(episodes=wanted, made_s=made_s, size_mib=size_mib, requests=requests, targets=targets, met=met)


def _timed(name: str, large: list[float], small: list[float]) -> RequestTimes:
    def ms(values: list[float], share: float) -> float:
        return round(1000 * (percentile(values, share) or 0.0), 2)

    return RequestTimes(
        request=name,
        times=len(large),
        median_ms=ms(large, 0.5),
        p99_ms=ms(large, 0.99),
        small_median_ms=ms(small, 0.5),
        small_p99_ms=ms(small, 0.99),
    )


def run(wanted: int, steps: int, *, as_json: bool) -> int:
    """Measure and print; 1 when a target is missed."""
    found = measure(wanted, steps)
    if as_json:
        output.document(found)
        return int(not found.met)
    output.line(f"a ledger of {found.episodes} episodes: {found.size_mib:.0f} MiB, made in {found.made_s:.0f} s")
    head = ("REQUEST", "TIMES", "MEDIAN ms", "99 % ms", f"OF {SMALL} EPISODES", "99 % ms")
    rows = [
        (one.request, one.times, one.median_ms, one.p99_ms, one.small_median_ms, one.small_p99_ms)
        for one in found.requests
    ]
    output.table(head, rows)
    missed = [target.row() for target in found.targets if not target.met]
    output.line(f"targets: median {MEDIAN_MS:g} ms, 99th percentile {P99_MS:g} ms, all but {', '.join(NOT_HELD)}")
    for name, measured, bound, _ in missed:
        output.line(f"MISSED  {name}: {measured}, {bound}")
    return int(not found.met)
