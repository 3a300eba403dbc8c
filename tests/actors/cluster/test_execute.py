"""What fails for a moment under a run's watch ends no run; what fails for good is its verdict and no traceback."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from actors.cluster.config import deploy_files
from actors.cluster.runs import compose, execute, loop
from actors.cluster.runs.evaluation_rounds import ROUND
from actors.cluster.runs.run_folder import RunRecord
from actors.errors import LedgerError
from actors.replay.messages import Figures, Phase, PhaseRef, WaitFigures
from runtime.errors import ActorFailed, ActorGone, ConfigError, StoreError
from runtime.messaging.message import Version
from runtime.messaging.refs import Ref
from tests.actors.cluster.test_criterion import ROUND as ONE
from tests.actors.cluster.test_criterion import figures
from tests.leaping_clock import LeapingClock

DONE = figures(phase=PhaseRef(phase=Phase.DONE, index=9), demos=80, demo_left=0)
PASSING = (StoreError("the disk is full"), ActorFailed("StoreError", "the disk is full"), ActorGone("replay restarts"))


class Parts(Ref):
    """Stands in for the system: a ledger that answers in turn and repeats its last word, and no learner."""

    def __init__(self, *answers: Figures | Exception) -> None:
        self._node = SimpleNamespace(clock=LeapingClock())  # type: ignore[assignment]
        self.answers = list(answers)
        self.asked: list[Any] = []

    def ref(self, name: str, _: str = "") -> Parts:
        return self

    def names(self) -> list[str]:
        return ["desktop/0"]

    def on_command(self, *_: Any) -> None:
        """Nobody commands it."""

    async def ask(self, msg: Any, *, timeout_s: float, trace: str | None = None) -> Any:
        if not isinstance(msg, WaitFigures):
            self.asked.append(msg)
            return None
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> compose.Plan:
    monkeypatch.setattr(execute, "REFRESH_S", 0.005)
    deploy, _ = deploy_files.load("smoke", ())
    return loop.training().planned(deploy, run_dir=Path("run"), incarnation="i")


class Started(execute.LiveRun):
    """A run whose parts need no start."""

    async def start(self) -> Figures:
        return await self.until(lambda _: True)


def begun(plan: compose.Plan, job: execute.Job, *answers: Figures | Exception) -> Started:
    return Started(Parts(*answers), plan, job, Kept())  # type: ignore[arg-type]


class Kept(execute.RunDisplay):
    """Keeps what is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.every_s = 0.005
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.lines.append(text)


async def played(run: Started, job: execute.Job) -> Figures:
    follows = asyncio.ensure_future(run.follow())
    try:
        async with asyncio.timeout(60):
            return await job.program(run)
    finally:
        follows.cancel()


@pytest.mark.parametrize("job", [loop.training(), loop.recording()])
async def test_what_a_ledger_fails_for_a_moment_ends_no_run(plan: compose.Plan, job: execute.Job) -> None:
    run = begun(plan, job, *PASSING, DONE)
    assert await played(run, job) is DONE


async def test_a_look_that_fails_ends_no_run(plan: compose.Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[Any] = [ConfigError("it is locked"), OSError("no such file"), "seen"]
    seen = asyncio.Event()

    def look(_: Any) -> Any:
        answer = looks.pop(0) if len(looks) > 1 else looks[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(execute.RunReader, "look", look)
    monkeypatch.setattr(Kept, "show", lambda _, now, *__: seen.set() if now == "seen" else None)
    shows = asyncio.ensure_future(begun(plan, loop.training(), DONE).show())
    async with asyncio.timeout(60):
        await seen.wait()
    assert not shows.done()
    shows.cancel()


async def test_the_loop_goes_from_phase_to_phase_wherever_it_begins(plan: compose.Plan) -> None:
    order = [Phase.DEMO, Phase.BC, Phase.DEMO, Phase.BC, Phase.RL, Phase.PULSE, Phase.RL]
    segments = [
        figures(phase=PhaseRef(phase=phase, index=at), demo_strata={"a/gui": at}) for at, phase in enumerate(order)
    ]
    for first in (0, 4):
        job = loop.training()
        run = begun(plan, job, *segments[first:], DONE)
        assert await played(run, job) is DONE
        shown = run._shown
        assert isinstance(shown, Kept)
        wanted = [] if first else ["recorded: a/gui 1", "recorded: a/gui 3"]
        assert shown.lines == wanted, "what each part of the cold start recorded"


async def test_an_evaluation_fixes_the_weights_opens_its_round_and_waits_for_its_end(plan: compose.Plan) -> None:
    version = Version(lineage=0, step=7)
    job = loop.evaluation(version)
    mine = msgspec.structs.replace(ONE, round=ROUND)
    rounds = [[], [msgspec.structs.replace(mine, closed=False)], [mine]]
    run = begun(plan, job, *(figures(evals=some) for some in rounds))
    end = await played(run, job)
    parts = run._system
    assert [type(msg).__name__ for msg in parts.asked] == ["Pin", "OpenEval", "CloseRun"]  # type: ignore[attr-defined]
    assert parts.asked[1].version == version  # type: ignore[attr-defined]
    assert loop.judge_round(plan, end) == ("ok", None)
    assert loop.judge_round(plan, figures())[0] == "failed"


async def test_what_fails_for_good_is_a_verdict(
    plan: compose.Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any) -> Figures:
        raise LedgerError("it is torn")

    here = msgspec.structs.replace(plan, run_dir=tmp_path)
    run = RunRecord(name="r", file="smoke", seed=0, build="b", versions={}, started="", started_s=0.0)
    monkeypatch.setattr(execute, "_until_the_end", fails)
    assert await execute.execute(here, run, loop.training()) == ("crashed", "it is torn")
