from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import msgspec
import pytest

from actors.cluster import cli
from actors.cluster.runs import run_folder
from actors.cluster.views import runs as views
from actors.replay import events
from runtime.actor import Actor
from runtime.logs.writer import host_log
from runtime.program import program
from runtime.system import ActorSpec, ActorSystem
from tests.actors.cluster.fabricated import record


def made(runs: Path, name: str, verdict: str = "ok") -> Path:
    """A run folder with the logs of two actors, one of which holds hostile text."""
    run = run_folder.claim(runs / name, record(name, 5.0, "smoke"), resume=False)
    replay, seat = host_log(runs / name, "main").of("replay"), host_log(runs / name, "desktops/0").of("desktop/3")
    replay.emit(events.GROUP_OPENED, group="g1", task="a/b/1", phase="rl.2", trace="g1.0")
    fault = {"token": 1, "seat": "desktop/3", "lane": "train", "task": "a/b/1", "cause": "boot", "culprit": "seat"}
    seat.emit(events.EPISODE_RELEASED, detail="\x1b[2Jgone\nfake line\u202e", trace="g1.0", **fault)
    replay.emit(events.GROUP_ENDED, group="g1", task="a/b/1", ending="lost")
    for log in (replay, seat):
        log.close()
    run.end(verdict, None)
    return runs / name


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    made(tmp_path, "one")
    return tmp_path


def lines(capsys: pytest.CaptureFixture[str], *args: str) -> list[str]:
    assert cli.main(["logs", *args]) == 0
    return capsys.readouterr().out.splitlines()


def test_logs_come_in_time_order_and_filtered(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = ("one", "--runs", str(runs))
    everything = lines(capsys, *at, "-f")  # of a run that has ended
    assert [line.split()[3] for line in everything] == ["group_opened", "episode_released", "group_ended"]
    assert len(lines(capsys, *at, "--actor", "desktop")) == 1
    assert len(lines(capsys, *at, "--actor", "desktop/3")) == 1
    assert len(lines(capsys, *at, "--trace", "g1.0")) == 2
    assert len(lines(capsys, *at, "--level", "warning")) == 1
    assert json.loads(lines(capsys, *at, "--event", "group_ended", "--json")[0])["ending"] == "lost"
    raw = {"ts": "2026-01-01T00:00:00.000", "level": "info", "actor": "x\x1b", "event": "e", "field": "a\nb"}
    shown = views.format_line({**raw, "t0": 49708.31789, "loss": 0.129983, "most": 1e30})
    assert "\\n" in shown
    assert "t0=49708.318 loss=0.13 most=1e+30" in shown


@pytest.mark.parametrize(("no_colour", "coloured"), [("", True), ("1", False)])
def test_a_terminal_gets_colours_unless_its_user_wants_none(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], no_colour: str, coloured: bool
) -> None:
    monkeypatch.setenv("NO_COLOR", no_colour)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert ("\x1b[33m" in "".join(lines(capsys, "one", "--runs", str(runs)))) == coloured


def test_what_is_not_there_is_said(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in (
        (["--actor", "desktop/4"], "did you mean desktop/3?"),
        (["--event", "group_end"], "did you mean group_ended?"),
        (["-f", "--actor", "nope"], "--actor nope: no line of one has it"),
    ):
        assert cli.main(["logs", "one", "--runs", str(runs), *words]) == 2
        assert said in capsys.readouterr().err


def test_what_a_run_has_not_logged_yet_is_followed_and_said(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    going = iter([True, False])
    monkeypatch.setattr(views, "_goes_on", lambda _: next(going, False))
    assert cli.main(["logs", "one", "--runs", str(runs), "-f", "--event", "group_end"]) == 0
    assert "did you mean group_ended?" in capsys.readouterr().err


@pytest.mark.parametrize("text", [b"", b"{", b'{"name": 3}', b'{"name": "\xff"}', b'{"x": ' * 2000])
def test_a_broken_record_is_named_and_disables_no_other_run(
    runs: Path, text: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (runs / "two").mkdir()
    (runs / "two" / "run.json").write_bytes(text)
    at = ("--runs", str(runs))
    assert cli.main(["runs", *at, "--json"]) == 0
    assert [(run["name"], run["state"]) for run in json.loads(capsys.readouterr().out)] == [
        ("one", "ok"),
        ("two", "broken"),
    ]
    assert cli.main(["runs", *at]) == 0
    assert "run.json is broken" in capsys.readouterr().out
    assert cli.main(["status", "one", *at]) == 0
    assert cli.main(["status", *at]) == 0
    assert "run.json is broken" in capsys.readouterr().err
    assert len(lines(capsys, "one", *at)) == 3
    for words in (["status", "two"], ["run", "smoke", "--resume", "--name", "two"]):
        assert cli.main([*words, *at]) == 2
        assert "run.json is broken" in capsys.readouterr().err


def test_a_dry_run_refuses_what_the_run_would(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["run", "smoke", "--dry-run", "--runs", str(runs)]
    for words, said in (
        (["--name", "one"], "run one exists already"),
        (["--name", "a b"], "letters, digits"),
        (["--name", "on", "--resume"], "did you mean one?"),
        (["--resume", "--runs", str(runs / "none")], "nothing to resume"),
    ):
        assert cli.main([*at, *words]) == 2
        assert said in capsys.readouterr().err
    assert cli.main([*at, "--name", "two"]) == 0
    assert "run two would begin" in capsys.readouterr().out
    assert not (runs / "two").exists()


def test_status_of_an_ended_run_is_its_verdict(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made(runs, "two", verdict="failed")
    assert cli.main(["status", "one", "--runs", str(runs)]) == 0
    assert cli.main(["status", "two", "--runs", str(runs)]) == 1
    assert "two: failed" in capsys.readouterr().out
    made(runs, "three", verdict="stopped")
    assert cli.main(["status", "three", "--runs", str(runs)]) == 0
    assert f"continue with  {program()} run smoke --resume --name three" in capsys.readouterr().out
    (runs / "three" / "segments").mkdir()
    (runs / "three" / "segments" / "a.seg").touch()
    assert cli.main(["status", "three", "--runs", str(runs)]) == 0
    said = capsys.readouterr().out
    assert "it can't go on: its ledger.sqlite is gone" in said
    assert "--resume" not in said


class Idle(Actor):
    """Does nothing."""

    def doing(self) -> str:
        return "idling \x1b[2J"


async def test_status_of_a_live_run_asks_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_folder.claim(tmp_path / "x", record("x"), resume=False)
    async with ActorSystem(tmp_path / "x") as system:
        await system.spawn(ActorSpec(name="idle", factory=Idle))
        assert await asyncio.to_thread(cli.main, ["status", "x", "--runs", str(tmp_path), "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert await asyncio.to_thread(cli.main, ["status", "x", "--runs", str(tmp_path)]) == 0
        here = await system.statuses()
        away = msgspec.structs.replace(here[0], name="desktop/0", host="desktops/0", machine="node7")
        monkeypatch.setattr(views, "query_status", lambda _: [*here, away])
        assert await asyncio.to_thread(cli.main, ["status", "x", "--runs", str(tmp_path)]) == 0
    run.end("ok", None)
    assert (report["state"], [actor["name"] for actor in report["actors"]]) == ("running", ["idle"])
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert shown.count("MACHINE") == 1  # not where all is here
    assert [row.split()[2] for row in shown.splitlines()[-2:]] == ["here", "node7"]


@pytest.mark.parametrize("words", [("logs", "x"), ("report", "last"), ("status", "x"), ("runs",)], ids=" ".join)
def test_a_hint_keeps_the_folder_of_runs(
    tmp_path: Path, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    cli.main([*words, "--runs", str(tmp_path)])
    assert f" --runs {tmp_path}" in "".join(capsys.readouterr()).rpartition(program())[2]


def test_help_is_a_command_and_words_that_nothing_takes_are_told_what_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    assert "first steps:" in capsys.readouterr().out
    for words, said in (((), "usage: computerrl [-h]"), (("logs",), "usage: computerrl logs")):
        with pytest.raises(SystemExit) as ended:
            cli.main(["help", *words])
        assert ended.value.code == 0
        assert capsys.readouterr().out.startswith(said)
    with pytest.raises(SystemExit):
        cli.main(["web", "a", "b"])
    assert "b: unexpected, the command takes RUN" in capsys.readouterr().err
