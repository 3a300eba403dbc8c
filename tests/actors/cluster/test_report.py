"""What is read of a run, and of a file of its figures that stands for it; which figures are drawn."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cluster import cli
from actors.cluster.config import deploy_files
from actors.cluster.config.schema import Deploy
from actors.cluster.report import run_data
from actors.cluster.report import time_spent as seats_report
from actors.cluster.report.drawing import band
from actors.cluster.report.pooled import pooled_gains, pooled_rounds
from actors.cluster.report.run_data import SUFFIX, key_of, packed, read_file, read_run
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
from actors.replay.database import ledger_file
from actors.replay.database.ledger_file import connect
from actors.replay.statistics import Rate
from runtime.errors import ConfigError
from runtime.logs.reader import BEGINS, in_a_row
from tests.actors.cluster.fabricated import HOSTILE, Fabricated, whole
from tests.actors.cluster.test_report_page import reported

CURVE = st.dictionaries(st.integers(0, 12), st.floats(-1e6, 1e6), max_size=10)


def test_a_run_without_a_ledger_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no ledger"):
        read_run(tmp_path)
    (tmp_path / "ledger.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(ConfigError, match=r"the ledger of .* can't be read: file is not a database"):
        read_run(tmp_path)


def test_a_run_is_read_wherever_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of any name, and in one that can't be written, where a ledger's readers make no file of theirs."""
    odd = whole(tmp_path / "one").rename(tmp_path / "100% done? #1")
    assert len(read_run(odd).rounds) == 2
    tried = ledger_file._tried

    def unwritable(uri: str) -> sqlite3.Connection:
        if uri.endswith("mode=ro"):
            raise sqlite3.OperationalError("unable to open database file")
        return tried(uri)

    monkeypatch.setattr(ledger_file, "_tried", unwritable)
    assert len(read_run(odd).rounds) == 2
    (odd / "ledger.sqlite-wal").write_bytes(b"of a writer")
    with pytest.raises(ConfigError, match="unable to open database file"):
        read_run(odd)


def test_a_round_has_three_denominators(tmp_path: Path) -> None:
    run = Fabricated(tmp_path / "one")
    run.play(1, "after_bc", "0.2", [True, False, True])
    run.db.execute("UPDATE rounds SET tasks = 4")
    for n, state in enumerate(("played", "played", "played", "fault")):
        run.put("round_tasks", round_id=1, n=n, task=f"file_manager/held-out/{n}", state=state)
    (played,) = read_run(run.done()).rounds
    rates = played.summary.whole
    assert (rates.all, rates.feasible, rates.without_faults) == (Rate(2, 4), Rate(2, 4), Rate(2, 3))


def test_two_rounds_of_the_same_weights_are_no_gain(tmp_path: Path) -> None:
    run = Fabricated(tmp_path / "alone")
    run.learn()
    run.play(1, "after_bc", "0.2", [True, False, False, False])
    run.play(2, "final", "0.2", [True, True, False, False])
    figures = read_run(run.done())
    assert (figures.gains, pooled_gains([figures])) == ([], [])
    assert [(point.name, point.together.successes) for point in pooled_rounds([figures])] == [
        ("after_bc", 1), ("final", 2),
    ]  # fmt: skip


def test_segments_that_a_resume_undid_are_no_part_of_the_run(tmp_path: Path) -> None:
    """RL from step 2, a pulse from step 4, and the learner resumed from step 3; so, once more, of the next pulse."""
    run = Fabricated(tmp_path / "resumed")
    run.learn(steps=4)
    later = [(2, 2, "pulse", "0.4"), (3, 1, "rl", "0.2"), (4, 4, "pulse", "1.5"), (5, 5, "rl", "1.6"),
             (6, 4, "pulse", "1.5")]  # fmt: skip
    for idx, root, phase, start in later:
        cause = "resumed" if root < idx else "counted"
        run.put("stays", idx=idx, root=root, phase=phase, start=start, seq_bound=0, cause=cause, evidence="{}", wall=0)
    figures = read_run(run.done())
    assert [(one.phase, one.start) for one in figures.switches] == [("demo", 0), ("rl", 2), ("pulse", 5)]
    assert figures.stretches() == [("demo", 0, 2), ("rl", 2, 5), ("pulse", 5, 6)]
    assert msgspec.structs.replace(figures, switches=[]).stretches() == [], "killed before its first segment"


def test_what_a_file_asks_for_and_keys_that_came_later_do_not_part_runs() -> None:
    older = {"run": {"seed": 1, "require": {"gain": 0.01}}, "learner": {"sft": {"lr": 0.5}}}
    newer = msgspec.to_builtins(Deploy())
    newer["run"] |= {"require": {"gain_above": 0.0}}
    newer["learner"]["sft"]["lr"] = 0.5
    newer["demos"]["source"] = "elsewhere"
    assert key_of(older) == key_of(newer)
    newer["learner"]["rl"]["negative_scale"] = 0.5
    assert key_of(older) != key_of(newer)


def test_groups_that_cloned_for_different_times_share_steps_of_rl(tmp_path: Path) -> None:
    run = read_run(whole(tmp_path / "one"))
    made = [step.step for step in run.steps if step.phase == "rl"]
    by_rl = run.by_rl_steps()
    assert [step.step for step in by_rl.steps] == list(range(1, len(made) + 1))
    assert [round_.step for round_ in by_rl.rounds] == [sum(step <= of.step for step in made) for of in run.rounds]
    assert by_rl.rounds[0].step == 0 < by_rl.rounds[1].step == len(made)


# -- files of figures


def test_a_file_of_figures_stands_for_its_run_and_holds_no_episode(tmp_path: Path) -> None:
    run = msgspec.structs.replace(read_run(whole(tmp_path / "s")), observations=(1, 7))
    content = packed(run)
    assert content == packed(run), "no clock in it"
    (file := tmp_path / f"s{SUFFIX}").write_bytes(content)
    assert msgspec.to_builtins(read_file(file)) == msgspec.to_builtins(run)
    plain = gzip.decompress(content).decode()
    assert HOSTILE not in plain
    older = json.loads(plain)
    del older["run"]["observations"]
    file.write_bytes(gzip.compress(json.dumps(older).encode()))
    assert read_file(file).observations == (1,)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"words", "Not a gzipped file"),
        (gzip.compress(b'{"form": 1, "run": {}}')[:-9], "no file of a run's figures"),
        (gzip.compress(b'{"form": 1, "run": {}}'), "missing required field `name`"),
        (gzip.compress(b'{"form": 9, "run": {}}'), "figures of format 9, this build reads 1 and 2"),
        (gzip.compress(b"[]"), "no file of a run's figures"),
        (gzip.compress(bytes(2000)), "unpacked, which no run's figures are"),
    ],
    ids=["not packed", "torn", "nameless", "of another form", "a list", "too large"],  # packed bytes hold the time
)
def test_what_is_no_such_file_is_one_clear_line(
    content: bytes, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_data, "MOST_BYTES", 1000)
    (file := tmp_path / f"a{SUFFIX}").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_file(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    run = msgspec.structs.replace(read_run(whole(tmp_path / "s")), name="../escaped")
    (file := tmp_path / f"s{SUFFIX}").write_bytes(packed(run))
    with pytest.raises(ConfigError, match=r"of a run named \.\./escaped: letters"):
        read_file(file)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_runs_of_one_name_leave_a_file_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [whole(tmp_path / place / "local-0", seed=seed) for seed, place in enumerate(("here", "there"))]
    page = reported(paths, tmp_path / "out")
    assert "Rounds of local-0-2" in page
    assert f"{paths[1]} is called local-0-2: another run here is local-0" in capsys.readouterr().err
    files = [tmp_path / "out" / f"{name}{SUFFIX}" for name in ("local-0", "local-0-2")]
    assert [(run.name, run.seed) for run in map(read_file, files)] == [("local-0", 0), ("local-0-2", 1)]


@pytest.mark.usefixtures("undrawn")
def test_a_run_is_one_seed_whatever_it_is_named_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = whole(Path("runs/local-0"))
    for name in ("local-0", "copy"):
        Path(f"{name}{SUFFIX}").write_bytes(packed(read_run(run)))
    for words in (["local-0", str(run.resolve())], ["local-0", f"local-0{SUFFIX}", f"copy{SUFFIX}"]):
        assert cli.main(["report", *words, "--text"]) == 0
        said = capsys.readouterr()
        assert "2 runs" not in said.out
        assert said.out.count("local-0   ok") == 1
    assert said.err.splitlines() == [
        f"{name}{SUFFIX} is left out: it is the run of runs/local-0" for name in ("local-0", "copy")
    ]


# -- pictures


@given(st.lists(CURVE, max_size=4))
def test_a_band_holds_its_mean_and_every_seed_in_any_order(curves: list[dict[int, float]]) -> None:
    made, other = band(curves), band(curves[::-1])
    full = [curve for curve in curves if curve]
    assert made.seeds == len(full)
    assert made.steps == (sorted(set.intersection(*map(set, full))) if full else [])
    for number, step in enumerate(made.steps):
        values = [curve[step] for curve in full]
        assert made.low[number] == min(values) <= made.mean[number] <= max(values) == made.high[number]
        assert made.mean[number] == pytest.approx(sum(values) / len(values), abs=1e-6)
    assert (made.steps, made.low, made.high) == (other.steps, other.low, other.high)


def test_a_run_without_logs_or_deploy_file_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "bare"
    folder.mkdir()
    with closing(ledger_file.connect(folder / "ledger.sqlite")[0]) as db:
        db.execute("INSERT INTO stays VALUES (0, 0, 'demo', NULL, '0.0', 0, 'begin', '{}', 0.0)")
    assert "bare" in reported([folder], tmp_path / "out")


def told(actor: str, t0: float, idle: float, waited_for: str = "work", **stages: float) -> dict[str, Any]:
    seconds = {"idle": idle, **stages}
    t1 = t0 + sum(seconds.values())
    return {
        "event": "seat_time", "actor": actor, "t": t1, "t0": t0, "t1": t1, "waited_for": waited_for,
        "seconds": {name: value for name, value in seconds.items() if value},
    }  # fmt: skip


def phase(t: float, name: str, before: str = "demo", **evidence: float) -> dict[str, Any]:
    return {"event": "phase_changed", "t": t, "phase": name, "before": before, "evidence": evidence}


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


def test_a_run_that_goes_on_from_anothers_rl_spends_its_time_in_rl() -> None:
    over = [phase(10.0, "done", before="rl")]
    found = seat_time([*over, told("desktop/0", 0.0, 5.0, acting=5.0)])
    assert found is not None
    assert found.busy_by_phase == {"rl": 0.5}
    assert causes(over).at(5.0) == seats_report.GROUPS


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


DEPLOY = deploy_files.bundled()["local"].parent
FIGURES = sorted(path.relative_to(DEPLOY).as_posix() for path in (DEPLOY / "results").rglob("*.figures.gz"))


@pytest.mark.parametrize("figures", FIGURES)
def test_published_figures_still_tell_their_rounds(figures: str, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["report", str(DEPLOY / figures), "--json"])
    told = json.loads(capsys.readouterr().out)["figures"]
    assert told["rounds"], figures
