"""The report's page: every section whatever a run has, nothing from outside, no word of a guest as markup."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cluster import cli, tables
from actors.cluster.report import page, show
from actors.cluster.report.episodes import EpisodeView, ShownStep, learned
from actors.cluster.report.page import SECTIONS
from actors.cluster.report.pooled import pooled_gains, pooled_rounds
from actors.cluster.report.run_data import read_run
from actors.cluster.runs import evaluation_rounds
from actors.cluster.runs.evaluation_rounds import EvaluationRound
from actors.replay.messages import PictureRef
from actors.replay.statistics import TIMED_OUT, RoundEpisode, summarise
from apis.tasks.registry import digest
from runtime.messaging.message import BlobRef
from runtime.segments import SegmentStore
from tests.actors.cluster.fabricated import Fabricated, Reader, gained, whole

TAGS = {
    "html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "article", "p", "span", "div", "strong",
    "pre", "figure", "img", "figcaption",
}  # fmt: skip


def reported(paths: list[Path], out: Path) -> str:
    show.show(paths, out, as_json=True)
    page = (out / "report.html").read_text()
    reader = Reader(page)
    reader.refuse_outside()
    assert [one for one in reader.ids if one in SECTIONS] == [*SECTIONS]
    return page


@pytest.mark.slow
def test_a_whole_run_is_shown_and_no_word_of_a_guest_steers_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = reported([whole(tmp_path / "one")], tmp_path / "out")
    document_ = json.loads(capsys.readouterr().out)
    assert document_["figures"]["name"] == "one"
    assert {Path(file).name for file in document_["files"]} == {"report.html", "curve.png", "one.figures.gz"}
    for name in ("token-entropy", "action-entropy", "coverage", "kl", "clip-fraction", "mismatch"):
        assert f'id="picture-{name}"' in page
    assert page.count('<img class="graph" src="data:image/png;base64,') > 6, "and the curve of success"
    assert "0.333 (2/6)" in page
    assert "&lt;script&gt;alert(1)" in page
    assert "file_manager/held-out/5" in page
    assert "data:image/jpeg;base64," in page
    assert "rise 0.5" in page
    assert ">rehearsal</th>" in page
    assert ">0.250</td>" in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "evil.example" in page  # as text
    assert not re.search(r"<[^>]*evil\.example", page)
    assert "default-src 'none'" in page
    assert "over training episodes. Families that are never trained on are left out" in page
    assert "Success, Feasible, No fault and Pass count every family." in page


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("stage", ["begun", "killed", "learning", "round open"])
@pytest.mark.slow
def test_a_run_that_is_not_whole_gives_a_sensible_page(
    tmp_path: Path, stage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Fabricated(tmp_path / "part", verdict=None if stage == "killed" else "stopped")
    if stage == "learning":
        run.learn(steps=1)
    if stage == "round open":
        run.play(1, "after_bc", "0.0", [True])
        run.db.execute("UPDATE rounds SET closed = 0")
    page = reported([run.done()], tmp_path / "out")
    capsys.readouterr()
    show.show([run.path], None, as_json=False)
    said = capsys.readouterr().out
    assert ("no evaluation round was opened" in said) is ("ROUND" not in said) is (stage != "round open")
    assert "No gain yet" in page
    assert ("No optimizer step" in page) is (stage != "learning")
    assert ("No evaluation round" in page) is (stage != "round open")
    assert ("killed" in page) is (stage == "killed")


def test_seeds_are_told_together_without_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = []
    for seed, last in enumerate(([True] * 4, [True, True, False, False])):
        paths.append(gained(tmp_path / f"s{seed}", [True, False, False, False], last, seed=seed).done())
    paths.append(whole(tmp_path / "other", arm="far"))
    show.show(paths, None, as_json=True)
    (found,) = json.loads(capsys.readouterr().out)["seeds"]
    assert found["runs"] == ["s0", "s1"]
    assert [(one["step"], one["each"]) for one in found["rounds"]] == [(2, [0.25, 0.25]), (8, [1.0, 0.5])]
    assert (found["gains"][0]["each"], found["gains"][0]["together"]["value"]) == ([0.75, 0.25], 0.5)
    show.show(paths, None, as_json=False)
    said = capsys.readouterr().out
    assert "local: 2 runs (s0, s1)" in said
    assert re.search(r"final +8 +T=1 +2 +0\.750 +0\.500-1\.000 +0\.750 \(6/8\)", said)
    assert "2 runs: +0.750, +0.250" in said


@pytest.mark.slow
def test_arms_are_compared_in_their_last_rounds_on_the_seeds_that_both_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = {
        ("near", 0): [True, True, True, False], ("near", 1): [True, True, True, True],
        ("far", 0): [True, False, False, False], ("far", 2): [True, True, True, True],
    }  # fmt: skip
    paths = []
    for (arm, seed), last in ends.items():
        paths.append(gained(tmp_path / f"{arm}{seed}", [False] * 4, last, seed=seed, arm=arm).done())
    show.show(paths, None, as_json=True)
    (found,) = json.loads(capsys.readouterr().out)["differences"]
    assert (found["more"], found["less"], found["seeds"], found["round"]) == ("near", "far", [0], "final")
    assert (found["together"]["value"], found["together"]["instances"]) == (0.5, 4)
    show.show(paths, tmp_path / "out", as_json=False)
    row = next(line for line in capsys.readouterr().out.splitlines() if "near - far" in line)
    assert row.split()[:7] == ["T=1", "final", "near", "-", "far", "0", "0.750"]
    assert "+0.500" in row
    assert "near - far" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_what_only_some_runs_have_played_is_neither_pooled_nor_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One seed is a pulse behind, one of the other arm ended early: what all have is what is told, by its name."""
    paths = []
    for arm, seed, played in (("a", 0, 4), ("a", 1, 3), ("a", 2, 0), ("bb", 0, 2), ("bb", 1, 4)):
        run = Fabricated(tmp_path / f"{arm}{seed}", seed=seed, arm=arm)
        run.learn()
        rounds = (("after_bc", "0.2"), ("after_pulse1", f"0.{4 + seed}"), ("rl4", "0.6"), ("final", "0.8"))
        for number, (name, version) in enumerate(rounds[:played], 1):
            run.play(number, name, version, [True] * number + [False] * (4 - number))
        paths.append(run.done())
    show.show(paths, None, as_json=True)
    said = json.loads(capsys.readouterr().out)
    one, other = said["seeds"]
    assert [(found["name"], found["each"]) for found in one["rounds"]] == [
        ("after_bc", [0.25, 0.25]), ("after_pulse1", [0.5, 0.5]), ("rl4", [0.75, 0.75]),
    ]  # fmt: skip
    assert [(found["before"], found["after"]) for found in one["gains"]] == [("after_bc", "rl4")]
    assert [(found["before"], found["after"]) for found in other["gains"]] == [("after_bc", "after_pulse1")]
    (found,) = said["differences"]
    assert (found["round"], found["seeds"], found["together"]["value"]) == ("after_pulse1", [0, 1], 0.0)


def test_families_never_trained_on_bend_no_curve_and_no_gain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = gained(tmp_path / "one", [True, False, False, False], [True, True, False, False])
    run.db.execute("UPDATE episodes SET task = 'editor_copy/held-out/3' WHERE task = 'file_manager/held-out/3'")
    run.db.execute("INSERT INTO shown(task) VALUES('file_manager/train/1')")
    path = run.done()
    figures = read_run(path)
    points = pooled_rounds([figures])
    assert [(point.together.successes, point.together.n) for point in points] == [(1, 3), (2, 3)]
    (found,) = pooled_gains([figures])
    assert (found.together.instances, found.each[0]) == (3, pytest.approx(1 / 3))
    show.show([path], None, as_json=False)
    said = capsys.readouterr().out
    assert re.search(r"0\.667 \(2/3\) +0\.000 \(0/1\)", said)
    assert f"{found.together.value:+.3f}" in said


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_an_experiment_stands_for_its_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        whole(tmp_path / f"e-a-{seed}", seed=seed, arm="a")
    assert cli.main(["report", "a", "--runs", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in told["runs"]] == ["e-a-0", "e-a-1"]
    assert cli.main(["report", "e-a-0", "--runs", str(tmp_path), "--text"]) == 0
    assert "gain" in capsys.readouterr().out
    assert cli.main(["report", "e-a-0", "--text", "--out", "x"]) == 2
    assert "--text prints only" in capsys.readouterr().err
    assert not (tmp_path / "report").exists()
    assert cli.main(["report", "e-a-0", "--runs", str(tmp_path)]) == 0
    assert "report/e-a-0/report.html" in capsys.readouterr().out
    assert cli.main(["report", "a", "--runs", str(tmp_path)]) == 0
    assert (tmp_path / "report" / "e-a-0-and-1-more" / "report.html").is_file(), "it is written over no other"


@given(st.text(max_size=60), st.text(max_size=60))
def test_text_is_never_markup(words: str, value: str) -> None:
    seen = PictureRef(blob=BlobRef(segment="s", offset=24, size=1, digest=""), digest=value, width=1, height=1, at=0)
    step = ShownStep(observation=words, response=value, action=words, result=value, pictures=[seen])
    told = {"task": value, "where": words, "lane": words, "reason": value, "detail": words}
    episode = EpisodeView(token=1, success=True, steps=[step], pictures={1: b"\x89PNG"}, **told)
    reader = Reader(tables.render("alone.html", title=words, episode=episode))
    reader.refuse_outside()
    assert not reader.tags - TAGS
    table = tables.TextTable((words, value), [[words, tables.TableCell(value, "#x")]])
    texts = dict.fromkeys(("at", "nothing", "command", "title"), value) | {"back": words, "heading": words}
    more = {"rows": table, "live": True, "filters": {}, "links": {words: "#x"}, "episode": None}
    page = Reader(tables.render("listing.html", **texts, **more))
    assert not page.tags - TAGS - {"a", "table", "thead", "tbody", "tr", "th", "td", "nav", "link"}


def played(name: str, solved: dict[str, bool | None], *, closed: bool = True, task_set: str = "") -> EvaluationRound:
    """A round of these instances; None is one that was lost to a fault."""
    episodes = [RoundEpisode(task=task, success=bool(won), fault=won is None) for task, won in solved.items()]
    return EvaluationRound(
        name=name,
        version="0.1",
        step=1,
        temperature=1.0,
        max_new_tokens=64,
        task_set=task_set or digest(solved),
        closed=closed,
        summary=summarise(episodes),
        episodes=episodes,
    )


def test_rounds_are_named_by_steps_until_a_resume_began_a_lineage() -> None:
    one = played("after_bc", {"files_move/held-out/1": True})

    def weights(*versions: str) -> tuple[str, list[object]]:
        rounds = [msgspec.structs.replace(one, version=version) for version in versions]
        table = page.rounds_of(rounds)
        return table.head[1], [row[1] for row in table.rows]

    assert weights("0.900", "0.1118") == ("Step", [900, 1118])
    assert weights("0.900", "1.950") == ("Lineage.step", ["0.900", "1.950"])
    greedy = msgspec.structs.replace(one, temperature=0.0)
    assert page.families_of([one, one]).head == ("Family", "after_bc", "after_bc")
    assert page.families_of([one, greedy]).head == ("Family", "after_bc (T=1)", "after_bc (greedy)")


def test_scores_are_shown_where_they_differ(tmp_path: Path) -> None:
    alike = played("final", {"files_move/held-out/1": True})
    ended = RoundEpisode(task="s/a", reason=TIMED_OUT, feasible=False)
    other = msgspec.structs.replace(alike, episodes=[*alike.episodes, ended])
    assert alike.score_rows == []
    assert ("published", "1.000 (2/2)", "1.000 (1/1)", "1.000 (1/1)") in other.score_rows
    assert ("never ending, published", "0.500 (1/2)", "0.000 (0/1)", "1.000 (1/1)") in other.score_rows
    run = read_run(whole(tmp_path / "one"))
    assert page.scores_of(msgspec.structs.replace(run, rounds=[alike, other])).caption == "Scores of final"
    assert page.scores_of(msgspec.structs.replace(run, rounds=[alike])).rows == []


def test_a_task_that_was_missed_first_and_solved_last_is_shown_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = gained(tmp_path / "one", [True, False, False], [True, True, False])
    segments = SegmentStore(made.path / "segments", "first-round")
    for token in range(100, 103):
        made._step(segments, token)
    segments.close()
    run = made.done()
    first, *_, last = evaluation_rounds.read_rounds(run)
    pairs = learned(run)
    assert pairs
    for before, after in pairs:
        assert (before.where, after.where) == (first.name, last.name)
        assert before.task == after.task
        assert not before.success
        assert after.success
    assert len({pair.after.family for pair in pairs}) == len(pairs)
    assert cli.main(["report", "one", "--runs", str(run.parent), "--out", str(tmp_path / "out")]) == 0
    assert f"{pairs[0].after.task} before and after" in capsys.readouterr().out
    assert pairs[0].after.task in (tmp_path / "out" / "report.html").read_text().split("Rounds of")[0]


@pytest.mark.parametrize("clean", [201, 202])
def test_of_tasks_that_were_learned_one_without_a_refused_answer_is_shown(tmp_path: Path, clean: int) -> None:
    made = gained(tmp_path / "one", [True, False, False], [True, True, True])
    segments = SegmentStore(made.path / "segments", "first-round")
    made.db.execute("DELETE FROM steps WHERE token = ?", (clean,))
    for token, refusal in ((101, None), (102, None), (clean, None)):
        made._step(segments, token, refusal)
    segments.close()
    (pair,) = learned(made.done())
    assert pair.after.token == clean
