"""What a run's end is judged by; what fails for a moment under its watch ends no run, and for good is its verdict."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from actors.cluster.config import deploy_files
from actors.cluster.config.schema import RequireConfig
from actors.cluster.runs import compose, execute, loop
from actors.cluster.runs.evaluation_rounds import ROUND, Compared, EvaluationRound, compare, gain_line, gains, unmet
from actors.errors import LedgerError
from actors.replay.messages import EvalFigures, Figures, Phase, PhaseRef, WaitFigures
from actors.replay.statistics import RoundEpisode, summarise
from runtime.errors import ActorFailed, ActorGone, ConfigError, StoreError
from runtime.messaging.message import Version
from runtime.messaging.refs import Ref
from tests.actors.cluster.fabricated import record
from tests.leaping_clock import LeapingClock

ONE = EvalFigures(
    round="0", version=Version(lineage=0, step=0), temperature=0.0, tasks=10, played=10, successes=4, feasible=10,
    faults=0, closed=True, task_set="t",
)  # fmt: skip


def figures(**changes: Any) -> Figures:
    base = Figures(
        revision=1,
        phase=PhaseRef(phase=Phase.RL, index=2),
        phase_steps=3,
        phase_limit=10,
        steps={"bc": 5, "rl": 3},
        stays={},
        trained=Version(lineage=0, step=8),
        checkpointed=None,
        served=None,
        demos=8,
        demo_attempts=9,
        groups_open=1,
        groups_ready=0,
        groups_leased=0,
        endings={"trained": 4, "zero_variance": 2},
        groups_opened=7,
        groups_wasted=2,
        successes_kept=3,
        episodes={"train": 40},
        faults={},
        train_success=[0.25, 0.75],
        entropy=[0.3],
        evals=[ONE],
        seats_busy=2,
        staleness={"0": 2, "1": 2},
    )
    return msgspec.structs.replace(base, **changes)


def test_a_smoke_run_needs_both_kinds_of_steps() -> None:
    require = RequireConfig(bc_steps=1, rl_steps=1)
    assert unmet(require, figures()) == []
    assert unmet(require, figures(steps={"bc": 5})) == ["0 of 1 rl steps"]
    assert unmet(require, figures(steps={"rl": 1})) == ["0 of 1 bc steps"]
    assert unmet(require, figures(endings={"zero_variance": 9})) == ["no group with differing rewards was trained"]


def held_out(
    name: str, successes: int, *, temperature: float = 1.0, closed: bool = True, tasks: int = 40
) -> EvaluationRound:
    """A round of `tasks` of a trained family, the first `successes` solved, and as many of an untrained one, none."""
    episodes = [RoundEpisode(task=f"text_editor/held-out/{n}", success=n < successes) for n in range(tasks)]
    episodes += [RoundEpisode(task=f"calc_column/held-out/{n}") for n in range(tasks)]
    step = {"after_bc": 1, "rl20": 21, "final": 41}[name.removesuffix(".greedy")]
    return EvaluationRound(
        name=name, version=f"0.{step}", step=step, temperature=temperature, max_new_tokens=64, task_set=str(tasks),
        closed=closed, summary=summarise(episodes), episodes=episodes,
    )  # fmt: skip


def test_an_interval_above_a_value_is_of_the_trained_families_and_says_its_numbers() -> None:
    require = RequireConfig(gain_above=0.0)
    assert "no two evaluation rounds" in unmet(require, figures())[0]
    found = gains([held_out("after_bc", 10), held_out("rl20", 2), held_out("final", 25)])
    assert unmet(require, figures(), found) == []
    (line,) = [gain_line(one) for one in found]
    assert line.startswith("held-out success 0.250 -> 0.625 from after_bc to final: +0.375 (95 % +0.2")
    assert "trained families, 40 instances, T=1" in line
    weak = gains([held_out("after_bc", 10), held_out("final", 11)])
    (missing,) = unmet(require, figures(), weak)
    assert "begins at -" in missing


def test_only_closed_rounds_of_one_kind_are_compared() -> None:
    mixed = [held_out("after_bc", 9), held_out("after_bc.greedy", 12, temperature=0.0), held_out("rl20", 3, tasks=20)]
    assert gains([*mixed, held_out("final", 20, closed=False)]) == []
    found: list[Compared] = gains([*mixed, held_out("final", 20), held_out("final.greedy", 30, temperature=0.0)])
    assert [(one.before, one.after, one.decoding) for one in found] == [
        ("after_bc", "final", "T=1"), ("after_bc.greedy", "final.greedy", "greedy"),
    ]  # fmt: skip
    assert found[0].families.keys() == {"text_editor", "calc_column"}
    with pytest.raises(ConfigError, match="can't be compared"):
        compare(mixed[0], mixed[1])


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
    run = record("r", file="smoke")
    monkeypatch.setattr(execute, "_until_the_end", fails)
    assert await execute.execute(here, run, loop.training()) == ("crashed", "it is torn")
