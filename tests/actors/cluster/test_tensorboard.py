"""Event files beside the JSON lines: read back by TensorBoard's own reader, nothing twice, nothing undone kept."""

from __future__ import annotations

import asyncio
import json
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cluster import tensorboard
from actors.cluster.evaluation import untrained_families
from actors.cluster.scalars import of_line, scalars
from runtime.logs import ActorLog


def line(event: str, second: int, **fields: Any) -> dict[str, Any]:
    stamp = f"2026-01-01T{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}+00:00"
    return {"ts": stamp, "t": float(second), "level": "info", "event": event, "actor": "x", "trace": None, **fields}


def step(version: str, second: int, loss: float = 0.5, phase: str = "rl") -> dict[str, Any]:
    figures = {"kl": loss / 10}
    return line(
        "learner_step", second, version=version, phase=phase, kind="grpo", lease=second, t0=0.0, t1=1.0, loss=loss,
        figures=figures,
    )  # fmt: skip


def restart(version: str, parent: str, second: int) -> dict[str, Any]:
    return line("lineage_started", second, version=version, parent=parent, returned=0, orphaned=0)


def write(run: Path, lines: list[dict[str, Any]]) -> None:
    (run / "logs").mkdir(exist_ok=True, parents=True)
    with (run / "logs" / "learner.jsonl").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(one) + "\n" for one in lines)


def read_back(run: Path) -> dict[str, list[tuple[int, float]]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what the reader imports
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        reader = EventAccumulator(str(run / tensorboard.FOLDER)).Reload()
    return {
        tag: [(event.step, event.value) for event in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]
    }  # fmt: skip


async def followed(run: Path, later: list[dict[str, Any]]) -> None:
    log = ActorLog(run, "host/main")
    task = asyncio.ensure_future(tensorboard.follow(run, log, period_s=0.02))
    await asyncio.sleep(0.1)
    write(run, later)
    await asyncio.sleep(0.1)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    log.close()


async def test_scalars_are_read_back_and_a_resume_repeats_nothing(tmp_path: Path) -> None:
    write(tmp_path, [step("0.1", 1, phase="bc"), step("0.2", 2, 0.25)])
    closed = line(
        "eval_round_closed", 4, round="r", version="0.2", temperature=0.0, tasks=4, played=4, successes=3, feasible=4,
        faults=0, families={"a": 0.5}, pass_at={"1": 0.75},
    )  # fmt: skip
    await followed(tmp_path, [step("0.3", 3, 0.125), closed])
    found = read_back(tmp_path)
    assert found["bc/loss"] == [(1, 0.5)]
    assert found["rl/loss"] == [(2, 0.25), (3, 0.125)]
    assert found["eval/success/greedy"] == [(2, 0.75)]
    assert found["eval/success/greedy/a"] == [(2, 0.5)]
    await followed(tmp_path, [restart("1.2", "0.2", 9), step("1.3", 10, 0.75)])
    assert read_back(tmp_path)["rl/loss"] == [(2, 0.25), (3, 0.75)]
    assert len(list((tmp_path / tensorboard.FOLDER).iterdir())) == 1


def test_what_both_lines_of_a_step_say_is_no_curve() -> None:
    """The learner counts a stay's steps from 0, the evidence from 1: one tag would get two values."""
    learned = line("learner_step", 1, phase="rl", version="0.3", loss=0.5, figures={"stay_step": 2.0, "kl": 0.1})
    evident = line("rl_evidence", 1, version="0.3", stay_step=3, coverage=0.5)
    tags = [scalar.tag for said in (learned, evident) for scalar in of_line(said)]
    assert sorted(tags) == ["rl/coverage", "rl/kl", "rl/loss"]


def test_a_rounds_success_is_that_of_the_families_a_run_is_judged_by() -> None:
    families = {"text_editor": 0.5, "files_move": 1.0, "calc_column": 0.25}
    closed = line(
        "eval_round_closed", 4, round="r", version="0.2", temperature=1.0, tasks=16, played=16, successes=8,
        feasible=16, faults=0, success=0.5, families=families, pass_at={"1": 0.5},
        instances={"text_editor": 6, "files_move": 2, "calc_column": 8},
    )  # fmt: skip
    assert "calc_column" in untrained_families()
    assert not {"text_editor", "files_move"} & untrained_families()
    found = {scalar.tag: scalar.value for scalar in of_line(closed)}
    assert found == {
        "eval/success/t=1": 0.625, "eval/success/t=1/never_trained": 0.25, "eval/pass_at_1/t=1/all_families": 0.5,
        **{f"eval/success/t=1/{family}": share for family, share in families.items()},
    }  # fmt: skip


async def test_a_learner_that_starts_anew_under_a_run_takes_its_undone_steps_back(tmp_path: Path) -> None:
    write(tmp_path, [step("0.1", 1), step("0.2", 2), step("0.3", 3)])
    await followed(tmp_path, [restart("1.1", "0.1", 4), step("1.2", 5, 0.25)])
    assert read_back(tmp_path)["rl/loss"] == [(1, 0.5), (2, 0.25)]
    assert len(list((tmp_path / tensorboard.FOLDER).iterdir())) == 1


async def test_a_disk_that_fails_is_said_and_does_not_end_the_run(tmp_path: Path) -> None:
    write(tmp_path, [step("0.1", 1)])
    (tmp_path / tensorboard.FOLDER).write_text("in the way")
    await followed(tmp_path, [])
    assert "scalars_stopped" in (tmp_path / "logs" / "host-main.jsonl").read_text()


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.data())
def test_every_step_has_one_value_however_often_the_learner_starts_anew(
    lengths: list[int], data: st.DataObject
) -> None:
    lines: list[dict[str, Any]] = []
    at, kept = 0, {}
    for lineage, length in enumerate(lengths):
        if lineage:
            back = data.draw(st.integers(0, at))
            lines.append(restart(f"{lineage}.{back}", f"{lineage - 1}.{back}", len(lines)))
            kept = {number: value for number, value in kept.items() if number <= back}
            at = back
        for _ in range(length):
            at += 1
            kept[at] = float(len(lines))
            lines.append(step(f"{lineage}.{at}", len(lines), kept[at]))
    found = [(one.step, one.value) for one in scalars(lines) if one.tag == "rl/loss"]
    assert found == sorted(kept.items())


def test_what_is_no_number_is_no_scalar() -> None:
    found = {one.tag for one in scalars([step("0.1", 1, float("nan"))])}
    assert found == set()
    evidence = line("rl_evidence", 2, version="0.1", lease=1, stay=1, rl_step=1, coverage=0.5, wasted={"stale": 2})
    assert {one.tag: one.value for one in scalars([evidence])} == {"rl/coverage": 0.5, "rl/wasted/stale": 2.0}


@pytest.mark.parametrize("event", ["phase_changed", "episode_ended"])
def test_other_lines_are_passed_by(event: str) -> None:
    assert scalars([line(event, 1, version="0.1")]) == []
