"""`computerrl episodes`: what was played is listed and shown whole. None of its words steers a terminal or a page."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
from pathlib import Path

import msgspec
import pytest

from actors.cluster import cli
from actors.cluster.checks import played
from actors.cluster.config.schema import Deploy, SeatsConfig
from actors.cluster.report.episodes import EpisodeView, ShownStep
from actors.desktop.config import SandboxConfig
from actors.desktop.files.read_home import FileSeen, ReadRefusal
from actors.desktop.player import Play, Player, demonstrated
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.recorder import EndState
from actors.desktop.scene import wanted_of
from actors.replay.database.ledger_file import connect
from actors.replay.messages import Outcome, StepRef
from apis.tasks.registry import task
from apis.tasks.verify.manifest import Manifest
from policy.base import MODEL
from policy.tokenizer import Tokenizer
from runtime.program import program
from runtime.segments import SegmentStore
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


def test_an_episode_is_a_page_with_the_very_picture_that_the_model_saw(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown(capsys, runs, "show", "one", "eval.final.3", "--html", str(tmp_path / "page.html"))
    page = (tmp_path / "page.html").read_text()
    Reader(page).refuse_outside()
    assert "data:image/jpeg;base64," in page
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
        (("one", "--most", "0"), "--most is 0: it counts from 1"),
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
    if "eval.final.9" in words:
        assert cli.main(["rerun", "one", "eval.final.9", "--runs", str(runs)]) == 2
        assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("list", "one"), f"list one: a list is  {program()} episodes RUN,"),
        (("one", "eval.final.3"), f"one of them  {program()} episodes show RUN EPISODE"),
        (("show", "one"), f"one of them  {program()} episodes show RUN EPISODE"),
        (("one", "--tokens"), "--tokens is of one episode"),
        (("show", "one", "203", "--fault"), "--fault is of a list"),
        (("show", "one", "203", "--html", "/proc/e.html", "--tokens"), "--tokens: not allowed with argument --html"),
    ],
)
def test_another_form_is_refused_by_the_right_one(
    runs: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: str
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["episodes", *words, "--runs", str(runs)])
    assert expected in capsys.readouterr().err


TASK = "file_manager/train/1"


def view(play: Play) -> EpisodeView:
    """A play as it is read from a run's folder."""
    assert play.outcome is not None
    steps = [msgspec.convert(msgspec.structs.asdict(one), ShownStep) for one in play.steps]
    return EpisodeView(token=1, task=play.task, lane="train", where="rl", success=play.outcome.success,
                       reason=play.outcome.reason, steps=steps, pictures={})  # fmt: skip


@pytest.mark.proof
async def test_recorded_answers_bring_what_they_brought(tmp_path: Path, state_dir: str) -> None:
    deploy = Deploy(desktops=SeatsConfig(provider=SandboxConfig(state_dir=state_dir)))
    pool = await DesktopPool.open(deploy.desktops.of_one_host(), tmp_path / "plays")
    first = await Player(pool).play(TASK, demonstrated(Tokenizer.load(MODEL)))
    await pool.close()
    assert first.success, first.detail
    recorded = view(first)
    again = await played.played_again(deploy, recorded)
    assert again.outcome is not None, again.detail
    assert played.differences(recorded, again.steps, again.outcome) == []
    for booted in (True, False):  # the first fills the memo
        known = await played.played_again(deploy, recorded, tmp_path / "memo.parquet")
        assert known.outcome is not None, known.detail
        assert played.differences(recorded, known.steps, known.outcome) == []
        assert bool(known.cpu_s) is booted

    step, gave_up = recorded.steps[0], Outcome(success=False, reason="agent_gave_up")
    other = msgspec.structs.replace(step, observation=step.observation + "\ne99 menu Forged")
    found = played.differences(msgspec.structs.replace(recorded, steps=[other]), again.steps, gave_up)
    assert [(one.step, one.what) for one in found] == [
        (1, "observation"), *((number, "step") for number in range(2, len(again.steps) + 1)), (0, "verdict"),
    ]  # fmt: skip
    assert (found[-1].recorded, found[-1].again) == ("success (verified)", "failure (gave up)")


def keep_end(run: Path, token: int, end: EndState) -> None:
    """Give a fabricated episode an end state, and the verdict of a verifier."""
    segments = SegmentStore(run / "segments", f"ends-{token}")
    blobs = [segments.append(part) for part in end.parts()]
    segments.close()
    db, _ = connect(run / "ledger.sqlite")
    with contextlib.closing(db):
        (kept,) = db.execute("SELECT ref FROM steps WHERE token = ?", (token,)).fetchone()
        ref = msgspec.structs.replace(msgspec.msgpack.decode(kept, type=StepRef), end=blobs)
        db.execute("UPDATE steps SET ref = ? WHERE token = ?", (msgspec.msgpack.encode(ref), token))
        db.execute("UPDATE episodes SET reason = 'not_verified' WHERE token = ? AND NOT success", (token,))


def test_verdicts_that_change_are_told_and_what_was_not_kept_is_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = whole(tmp_path / "one")
    for number in (0, 3):  # a success and a failure, both of which left nothing behind
        wanted = wanted_of(task(f"file_manager/held-out/{number}"), Manifest())
        files = [FileSeen(path=one.path, refusal=ReadRefusal.MISSING) for one in wanted]
        keep_end(run, 200 + number, EndState(files, Manifest(), Manifest(), "/home/agent"))
    keep_end(run, 201, EndState([], Manifest(), Manifest(), "/home/agent"))
    ledger = (run / "ledger.sqlite").read_bytes()
    assert cli.main(["reverify", "one", "--runs", str(run.parent), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["judged"], found["successes_recorded"]) == (2, 1)
    assert [(one["trace"], one["success"]) for one in found["changes"]] == [("eval.final.0", False)]
    assert sum(found["left_out"].values()) == 3 + 2 + 1  # nothing kept of, gone with after_bc, and half kept
    assert cli.main(["reverify", "one", "--runs", str(run.parent)]) == 1
    assert "2 end states judged again, 1 with another verdict; successes 1 -> 0" in capsys.readouterr().out
    assert (run / "ledger.sqlite").read_bytes() == ledger
    assert cli.main(["reverify", "one", "--runs", str(run.parent), "--family", "calc"]) == 2
    assert "has no end state that can be judged again of calc" in capsys.readouterr().err
