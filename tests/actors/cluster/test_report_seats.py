"""Where seats' time went: every second once, idle ones by cause."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cluster.report import seats as seats_report
from actors.cluster.report.bars import shares
from actors.cluster.report.machine import GUESTS, OTHERS, machine_time
from actors.cluster.report.seats import BUSY, Timeline, causes, seat_time
from actors.cluster.report.show import show
from actors.replay.schema import connect

CHANGES = st.lists(st.tuples(st.integers(0, 50), st.sampled_from("abc")))


@given(CHANGES, st.integers(0, 50), st.integers(0, 50))
def test_a_span_is_split_without_loss(changes: list[tuple[int, str]], start: int, lasts: int) -> None:
    timeline = Timeline("a", [(float(t), value) for t, value in changes])
    split = timeline.split((float(start), float(start + lasts)))
    assert sum(split.values()) == lasts
    for value, seconds in split.items():
        assert seconds == sum(timeline.at(t + 0.5) == value for t in range(start, start + lasts))


def told(actor: str, t0: float, idle: float, waited_for: str = "work", **stages: float) -> dict[str, Any]:
    seconds = {"idle": idle, **stages}
    t1 = t0 + sum(seconds.values())
    return {
        "event": "seat_time", "actor": actor, "t": t1, "t0": t0, "t1": t1, "waited_for": waited_for,
        "seconds": {name: value for name, value in seconds.items() if value},
    }  # fmt: skip


def phase(t: float, name: str) -> dict[str, Any]:
    return {"event": "phase_changed", "t": t, "phase": name}


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 3), st.booleans()), min_size=1, max_size=8),
    st.integers(0, 3),
    st.integers(0, 60),
)
def test_all_of_seats_times_wall_has_a_cause(
    wishes: list[tuple[int, int, int, bool]], absent: int, cloning: int
) -> None:
    lines = [phase(float(cloning), "bc"), phase(float(cloning) + 7.0, "rl")]
    for seat in range(2):
        at = float(seat)
        for idle, busy, reporting, ledger in wishes:
            waited = "ledger" if ledger else "work"
            line = told(f"desktop/{seat}", at, float(idle), waited, acting=float(busy), reporting=float(reporting))
            lines.append(line)
            at = line["t1"]
    found = seat_time(lines, seats=2 + absent)
    assert found is not None
    assert found.seats == 2 + absent
    assert found.busy_s + sum(found.idle_s.values()) == pytest.approx(found.seats * found.wall_s)
    assert found.busy_s == 2 * sum(busy for _, busy, _, _ in wishes)
    assert 0.0 <= found.busy <= 1.0


def test_idle_seats_wait_for_what_the_run_does_meanwhile() -> None:
    lines = [
        phase(10.0, "bc"),
        {"event": "eval_round_opened", "t": 20.0},
        {"event": "eval_round_closed", "t": 25.0},
        phase(25.0, "rl"),
        {"event": "learner_step", "t": 33.0, "t0": 30.0, "t1": 32.0, "phase": "rl"},
        {"event": "weights_loaded", "t": 33.5},
        phase(40.0, "pulse"),
        phase(45.0, "done"),
    ]
    why = causes(lines)
    assert [why.at(t) for t in (5.0, 15.0, 22.0, 27.0, 31.0, 33.0, 36.0, 42.0)] == [
        seats_report.DEMOS, seats_report.CLONING, seats_report.EVALUATION, seats_report.GROUPS, seats_report.STEP,
        seats_report.WEIGHTS, seats_report.GROUPS, seats_report.PULSE,
    ]  # fmt: skip
    found = seat_time([*lines, told("desktop/0", 0.0, 5.0, acting=5.0), told("desktop/0", 10.0, 50.0)])
    assert found is not None
    assert found.wall_s == 45.0  # what comes after the work's end is nobody's
    assert found.busy_s == 5.0
    assert found.idle_s[seats_report.CLONING] == 10.0
    assert found.idle_s[seats_report.EVALUATION] == 5.0
    assert found.busy_by_phase["demo"] == 0.5
    assert set(found.stages_s) == set(BUSY)
    assert seat_time(lines) is None


def test_the_processor_is_shared_out_once() -> None:
    lines = [
        {"event": "cpu_used", "t": 10.0, "span_s": 10.0, "cores": 2, "seconds": {"rank": 4.0}, "machine_s": 15.0},
        {"event": "desktop_booted", "t": 1.0, "desktop": "a"},
        {"event": "desktop_gone", "t": 6.0, "desktop": "a", "holder": "desktop/0", "cpu_s": 3.0},
        {"event": "desktop_booted", "t": 5.0, "desktop": "b"},
    ]
    found = machine_time(lines, leased_s=4.0)
    assert found is not None
    assert found.cpu_s == {OTHERS: 8.0, "rank": 4.0, GUESTS: 3.0}
    assert found.share("rank") == 0.2
    assert (found.desktops, found.desktops_up, found.spares) == (1, 1.0, 0.6)
    assert machine_time(lines[1:], 0.0) is None


def test_seats_and_processor_are_printed_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "told"
    (run / "logs").mkdir(parents=True)
    connection, _ = connect(run / "ledger.sqlite")
    connection.execute("INSERT INTO stays VALUES (0, 0, 'demo', NULL, '0.0', 0, 'begin', '{}', 0.0)")
    connection.close()
    lines: list[dict[str, Any]] = [
        told("desktop/0", 0.0, 3.0, acting=6.0, generating=1.0),
        {"event": "cpu_used", "actor": "host/main", "t": 10.0, "span_s": 10.0, "cores": 2, "seconds": {"rank": 4.0},
         "machine_s": 15.0},
    ]  # fmt: skip
    text = "".join(json.dumps({"ts": "2026-01-01T00:00:00", "level": "info", **line}) + "\n" for line in lines)
    (run / "logs" / "all.jsonl").write_text(text)
    assert show([run], tmp_path / "out", as_json=False) == 1  # it has no evaluation round
    shown = capsys.readouterr().out
    assert "busy 70.0% of 1 seats x 10s" in shown
    assert "rank 20.0%" in shown
    assert seats_report.DEMOS in shown
    assert (tmp_path / "out" / "seats.png").read_bytes().startswith(b"\x89PNG")
    found = seat_time(lines)
    assert found is not None
    assert sum(shares(found).values()) == pytest.approx(1.0)
