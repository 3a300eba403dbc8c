"""What is read of a run, and of a file of its figures that stands for it; which figures are drawn."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cluster.config.schema import Deploy
from actors.cluster.report import drawing, run_data
from actors.cluster.report.drawing import FIGURES, GROUPS, Band, Dots, band, counts, lines, success
from actors.cluster.report.page import equal_of
from actors.cluster.report.pooled import Group, PooledRound, pooled_gains, pooled_rounds
from actors.cluster.report.run_data import SUFFIX, key_of, packed, read_file, read_run
from actors.cluster.report.time_spent import overlap
from actors.cluster.runs import ledgers
from actors.replay.database import ledger_file, queries
from actors.replay.statistics import Rate
from runtime.errors import ConfigError, StoreError
from tests.actors.cluster.fabricated import HOSTILE, Fabricated, whole
from tests.actors.cluster.test_report_page import reported

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda s: (float(s[0]), float(s[0] + s[1]))))
CURVE = st.dictionaries(st.integers(0, 12), st.floats(-1e6, 1e6), max_size=10)


def covered(spans: list[tuple[float, float]]) -> set[int]:
    return {second for start, end in spans for second in range(int(start), int(end))}


@given(SPANS, SPANS)
def test_seconds_in_which_desktops_and_learner_work_are_those_in_both(
    steps: list[tuple[float, float]], episodes: list[tuple[float, float]]
) -> None:
    logged = [{"event": "learner_step", "phase": "rl", "t0": t0, "t1": t1} for t0, t1 in steps]
    logged += [{"event": "episode_ended", "lane": "train", "t0": t0, "t1": t1} for t0, t1 in episodes]
    measured = overlap(logged)
    assert (measured.learner_s, measured.both_s) == (len(covered(steps)), len(covered(steps) & covered(episodes)))
    assert 0.0 <= measured.share <= 1.0


def test_wilson_interval_of_a_known_case() -> None:
    assert Rate(10, 20).interval == pytest.approx((0.2993, 0.7007), abs=1e-4)  # by hand
    assert Rate(0, 0).interval == (0.0, 1.0)
    assert Rate(0, 5).interval[0] == 0.0


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


def of(values: list[float]) -> Band:
    return Band([*range(len(values))], values, values, values, 1)


def test_one_point_one_round_and_one_bar_are_no_picture(tmp_path: Path) -> None:
    axis = drawing._Axis([], "step")
    assert lines(FIGURES[0], {"a": of([0.5]), "b": of([])}, axis) is None
    point = PooledRound(decoding="T=1", name="final", step=3, together=Rate(1, 2), each=[0.5])
    assert success({"a": of([0.5])}, [Dots("T=1", [point])], axis) is None
    assert counts(GROUPS, {"a": {"too old": 1.0}}, "") is None
    assert lines(FIGURES[0], {"a": of([0.5, 0.6])}, axis) is not None
    run = Fabricated(tmp_path / "one")
    run.learn(steps=1)
    path = run.done()
    made = [picture.name for picture in drawing.pictures([Group("one", [read_run(path)])])]
    assert made == ["staleness"], "two bars"


def test_a_run_without_logs_or_deploy_file_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "bare"
    folder.mkdir()
    with closing(ledger_file.connect(folder / "ledger.sqlite")[0]) as db:
        db.execute("INSERT INTO stays VALUES (0, 0, 'demo', NULL, '0.0', 0, 'begin', '{}', 0.0)")
    assert "bare" in reported([folder], tmp_path / "out")


def test_equal_groups_of_a_family_are_means_over_steps(tmp_path: Path) -> None:
    run = Fabricated(tmp_path / "one")
    run.learn(steps=4)
    run.db.close()
    # Of family a half of the groups succeed whole in each step; 0, 1/4, 2/4 and 3/4 of them fail whole.
    assert equal_of(read_run(tmp_path / "one")).rows == [("a", "50%", "38%", 4), ("b", "0%", "100%", 4)]


def test_a_ledger_of_the_form_before_is_read_too(tmp_path: Path) -> None:
    run = Fabricated(tmp_path / "one")
    run.learn()
    run.db.executescript(
        "DROP VIEW from_start; ALTER TABLE groups DROP COLUMN prefix; ALTER TABLE groups DROP COLUMN prefix_of;"
        f"PRAGMA user_version = {ledger_file.FORM - 1};"
    )
    run.db.close()
    assert read_run(tmp_path / "one").endings["zero_variance"] == 1
    with ledger_file.reading(tmp_path / "one") as ledger:
        assert [dict(row)["prefix"] for row in ledger.execute("SELECT * FROM groups")] == [0]
        assert list(queries.episodes(ledger)) == []
    other = f"has form {ledger_file.FORM - 1}, this build reads form {ledger_file.FORM}"
    with pytest.raises(StoreError, match=other):
        ledger_file.connect(tmp_path / "one" / "ledger.sqlite")
    assert other in ledgers.damage(tmp_path / "one"), "no run goes on from it, nor begins from a copy"
    with pytest.raises(StoreError, match=other):
        ledger_file.copy_ledger(tmp_path / "one", tmp_path, again=[])
