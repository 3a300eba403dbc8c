"""What fails for a moment under a run's watch ends no run; what fails for good is its verdict and no traceback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from actors.cluster.config import deploy_files
from actors.cluster.runs import compose, execute, progress
from actors.cluster.runs.run_folder import RunRecord
from actors.errors import LedgerError
from actors.replay.messages import CloseRun, Figures, Phase, PhaseRef, WaitFigures
from runtime.errors import ActorFailed, ActorGone, StoreError
from runtime.messaging.refs import Ref
from tests.actors.cluster.test_criterion import figures
from tests.leaping_clock import LeapingClock

DONE = figures(phase=PhaseRef(phase=Phase.DONE, index=9), demos=80, demo_left=0)
PASSING = (StoreError("the disk is full"), ActorFailed("StoreError", "the disk is full"), ActorGone("replay restarts"))


class Parts(Ref):
    """Stands in for the system: a ledger that answers in turn, and no learner."""

    def __init__(self, *answers: Figures | Exception) -> None:
        self._node = SimpleNamespace(clock=LeapingClock())  # type: ignore[assignment]
        self.answers = list(answers)

    def ref(self, name: str, _: str = "") -> Parts:
        return self if name == "replay" else Parts(*[ActorGone(name)] * 9)

    def names(self) -> list[str]:
        return ["desktop/0"]

    async def ask(self, msg: Any, *, timeout_s: float, trace: str | None = None) -> Any:
        if isinstance(msg, CloseRun):
            return None
        assert isinstance(msg, WaitFigures) or self.answers[0] is not DONE, (msg, timeout_s)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> compose.Plan:
    monkeypatch.setattr(execute, "REFRESH_S", 0.0)
    deploy, _ = deploy_files.load("smoke", ())
    return compose.plan(deploy, run_dir=Path("run"), incarnation="i")


@pytest.mark.parametrize("watch", [execute._watch, execute._watch_recording])
async def test_what_a_ledger_fails_for_a_moment_ends_no_run(plan: compose.Plan, watch: Callable[..., Any]) -> None:
    system = Parts(*PASSING, DONE)
    assert await watch(system, plan, progress.PlainLines()) is DONE
    assert not system.answers


async def test_what_fails_for_good_is_a_verdict(
    plan: compose.Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any) -> Figures:
        raise LedgerError("it is torn")

    here = msgspec.structs.replace(plan, run_dir=tmp_path)
    run = RunRecord(name="r", file="smoke", seed=0, build="b", versions={}, started="", started_s=0.0)
    monkeypatch.setattr(execute, "_until_the_end", fails)
    assert await execute.execute(here, run, execute.training()) == ("crashed", "it is torn")


async def test_figures_are_shown_while_a_run_begins_and_what_breaks_its_beginning_ends_it(plan: compose.Plan) -> None:
    shown: list[progress.Snapshot] = []
    begins = asyncio.Event()

    class Shown(progress.PlainLines):
        def show(self, shot: progress.Snapshot) -> None:
            shown.append(shot)
            if len(shown) == 2:
                begins.set()

    async def begin() -> None:
        await begins.wait()

    async def breaks() -> None:
        raise StoreError("the disk is full")

    many = Parts(*[DONE] * 9)
    assert await execute.follow(many, plan, Shown(), lambda _: True, begin=begin) is DONE  # type: ignore[arg-type]
    assert 2 <= len(shown) < 9
    with pytest.raises(StoreError, match="the disk is full"):
        await execute.follow(Parts(*[DONE] * 9), plan, Shown(), lambda _: True, begin=breaks)  # type: ignore[arg-type]
