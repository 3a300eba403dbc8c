"""Which demonstrations can be put together from steps of others, and a recording without a family."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.cluster import cli
from actors.replay.demos import demo_files
from actors.replay.demos.composition import composable, kinds_by_family, step_kind
from actors.replay.messages import StepPayload

LOCAL = Path(__file__).resolve().parents[3] / "deploy/demos/local.parquet"
SCREEN = "task: Rename plum.txt to fig.md\nw1 * Documents\ne1 menu-item Rename... (disabled)\ne2 icon plum.txt *\n"


def _step(action: str | None) -> StepPayload:
    return StepPayload(
        prompt_ids=[1], response_ids=[2], logprobs=[], spans=[], temperature=1.0, observation=SCREEN, response="",
        action=action, refusal=None, result=None, screenshot=None, observe_ms=0.0, generate_ms=0.0, act_ms=0.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ('{"function":"click","coordinates":"e1"}', "click coordinates=menu-item:Rename..."),
        ('{"function":"click","coordinates":"e2"}', "click coordinates=icon"),
        ('{"function":"switch_window","window_id":"w1"}', "switch_window window_id=window"),
        ('{"function":"type","text":"mv plum.txt fig.md\\n"}', "type text='mv WORDS\\n'"),
        ('{"function":"hotkey","keys":["ctrl","s"]}', "hotkey keys=['ctrl', 's']"),
        (None, ""),
    ],
)
def test_a_step_is_known_by_what_it_does_and_not_by_what_its_task_says(action: str | None, kind: str) -> None:
    assert step_kind(_step(action)) == kind


def test_what_the_other_families_show_makes_up_notes_to_files_and_never_files_moved() -> None:
    demos = [*demo_files.read(LOCAL)[1]]
    kinds = kinds_by_family(demos)
    shares = {}
    for family in ("note_to_files", "file_manager", "files_move"):
        others = set[str]().union(*(each for name, each in kinds.items() if name != family))
        mine = [demo for demo in demos if demo.task.startswith(f"{family}/")]
        shares[family] = composable(([step_kind(step.payload) for step in demo.steps] for demo in mine), others)
    assert shares == {"note_to_files": (86, 86), "file_manager": (60, 100), "files_move": (0, 94)}


def test_a_recording_is_exported_without_a_family(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "seven.parquet"
    assert cli.main(["demos", "export", str(LOCAL), str(file), "--without", "note_to_files"]) == 0
    header, demos = demo_files.read(file)
    families = {demo.task.partition("/")[0] for demo in demos}
    assert header.demos == 714
    assert len(families - {"note_to_files"}) == len(families) == 7
    assert all(not one.task.startswith("note_to_files/") for one in header.tasks)
    assert cli.main(["demos", "export", str(LOCAL), str(tmp_path / "x.parquet"), "--without", "note_to_file"]) == 2
    assert "did you mean note_to_files?" in capsys.readouterr().err
    assert not (tmp_path / "x.parquet").exists()
