"""The report's stays in a phase: those that the run went through, each with the steps that were made of it."""

from __future__ import annotations

from pathlib import Path

from actors.cluster.report.gather import gather
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
