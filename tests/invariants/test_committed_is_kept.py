"""Invariant 5: what was answered survives kill -9 of the process that answered; only work in flight is lost."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from actors.replay.ledger.store import Ledger
from actors.replay.messages import Phase, Reservation
from tests.actors.replay.ledger_tools import Play, settings

PATIENCE_S = 60.0
CHILD = Path(__file__).resolve().parent.parent / "actors" / "replay" / "ledger_child.py"


def live_and_die(folder: Path, commits: int) -> list[tuple[str, int, int]]:
    """Run the child until it has answered so many commits, and a step, and kill it with SIGKILL; all it had answered.

    By then it is at some point of what comes next.
    """
    child = subprocess.Popen([sys.executable, "-P", str(CHILD), str(folder)], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        assert child.stdout.readline().split()[:1] == [b"ready"]
        end, said = time.monotonic() + PATIENCE_S, list[str]()
        while sum(line.startswith("commit") for line in said) < commits or not any(map(_is_step, said)):
            assert time.monotonic() < end, said
            said.append(child.stdout.readline().decode())
        child.kill()
        said += child.stdout.read().decode().splitlines(keepends=True)
    finally:
        child.kill()
        child.wait(timeout=10)
        child.stdout.close()
    whole = [line.split() for line in said if line.endswith("\n")]  # the last line may be cut
    return [(kind, int(number), int(value)) for kind, number, value in whole]


def _is_step(line: str) -> bool:
    return not line.startswith("commit")


@pytest.mark.slow
def test_committed_is_kept_after_kill_9(tmp_path: Path) -> None:
    """A store that serves eight seats and a learner is killed at three moments, each time on the same folder."""
    episodes: dict[int, bool] = {}
    leases: set[int] = set()
    for commits in (9, 20, 14):
        for kind, number, value in live_and_die(tmp_path, commits):
            if kind == "commit":
                episodes[number] = bool(value)
            else:
                leases.add(number)
        ledger = Ledger(tmp_path / "ledger.sqlite", settings(max_staleness=3))  # its opening audits the counts
        rows = ledger.tx.rows("SELECT token, success FROM episodes")
        found = {row["token"]: bool(row["success"]) for row in rows}
        assert episodes.items() <= found.items(), "an answered commit is gone"
        assert len(found) - len(episodes) <= 8 * 3, "more than what was in flight came out of nowhere"
        trained = {row["id"] for row in ledger.tx.rows("SELECT id FROM leases WHERE state = 'trained'")}
        assert leases <= trained, "an answered step is gone"
        assert ledger.tx.number("SELECT COUNT(*) FROM reservations WHERE state = 'out'") == 0
        ledger.close()
    assert len(episodes) > 20, "the child hardly did anything"
    assert leases


@pytest.mark.parametrize("same_run", [False, True])
def test_committed_is_kept_and_work_in_flight_is_released(tmp_path: Path, same_run: bool) -> None:
    play = Play(tmp_path, config=settings(incarnation="first"))
    play.rl()
    play.group([True, False])
    batch = play.batch()
    committed, playing = play.reserve(), play.reserve()
    play.commit(committed, True)
    before = play.figures()
    play.reopen("first" if same_run else "second")
    play.check()
    after = play.figures()
    assert (after.phase, after.groups_opened, after.episodes) == (before.phase, before.groups_opened, before.episodes)
    if same_run:
        # The actor alone was restarted: others still hold what they hold.
        assert after.seats_busy == 1
        play.commit(playing, False)
        play.trained(batch)
        return
    assert (after.seats_busy, after.groups_leased, after.faults) == (0, 0, {"run_killed": 1})
    play.serving("0.0")
    again = play.reserve()
    assert (again.group, again.slot) == (playing.group, playing.slot)
    assert play.batch().groups == batch.groups


def test_committed_is_kept_across_phases_and_rounds(tmp_path: Path) -> None:
    play = Play(tmp_path, demos=2)
    play.demonstrate(2)
    play.phase(Phase.BC, steps=4)
    first = play.batch()
    play.trained(first)
    play.open_eval("r", "0.1", ["e0", "e1"])
    play.commit(play.reserve(), True)
    play.reserve()
    second = play.batch()
    play.reopen()
    assert play.figures().phase_steps == 1
    assert play.batch().samples == second.samples, "the same minibatch comes again"
    work = play.reserve()
    assert isinstance(work, Reservation)
    assert work.task == "e1"
    play.commit(work, False)
    assert play.figures().evals[0].closed
