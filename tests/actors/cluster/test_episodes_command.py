"""`computerrl episodes`: what was played is listed and shown whole. None of its words steers a terminal or a page."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest

from actors.cluster import cli
from runtime.program import program
from tests.actors.cluster.fabricated import PICTURED, Fabricated, Reader, jpeg, whole


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    whole(folder / "one")
    run = Fabricated(folder / "torn", seed=1)
    run.put(
        "reservations", token=7, request_id="7", seat="desktop/0", lane="train", task="calc/train/1", stay=0,
        group_id=None, slot=3, state="released", expires=0.0, reply=b"",
    )  # fmt: skip
    run.log("episode_released", trace="g.3", token=7, cause="boot_failed", detail="no room", culprit="host")
    run.done()
    return folder


def shown(capsys: pytest.CaptureFixture[str], runs: Path, *words: str, status: int = 0) -> str:
    assert cli.main(["episodes", *words, "--runs", str(runs)]) == status
    captured = capsys.readouterr()
    return captured.err if status else captured.out


def test_episodes_are_listed_newest_first(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = json.loads(shown(capsys, runs, "one", "--json"))
    assert [one["token"] for one in listed] == [*range(205, 199, -1), *range(105, 99, -1)]
    assert (listed[0]["trace"], listed[0]["where"], listed[0]["steps"]) == ("eval.final.5", "final", 1)
    failed = json.loads(shown(capsys, runs, "one", "--failure", "--phase", "final", "--json"))
    assert [(one["trace"], one["ending"]) for one in failed] == [("eval.final.3", "failure")]
    table = shown(capsys, runs, "one", "--most", "2", "--family", "file_manager")
    assert "12 episodes, the newest 2 shown: --most 12 shows all" in table
    assert f"computerrl episodes show one --runs {runs} eval.final.5" in table


def test_an_episode_is_shown_step_by_step(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = shown(capsys, runs, "show", "one", "eval.final.3", "--tokens")
    assert "eval.final.3  file_manager/held-out/3  played in final  token 203" in said
    assert "verdict: failure (" in said
    assert "\x1b" not in said
    assert "LOGPROB" in said
    plain = json.loads(shown(capsys, runs, "show", "one", "203", "--json"))
    assert plain["steps"][0]["response_ids"] == [2]


def test_an_episode_is_a_page(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown(capsys, runs, "show", "one", "eval.final.3", "--html", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    Reader(page).refuse_outside()
    assert "data:image/jpeg;base64," in page


def test_a_page_shows_the_very_picture_that_the_model_saw(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    png = jpeg("PNG")
    digest = hashlib.sha256(png).hexdigest()
    shown(capsys, runs, "show", "one", str(PICTURED), "--html", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    assert f"data:image/png;base64,{base64.b64encode(png).decode()}" in page
    assert f"what the model saw, SHA-256 {digest[:16]}" in page
    assert json.loads(shown(capsys, runs, "show", "one", str(PICTURED), "--json"))["steps"][0]["pictures"] == [digest]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("show", "one", "eval.final.9"), "eval.final.9: no such episode in one; did you mean eval.final."),
        (("show", "one", "eval.after_bc.2"), "its steps have been deleted"),
        (("show", "torn", "7"), "was broken by a fault: boot_failed: no room"),
        (("one", "--family", "file_manger"), "did you mean file_manager"),
        (("one", "--most", "0"), "--most 0: it counts from 1"),
        (("show", "one", "203", "--html", "no/such/page.html"), "--html no/such/page.html: there is no folder"),
        (("show", "one", "203", "--html", "/proc"), "--html /proc: a folder; name a file"),
        (("show", "one", "203", "--html", "/proc/page.html"), "--html /proc: nothing can be written there"),
    ],
)
def test_what_is_not_there_is_one_line(
    runs: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: str
) -> None:
    said = shown(capsys, runs, *words, status=2)
    assert expected in said
    assert said.count("\n") == 1


def test_no_command_prints_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert "first steps:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("list", "one"), f"list one: a list is  {program()} episodes RUN,"),
        (("one", "eval.final.3"), f"one of them  {program()} episodes show RUN EPISODE"),
        (("show", "one"), f"one of them  {program()} episodes show RUN EPISODE"),
        (("one", "--tokens"), "--tokens is of one episode"),
        (("show", "one", "203", "--fault"), "--fault is of a list"),
    ],
)
def test_another_form_is_refused_by_the_right_one(
    runs: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: str
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["episodes", *words, "--runs", str(runs)])
    assert expected in capsys.readouterr().err
