"""The report's stays in a phase: those that the run went through, each with the steps that were made of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

from actors.cluster.report.gather import RunData, gather
from actors.cluster.report.pagephases import around
from tests.actors.cluster.test_report_page import Fabricated


def test_stays_that_a_resume_undid_are_no_part_of_the_run(tmp_path: Path) -> None:
    """RL from step 2, a pulse from step 4, and the learner resumed from step 3; so, once more, of the next pulse."""
    run = Fabricated(tmp_path / "resumed")
    run.learn(steps=4)
    later = [(2, 2, "pulse", "0.4"), (3, 1, "rl", "0.2"), (4, 4, "pulse", "1.5"), (5, 5, "rl", "1.6"),
             (6, 4, "pulse", "1.5")]  # fmt: skip
    for idx, root, phase, start in later:
        cause = "resumed" if root < idx else "counted"
        run.put("stays", idx=idx, root=root, phase=phase, start=start, seq_bound=0, cause=cause, evidence="{}", wall=0)
    found = gather(run.done())
    path = [("demo", 0), ("rl", 2), ("pulse", 5)]
    assert [(one.phase, one.start) for one in found.switches] == path
    assert [(one.phase, one.start) for one in found.figures.segments] == path
    assert [tuple(one[:3]) for one in found.stretches()] == [("demo", 0, 2), ("rl", 2, 5), ("pulse", 5, 6)]


def test_what_a_change_of_phase_did_is_read_from_its_own_neighbours() -> None:
    """Stays of two steps: neither an earlier stay nor what a later pulse did counts."""
    rl = {1: 1.0, 2: 2.0, 4: 4.0, 5: 6.0, 7: 10.0}
    steps = [SimpleNamespace(step=step, phase="rl", figures={"entropy": value}) for step, value in rl.items()]
    found = changes(steps, {0: ["demo", "rl"], 2: ["pulse"], 3: ["rl"], 5: ["pulse"], 6: ["rl"], 7: ["done"]})
    assert found == ["-", "-", "1.500 -> 5.000", "-", "5.000 -> 10.000", "-", "-"]


def test_a_step_under_way_when_its_stay_ended_is_no_step_after_the_change() -> None:
    """A pulse that a plateau began after step 2 while step 3 was made; the last of all came after the end, too."""
    rl = {1: 1.0, 2: 2.0, 3: 6.0, 6: 4.0, 7: 8.0}
    steps = [SimpleNamespace(step=step, phase="rl", figures={"entropy": value}) for step, value in rl.items()]
    found = changes(steps, {0: ["demo", "bc", "rl"], 2: ["pulse"], 5: ["rl"], 6: ["done"]})
    assert found == ["-", "-", "-", "3.000 -> 6.000", "-", "-"]


def changes(steps: list[SimpleNamespace], phases: dict[int, list[str]]) -> list[str]:
    """What each change did to the entropy; `phases` by the step that they began after."""
    switches = [SimpleNamespace(start=start, phase=name) for start, names in phases.items() for name in names]
    run = cast("RunData", SimpleNamespace(steps=steps, switches=switches))
    return [around(run, "entropy", at) for at in range(len(switches))]
