"""What keeps a report legible: labels, cut axes, rounds named by steps, folded figures, runs told apart."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from actors.cluster.report import curves, html, pagephases, pagerounds, show
from actors.cluster.report.bands import Band
from actors.cluster.report.pictures import BUSY_COLOURS, CPU_COLOURS, IDLE_COLOURS, ink
from actors.cluster.runs.evaluation_rounds import EvaluationRound
from actors.replay.statistics import TIMED_OUT, RoundEpisode, summarise
from apis.tasks.registry import digest
from tests.actors.cluster.test_report_page import Fabricated, whole


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


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colour", [*BUSY_COLOURS, *IDLE_COLOURS, *CPU_COLOURS, "#000000", "#ffffff"])
def test_a_label_is_told_apart_from_its_piece_of_a_bar(colour: str) -> None:
    chosen = ink(colour)
    assert contrast(chosen, colour) == max(contrast("#000000", colour), contrast("#ffffff", colour)) >= 4.5


def test_the_contrasts_that_the_wcag_gives() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def of(values: list[float]) -> Band:
    return Band(steps=list(range(len(values))), mean=values, low=values, high=values, seeds=1)


def axis(*stays: list[float]) -> tuple[tuple[float, float], list[str]]:
    """The other axis' ends and what is written in the picture."""
    plt = curves.pyplot()
    figure, axes = plt.subplots()
    for stay in stays:
        axes.plot(range(len(stay)), stay)
    curves._shorten(axes, [of(stay) for stay in stays])
    found: Any = axes.get_ylim(), [text.get_text() for text in axes.texts]
    plt.close(figure)
    return found


@pytest.mark.slow
def test_a_first_value_far_above_all_others_does_not_set_the_axis() -> None:
    (low, high), said = axis([20.0, *[1.0 + n / 1000 for n in range(200)]])
    assert 0.9 < low < 1.0
    assert 1.2 < high < 1.3
    assert said == ["off the axis: up to 20"]


def test_a_short_stay_of_higher_values_is_no_exception_that_is_cut_off() -> None:
    (_, high), said = axis([1.0 + n / 1000 for n in range(200)], [5.0, 5.1, 5.2])
    assert (high > 5.2, said) == (True, [])


@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0, 1.0], [0.0, 1.0, 2.0, 3.0]])
def test_an_axis_that_nothing_flattens_is_left_alone(values: list[float]) -> None:
    (low, high), said = axis(values)
    assert (low < min(values), high > max(values), said) == (True, True, [])


def test_rounds_are_named_by_steps_until_a_resume_began_a_lineage() -> None:
    one = played("after_bc", {"files_move/held-out/1": True})
    first, later = (msgspec.structs.replace(one, version=version) for version in ("0.900", "0.1118"))
    resumed = msgspec.structs.replace(one, version="1.950")
    assert pagerounds.round_weights([first, later]) == ("Step", ["900", "1118"])
    assert pagerounds.round_weights([first, resumed]) == ("Lineage.step", ["0.900", "1.950"])


def test_rounds_of_two_decodings_carry_theirs() -> None:
    one = played("final", {"files_move/held-out/1": True})
    greedy = msgspec.structs.replace(one, temperature=0.0)
    assert pagerounds.round_names([one, one]) == ["final", "final"]
    assert pagerounds.round_names([one, greedy]) == ["final (T=1)", "final (greedy)"]


def test_scores_stand_side_by_side_where_they_differ() -> None:
    alike = played("final", {"files_move/held-out/1": True})
    ended = RoundEpisode(task="s/a", reason=TIMED_OUT, feasible=False)
    other = msgspec.structs.replace(alike, episodes=[*alike.episodes, ended])
    assert alike.score_rows == []
    assert ("published", "1.000 (2/2)", "1.000 (1/1)", "1.000 (1/1)") in other.score_rows
    assert ("never ending, published", "0.500 (1/2)", "0.000 (0/1)", "1.000 (1/1)") in other.score_rows
    run: Any = SimpleNamespace(name="one", rounds=[alike, other])
    assert "Scores of final" in str(pagerounds.rounds_of(run))
    run.rounds = [alike]
    assert "Scores of final" not in str(pagerounds.rounds_of(run))


def test_evidence_of_a_few_words_stands_there_and_more_is_folded() -> None:
    assert str(pagephases._evidence({})) == "-"
    assert str(pagephases._evidence({"rise": 0.5, "steps": 40.0})) == "rise 0.5, steps 40"
    halves = {"success_first_half": 0.25, "success_second_half": 0.5}
    assert str(pagephases._evidence(halves)) == "success 0.25, in the second half 0.5"
    many = str(pagephases._evidence({"a": 1.0, "b": 2.0, "c": 3.0, **halves}))
    assert many.startswith("<details><summary>4 figures</summary>")
    assert many.count("<div>") == 4


def test_a_column_without_a_value_is_left_out() -> None:
    shown = str(html.table(("Round", "pass", "All"), [("a", "", "1"), ("b", "-", "2")]))
    assert "pass" not in shown
    assert "All" in shown
    assert str(html.folded("three", "x")) == "<details><summary>three</summary>x</details>"


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
@pytest.mark.proof
def test_a_file_given_twice_counts_once_and_a_namesake_is_said_to_be_renamed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = []
    for place, shift in (("old", 0.0), ("new", 0.5)):
        run = whole(tmp_path / place / "local-0", shift=shift)
        show.show([run], tmp_path / place / "out", as_json=True)
        kept.append(tmp_path / place / "out" / "local-0.figures.gz")
    double = tmp_path / "double.figures.gz"
    double.write_bytes(kept[0].read_bytes())
    capsys.readouterr()
    show.show([kept[0], double, kept[1]], tmp_path / "both", as_json=True)
    said = capsys.readouterr().err
    assert f"left out {double}: the same run as {kept[0]}" in said
    assert f"{kept[1]} is called local-0-2: another run here is local-0" in said
    assert {path.name for path in (tmp_path / "both").glob("*.gz")} == {"local-0.figures.gz", "local-0-2.figures.gz"}


def test_a_run_without_rounds_has_no_empty_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show.show([Fabricated(tmp_path / "one").done()], None, as_json=False)
    said = capsys.readouterr().out
    assert "no evaluation round was opened" in said
    assert "ROUND" not in said
