"""Where seats' time went: every second once, idle ones by cause."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cluster.report import time_spent as seats_report
from actors.cluster.report.show import show
from actors.cluster.report.time_spent import (
    BUSY,
    GUESTS,
    OTHERS,
    UNKNOWN,
    causes,
    machine_time,
    seat_time,
)
from actors.replay.database.ledger_file import connect
from runtime.logs.reader import BEGINS, in_a_row


def told(actor: str, t0: float, idle: float, waited_for: str = "work", **stages: float) -> dict[str, Any]:
    seconds = {"idle": idle, **stages}
    t1 = t0 + sum(seconds.values())
    return {
        "event": "seat_time", "actor": actor, "t": t1, "t0": t0, "t1": t1, "waited_for": waited_for,
        "seconds": {name: value for name, value in seconds.items() if value},
    }  # fmt: skip


def phase(t: float, name: str, **evidence: float) -> dict[str, Any]:
    return {"event": "phase_changed", "t": t, "phase": name, "evidence": evidence}


def evaluated(t: float, change: str, name: str, version: str = "0.5") -> dict[str, Any]:
    return {"event": f"eval_round_{change}", "t": t, "round": name, "version": version}


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
        evaluated(20.0, "opened", "after_bc"),
        evaluated(25.0, "closed", "after_bc"),
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


def test_seats_wait_for_an_evaluation_until_the_last_round_that_goes_on_is_over() -> None:
    """Of a round whose weights a resume abandons the log says no more; one of weights that stand goes on."""
    lines = [
        phase(5.0, "rl", attempts=8.0),
        evaluated(10.0, "opened", "rl5"),
        evaluated(10.0, "opened", "rl5_greedy"),
        evaluated(20.0, "closed", "rl5"),
        evaluated(30.0, "closed", "rl5_greedy"),
        evaluated(40.0, "opened", "rl9", "0.9"),
        {"event": "lineage_started", "t": 50.0, "version": "1.5", "parent": "0.5"},
        evaluated(60.0, "opened", "rl9", "1.9"),
        {"event": "lineage_started", "t": 70.0, "version": "2.10", "parent": "1.10"},
        evaluated(80.0, "closed", "rl9", "1.9"),
    ]
    why = causes(lines)
    evaluation, groups = seats_report.EVALUATION, seats_report.GROUPS
    assert [why.at(t) for t in (15.0, 25.0, 35.0, 45.0, 55.0, 65.0, 75.0, 85.0)] == [
        evaluation, evaluation, groups, evaluation, groups, evaluation, evaluation, groups,
    ]  # fmt: skip


@pytest.mark.parametrize(("attempts", "cause"), [(0.0, seats_report.BEGINNING), (3.0, seats_report.DEMOS)])
def test_a_run_that_plays_no_demonstration_waits_for_none(attempts: float, cause: str) -> None:
    why = causes([phase(5.0, "bc", demos=0.0, attempts=attempts), phase(9.0, "demo"), phase(12.0, "rl", attempts=0.0)])
    assert [why.at(t) for t in (1.0, 7.0, 10.0)] == [cause, seats_report.CLONING, seats_report.DEMOS]


def test_the_processor_is_shared_out_once() -> None:
    lines: list[dict[str, Any]] = [
        {"event": "cpu_used", "t": 10.0, "span_s": 10.0, "cores": 2, "seconds": {"rank": 4.0}, "machine_s": 15.0},
        {"event": "desktop_gone", "t": 6.0, "desktop": "a", "holder": "desktop/0", "cpu_s": 3.0},
    ]
    found = machine_time(lines)
    assert found is not None
    assert found.cpu_s == {OTHERS: 8.0, "rank": 4.0, GUESTS: 3.0}
    assert found.share("rank") == 0.2
    assert (found.desktops, found.own_s, found.by_phase_s) == (1, 7.0, {"demo": 7.0})
    assert machine_time(lines[1:]) is None
    lines[1]["cpu_s"] = 0.0  # no control group has counted it
    blind = machine_time(lines)
    assert blind is not None
    assert (blind.cpu_s, blind.own_s) == ({UNKNOWN: 11.0, "rank": 4.0}, 4.0)
    lines[1]["cpu_s"] = 3.0
    changed = machine_time([*lines, phase(4.0, "bc"), phase(6.0, "rl")])
    assert changed is not None
    assert changed.by_phase_s == pytest.approx({"demo": 1.6, "bc": 0.8, "rl": 1.6 + 3.0})


def test_seconds_on_other_machines_are_the_runs_and_no_share_of_this_one() -> None:
    here = {"event": "cpu_used", "t": 10.0, "span_s": 10.0, "cores": 2, "seconds": {"rank": 4.0}, "machine_s": 5.0}
    owner = "crl.run.{}.5.0123abcd.0123abcd.1"
    lines = [
        here | {"elsewhere": {"desktop hosts": 30.0}},
        *({"event": "host_started", "t": 1.0, "name": f"desktops/{far:d}", "pid": 7 + far, "elsewhere": far}
          for far in (False, True)),
        *({"event": "desktop_gone", "t": 6.0, "desktop": owner.format(pid), "holder": "", "cpu_s": cpu_s}
          for pid, cpu_s in ((8, 50.0), (7, 0.5))),
    ]  # fmt: skip
    found = machine_time(lines)
    assert found is not None
    assert found.cpu_s == {"rank": 4.0, GUESTS: 0.5, OTHERS: 0.5}
    assert found.elsewhere_s == {GUESTS: 50.0, "desktop hosts": 30.0}
    assert (found.own_s, found.by_phase_s) == (84.5, {"demo": 84.5})
    for line in lines:
        if line["event"] == "cpu_used":
            line["namespace"] = "0123abcd"  # the process has its number here, another machine's has the same
    same_number = machine_time(lines)
    assert same_number is not None
    assert (same_number.cpu_s[GUESTS], same_number.elsewhere_s.get(GUESTS)) == (50.5, None)
    of_rank = [here, lines[2] | {"name": "ranks/1"}, lines[3]]
    assert machine_time(of_rank).elsewhere_s == {}, "a rank elsewhere takes no seconds of desktops here"  # type: ignore[union-attr]


@pytest.mark.slow
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
    assert show([run], tmp_path / "out", as_json=False) == 1, "it has no evaluation round"
    (run / "deploy.yaml").write_text("evaluation: {enabled: false}\n")
    assert show([run], None, as_json=False) == 0, "nor was it to have one"
    shown = capsys.readouterr().out
    assert "busy 70.0% of 1 seats x 10s" in shown
    assert re.search(r"^rank +4\.0 +20\.0%$", shown, re.MULTILINE)
    assert seats_report.DEMOS in shown


LIFE = st.lists(st.floats(0.0, 50.0), min_size=1, max_size=6).map(sorted)


def line(event: str, t: float, **more: Any) -> dict[str, Any]:
    return {"event": event, "t": t, "actor": "host/main", **more}


def test_a_night_between_two_lives_is_cut_out() -> None:
    first = [line(BEGINS, 100.0), line("seat_time", 130.0, t0=105.0, t1=129.0)]
    later = [line(BEGINS, 9000.0), line("learner_step", 9010.0, t0=9002.0, t1=9010.0)]
    assert list(in_a_row(first + later)) == [
        *first, line(BEGINS, 130.0), line("learner_step", 140.0, t0=132.0, t1=140.0),
    ]  # fmt: skip
    given_back = [line("episode_released", 9000.0, actor="replay"), *later]
    assert list(in_a_row(first + given_back))[3:] == list(in_a_row(first + later))[2:]
    rebooted = [line(BEGINS, 3.0), line("learner_step", 13.0, t0=5.0, t1=13.0)]
    assert list(in_a_row(first + rebooted))[2:] == list(in_a_row(first + later))[2:]


@given(st.lists(st.tuples(st.floats(0.0, 1e6), LIFE), min_size=1, max_size=4))
def test_distances_within_a_life_stay_and_lives_follow_each_other(lives: list[tuple[float, list[float]]]) -> None:
    lines = [line(BEGINS if not n else "x", start + t) for start, times in lives for n, t in enumerate(times)]
    found = iter(in_a_row(lines))
    end = lines[0]["t"]
    for start, times in lives:
        moved = [next(found)["t"] for _ in times]
        assert abs(moved[0] - end) < 1e-6
        assert all(abs((moved[n] - moved[0]) - (t - times[0])) < 1e-6 for n, t in enumerate(times)), start
        end = moved[-1]
