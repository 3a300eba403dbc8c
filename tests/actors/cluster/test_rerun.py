"""Recorded episodes, played and judged again: what comes otherwise is told from what can't be said."""

from __future__ import annotations

import contextlib
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
from runtime.segments import SegmentStore
from tests.actors.cluster.fabricated import whole

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

    step, gave_up = recorded.steps[0], Outcome(success=False, reason="agent_gave_up")
    other = msgspec.structs.replace(step, observation=step.observation + "\ne99 menu Forged")
    found = played.differences(msgspec.structs.replace(recorded, steps=[other]), again.steps, gave_up)
    assert [(one.step, one.what) for one in found] == [
        (1, "observation"), *((number, "step") for number in range(2, len(again.steps) + 1)), (0, "verdict"),
    ]  # fmt: skip
    assert (found[-1].recorded, found[-1].again) == ("success (verified)", "failure (gave up)")


def test_what_was_played_comes_before_what_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = whole(tmp_path / "one")
    assert cli.main(["rerun", "one", "eval.final.9", "--runs", str(run.parent)]) == 2
    assert "eval.final.9: no such episode in one" in capsys.readouterr().err


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
