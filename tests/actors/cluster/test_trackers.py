"""Curves from the ledger, in event files and at trackers: nothing twice, nothing undone kept, none lost."""

from __future__ import annotations

import asyncio
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.cluster import cli
from actors.cluster.config.suites import untrained_families
from actors.cluster.runs import trackers
from actors.cluster.runs.trackers import TENSORBOARD, CurveSender, Point, of_round
from actors.replay.messages import Batch, Phase
from runtime.logs.writer import host_log
from tests.actors.replay.ledger_tools import Play
from tests.heard import until
from tests.small_disk import fill, needs_root, small_disk


def learn(play: Play, **figures: float) -> None:
    """One step of RL on one group."""
    now = str(play.ledger.tx.trained)
    play.serving(now)
    batch = play.take()  # what a resume gave back comes first
    if not isinstance(batch, Batch):
        play.group([True, False], now)
        batch = play.batch()
    play.trained(batch, **figures)


def found(run: Path) -> list[tuple[str, int, float]]:
    return [
        (tag, point.step, value)
        for point in CurveSender(run, TENSORBOARD).new()[0]
        for tag, value in point.scalars.items()
    ]


def read_back(run: Path) -> dict[str, list[tuple[int, float]]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what the reader imports
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        reader = EventAccumulator(str(run / TENSORBOARD)).Reload()
    return {tag: [(event.step, event.value) for event in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}


async def followed(run: Path, later: Callable[[], None]) -> None:
    log, looks, catch_up = host_log(run, "main"), list[int](), CurveSender.catch_up

    def look(sender: CurveSender) -> None:
        try:
            catch_up(sender)
        finally:
            looks.append(1)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CurveSender, "catch_up", look)
        task = asyncio.ensure_future(trackers.follow(run, (), log, period_s=0.02))
        await until(lambda: looks)
        later()
        before = len(looks)
        await until(lambda: len(looks) > before + 1)  # the first may have begun before
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    log.close()


async def test_scalars_are_read_back_and_a_resume_repeats_nothing_and_loses_nothing(tmp_path: Path) -> None:
    play = Play(tmp_path, demos=1)
    play.demonstrate(1)
    play.phase(Phase.BC, steps=1)
    play.trained(play.batch(), loss=0.5, stay_step=0.0)
    play.checkpointed("0.1")
    play.rl()
    learn(play, loss=0.25, stay_step=0.0)
    play.checkpointed("0.2")

    def later() -> None:
        learn(play, loss=0.125)
        play.phase(Phase.DONE)
        play.open_eval("r", "0.2", ["a/1", "a/2"], temperature=0.0)
        for success in (True, False):
            play.commit(play.reserve(), success)

    await followed(tmp_path, later)
    first = read_back(tmp_path)
    assert first["bc/loss"] == [(1, 0.5)]
    assert first["rl/loss"] == [(2, 0.25), (3, 0.125)]
    assert "bc/success" not in first
    assert first["eval/success/greedy/a"] == first["eval/success/greedy"] == [(2, 0.5)]
    assert [number for number, _ in first["rl/coverage"]] == [number for number, _ in first["rl/success"]] == [2, 3]
    assert not {"rl/stay_step", "bc/stay_step", "rl/rl_step"} & first.keys()
    play.reopen(incarnation="again")  # its logs may be gone meanwhile
    play.resumed("1.2", "0.2")
    await followed(tmp_path, lambda: learn(play, loss=0.75))
    second = read_back(tmp_path)
    assert second["rl/loss"] == [(2, 0.25), (3, 0.75)]
    assert {tag.partition("/all_")[0] for tag in second} == {tag.partition("/all_")[0] for tag in first}
    assert len(list((tmp_path / TENSORBOARD).iterdir())) == 1


def test_a_rounds_success_is_that_of_the_families_a_run_is_judged_by() -> None:
    families = {"text_editor": 0.5, "files_move": 1.0, "calc_column": 0.25}
    instances = {"text_editor": 6, "files_move": 2, "calc_column": 8}
    assert untrained_families(families) == {"calc_column"}
    assert untrained_families(families, ["text_editor"]) == {"calc_column", "files_move"}
    said = {"temperature": 1.0, "families": families, "instances": instances, "pass_at": {"1": 0.5}}
    assert dict(of_round(said)) == {
        "success/t=1": 0.625, "success/t=1/never_trained": 0.25, "pass_at_1/t=1/all_families": 0.5,
        **{f"success/t=1/{family}": share for family, share in families.items()},
    }  # fmt: skip
    of_this_run = dict(of_round(said, ["text_editor"]))
    assert (of_this_run["success/t=1"], of_this_run["success/t=1/never_trained"]) == (0.5, 0.4)


@needs_root
async def test_a_full_disk_is_said_once_and_ends_no_thread(tmp_path: Path) -> None:
    play = Play(tmp_path)
    play.rl()
    learn(play, loss=0.5)
    with small_disk(tmp_path / TENSORBOARD, 1) as folder:
        ballast = fill(folder)
        await followed(tmp_path, ballast.unlink)
        assert (tmp_path / "logs" / "main.jsonl").read_text().count("scalars_stopped") == 1
        assert read_back(tmp_path)["rl/loss"] == [(1, 0.5)]
        assert len(list(folder.iterdir())) == 1


@settings(max_examples=10, deadline=None)
@given(lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3), data=st.data())
@pytest.mark.slow
def test_every_step_has_one_value_however_often_the_learner_starts_anew(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("run")
    play = Play(folder)
    play.rl()
    saved, kept, number = 0, dict[int, float](), 0.0
    for lineage, length in enumerate(lengths):
        if lineage:
            play.resumed(f"{lineage}.{saved}", str(play.ledger.tx.checkpointed or "0.0"))
            kept = {at: value for at, value in kept.items() if at <= saved}
        for at in range(saved + 1, saved + 1 + length):
            number += 1
            kept[at] = number
            learn(play, loss=number)
        if data.draw(st.booleans()):
            saved += length
            play.checkpointed(f"{lineage}.{saved}")
    assert [(step, value) for tag, step, value in found(folder) if tag == "rl/loss"] == sorted(kept.items())


class Kept:
    """A tracker's runs in memory."""

    def __init__(self) -> None:
        self.runs: list[list[tuple[str, int, float]]] = []
        self.ended = 0

    def begin(self, name: str, group: str, folder: Path) -> Kept:
        assert name.startswith(f"{group}-")
        self.runs.append([])
        return self

    def log(self, points: Sequence[Point]) -> None:
        self.runs[-1] += [("rl/loss", one.step, one.scalars["rl/loss"]) for one in points]

    def end(self) -> None:
        self.ended += 1


def test_each_step_is_sent_once_and_a_new_lineage_begins_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, play = Kept(), Play(tmp_path)
    monkeypatch.setitem(trackers.TRACKERS, "wandb", kept.begin)
    play.rl()
    learn(play, loss=0.5)
    play.checkpointed("0.1")
    looks = 0

    def ended(seconds: float) -> bool:
        nonlocal looks
        looks += 1
        if looks == 1:
            learn(play, loss=0.25)
        elif looks == 3:
            play.resumed("1.1", "0.1")
            learn(play, loss=0.125)
        return looks == 3

    trackers.send(tmp_path, "wandb", ended)
    first, second = [("rl/loss", 1, 0.5), ("rl/loss", 2, 0.25)], [("rl/loss", 1, 0.5), ("rl/loss", 2, 0.125)]
    assert kept.runs == [first, second]
    assert kept.ended == 2


async def test_a_tracker_that_fails_is_logged_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = host_log(tmp_path, "main")
    monkeypatch.setattr(trackers, "MODULE", "no_such_module")
    followed = asyncio.ensure_future(trackers.follow(tmp_path, ["wandb"], log))
    await until(lambda: "tracker_stopped" in (tmp_path / "logs/main.jsonl").read_text())
    assert not followed.done()
    followed.cancel()
    with suppress(asyncio.CancelledError):
        await followed
    log.close()
    assert "No module named no_such_module" in (tmp_path / "logs/main.jsonl").read_text()


def test_a_tracker_that_is_not_installed_is_refused_before_anything_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    assert cli.main(["run", "smoke", "--dry-run", "--set", "run.trackers=[mlflow]"]) == 2
    mend = f"{sys.executable} -m pip install 'computerrl[trackers]'"
    assert f"run.trackers: mlflow is not installed: {mend}" in capsys.readouterr().err
