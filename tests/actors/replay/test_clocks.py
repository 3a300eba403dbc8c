"""What the ledger's times are worth when somebody sets the clock, and after a reboot."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from ledger_tools import BROKEN, settings, v

from actors.replay.ledger import episodes, phases, task_choice
from actors.replay.ledger.store import Job, Ledger
from actors.replay.messages import Phase, PhaseRef, Release, Reservation, Reserve, Serving, SetPhase


def do(ledger: Ledger, job: Job) -> Any:
    return ledger.run([job])[0]


def rl(ledger: Ledger) -> None:
    to = SetPhase(
        expected=PhaseRef(phase=Phase.DEMO, index=0), next=PhaseRef(phase=Phase.RL, index=1), cause="counted",
        evidence={},
    )  # fmt: skip
    do(ledger, lambda tx: phases.set_phase(tx, to))
    do(ledger, lambda tx: phases.serving(tx, Serving(sampler="sampler/0", version=v("0.0"))))


def reserve(ledger: Ledger, seat: str) -> Reservation:
    wish = Reserve(seat=seat, request_id=f"{seat} {time.monotonic_ns()}")
    (found,) = do(ledger, lambda tx: episodes.reserve_many(tx, [wish]))
    assert isinstance(found, Reservation)
    return found


@pytest.mark.parametrize("jump_s", [1e7, -1e7])
def test_whoever_sets_the_clock_revokes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump_s: float) -> None:
    ledger = Ledger(tmp_path / "ledger.sqlite", settings(lease_s=100.0))
    rl(ledger)
    work = reserve(ledger, "desktop/0")
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + jump_s)
    due = do(ledger, episodes.expire)
    assert due is not None
    assert 0 < due - time.monotonic() <= 100.0
    tx = ledger.tx
    assert tx.number("SELECT token FROM reservations WHERE state = 'out'") == work.token
    assert tx.served == v("0.0"), "no sampler has been silent"
    ledger.close()


def test_after_a_reboot_what_waited_is_due_and_nothing_else_changes(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    ledger = Ledger(path, settings(), lambda: 90_000.0, boot="one")
    rl(ledger)
    for _ in range(task_choice.POLICY.faults_in_a_row):
        work = reserve(ledger, "desktop/0")
        while work.task != "t0":
            work = reserve(ledger, "desktop/0")
        msg = Release(token=work.token, seat="desktop/0", fault=BROKEN)
        do(ledger, lambda tx, msg=msg: episodes.release(tx, msg))  # type: ignore[misc]
    assert not task_choice.playable(ledger.tx, "t0")
    before = ledger.tx.rows("SELECT id, state, ending FROM groups ORDER BY id")
    ledger.close()
    ledger = Ledger(path, settings(), lambda: 10.0, boot="one")  # the actor alone was restarted
    assert not task_choice.playable(ledger.tx, "t0")
    ledger.close()
    ledger = Ledger(path, settings(), lambda: 10.0, boot="two")
    assert task_choice.playable(ledger.tx, "t0"), "ten seconds after the boot, or it would rest for a day"
    assert ledger.tx.rows("SELECT id, state, ending FROM groups ORDER BY id") == before
    ledger.close()
