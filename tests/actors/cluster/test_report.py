"""What a run is said to have achieved: intervals, overlap, and a report of a fabricated ledger."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cluster.report.run_data import read_run
from actors.cluster.report.show import show
from actors.cluster.report.time_spent import common_s, overlapping, union
from actors.replay.database import ledger_file
from actors.replay.database.ledger_file import connect
from actors.replay.statistics import Rate
from runtime.errors import ConfigError

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda s: (float(s[0]), float(s[0] + s[1]))))


def covered(spans: list[tuple[float, float]]) -> set[int]:
    return {second for start, end in spans for second in range(int(start), int(end))}


@given(SPANS, SPANS)
def test_common_seconds_are_those_in_both(a: list[tuple[float, float]], b: list[tuple[float, float]]) -> None:
    assert common_s(union(a), union(b)) == len(covered(a) & covered(b))
    found = overlapping(a, b)
    assert found.learner_s == len(covered(a))
    assert 0.0 <= found.share <= 1.0


def test_no_overlap_is_zero() -> None:
    found = overlapping([(0.0, 2.0)], [(2.0, 5.0)])
    assert (found.share, found.episodes_at_once, found.rl_s) == (0.0, 0.0, 5.0)


def test_wilson_interval_of_a_known_case() -> None:
    low, high = Rate(10, 20).interval  # 0.2993 and 0.7007 by hand
    assert (low, high) == (pytest.approx(0.2993, abs=1e-4), pytest.approx(0.7007, abs=1e-4))
    assert Rate(0, 0).interval == (0.0, 1.0)
    assert Rate(0, 5).interval[0] == 0.0


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "done"
    (folder / "logs").mkdir(parents=True)
    connection, _ = connect(folder / "ledger.sqlite")
    with closing(connection):
        stay = "INSERT INTO stays VALUES (?, ?, ?, NULL, ?, 0, ?, '{}', 0.0)"
        connection.execute(stay, (0, 0, "bc", "0.0", "begin"))
        connection.execute(stay, (1, 1, "rl", "0.5", "bc_complete"))
        connection.execute(
            "INSERT INTO rounds(name, version, temperature, max_new_tokens, task_set, tasks, closed)"
            " VALUES ('after_bc', '0.5', 1.0, 64, 'abc', 4, 1)"
        )
        episode = (
            "INSERT INTO episodes(token, lane, task, stay, round_id, success, feasible, reason, wall_s, busy_s,"
            " ended_step) VALUES (?, 'eval', ?, 1, 1, ?, 1, 'x', 1.0, 1.0, 5)"
        )
        for token, (task, success) in enumerate([("a/held-out/0", 1), ("a/held-out/1", 0), ("b/held-out/0", 1)]):
            connection.execute(episode, (token, task, success))
        tasks = ["a/held-out/0", "a/held-out/1", "b/held-out/0", "b/held-out/1"]
        for n, task in enumerate(tasks):
            state = "played" if n < 3 else "fault"
            connection.execute(
                "INSERT INTO round_tasks(round_id, n, task, state) VALUES (1, ?, ?, ?)", (n, task, state)
            )
    return folder


def test_a_round_has_three_denominators(run: Path) -> None:
    (found,) = read_run(run).rounds
    whole = found.summary.whole
    assert (whole.all, whole.feasible, whole.without_faults) == (Rate(2, 4), Rate(2, 4), Rate(2, 3))
    assert {family: rates.all for family, rates in found.summary.families.items()} == {"a": Rate(1, 2), "b": Rate(1, 2)}


def test_the_command_prints_and_draws(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert show([run], out, as_json=True) == 0
    document = json.loads(capsys.readouterr().out)
    whole = document["figures"]["rounds"][0]["summary"]["whole"]
    assert (whole["all"]["successes"], whole["all"]["n"]) == (2, 4)
    assert not (out / "curve.png").exists(), "a curve of one round would be a dot"


def test_a_run_without_a_ledger_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no ledger"):
        read_run(tmp_path)
    (tmp_path / "ledger.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(ConfigError, match=r"the ledger of .* can't be read: file is not a database"):
        read_run(tmp_path)


def test_a_run_is_read_wherever_it_lies(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of any name, and in one that can't be written, where a ledger's readers make no file of theirs."""
    odd = run.rename(run.with_name("100% done? #1"))
    assert len(read_run(odd).rounds) == 1
    tried = ledger_file._tried

    def unwritable(uri: str) -> sqlite3.Connection:
        if uri.endswith("mode=ro"):
            raise sqlite3.OperationalError("unable to open database file")
        return tried(uri)

    monkeypatch.setattr(ledger_file, "_tried", unwritable)
    assert len(read_run(odd).rounds) == 1
    (odd / "ledger.sqlite-wal").write_bytes(b"of a writer")
    with pytest.raises(ConfigError, match="unable to open database file"):
        read_run(odd)
