"""What the ledger's times are worth when somebody sets the clock, and after a reboot."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from ledger_tools import BROKEN, Play, v

from actors.replay.ledger import episodes, task_choice


@pytest.mark.parametrize("jump_s", [1e7, -1e7])
def test_whoever_sets_the_clock_revokes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float) -> None:
    play, real = Play(tmp_path, lease_s=100.0), time.time
    play.ledger._clock = time.monotonic
    play.rl()
    work = play.reserve()
    monkeypatch.setattr(time, "time", lambda: real() + jump_s)
    assert 0 < play.do(episodes.expire) - time.monotonic() <= 100.0
    assert play.ledger.tx.number("SELECT token FROM reservations WHERE state = 'out'") == work.token
    assert play.ledger.tx.served == v("0.0"), "no sampler has been silent"


def test_after_a_reboot_what_waited_is_due_and_nothing_else_changes(tmp_path: Path) -> None:
    play = Play(tmp_path)
    play.wall = 90_000.0
    play.rl()
    for _ in range(task_choice.POLICY.faults_in_a_row):
        work = play.reserve("desktop/0")
        while work.task != "t0":
            work = play.reserve("desktop/0")
        play.release(work, BROKEN)
    before = play.ledger.tx.rows("SELECT id, state, ending FROM groups ORDER BY id")
    play.wall = 10.0
    play.reopen()  # the actor alone was restarted
    assert not task_choice.playable(play.ledger.tx, "t0")
    play.do(lambda tx: tx.set_meta("boot", "another"))
    play.reopen()
    assert task_choice.playable(play.ledger.tx, "t0"), "ten seconds after the boot, or it would rest for a day"
    assert play.ledger.tx.rows("SELECT id, state, ending FROM groups ORDER BY id") == before
