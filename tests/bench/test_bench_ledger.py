"""A ledger made in bulk adds up like one that was played, and every request an actor makes is timed."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from actors.replay.database.auditing import audit
from tests.bench import synthetic
from tests.bench.__main__ import main


def test_what_is_made_adds_up(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    synthetic.make(path, 3000)
    with closing(sqlite3.connect(path)) as ledger:
        ledger.row_factory = sqlite3.Row
        assert 3000 <= ledger.execute("SELECT COUNT(*) FROM episodes").fetchone()[0] < 4000
        assert {check.name: check.wrong for check in audit(ledger, tmp_path) if check.wrong} == {}


@pytest.mark.proof
def test_every_request_is_timed_beside_a_small_ledger(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capacity", "ledger", "--episodes", "3000", "--steps", "10", "--json"]) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    asked = {one["request"] for one in found["requests"]}
    assert {
        "Reserve",
        "Commit",
        "Release",
        "Take",
        "Trained",
        "Checkpointed",
        "Serving",
        "OpenEval",
        "SetPhase",
    } <= asked
    assert {"figures", "expire", "collect", "sweep", "Take of a pulse"} <= asked
    assert all(one["median_ms"] > 0 and one["small_median_ms"] > 0 for one in found["requests"])


def test_nonsense_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capacity", "ledger", "--episodes", "0"]) == 2
    assert "--episodes is 0: from 1000 to" in capsys.readouterr().err
