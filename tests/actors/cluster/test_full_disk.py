"""What a person is told of a run's disk, and what is stored of a run that a full disk ended."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from actors.cluster.runs import execute, run_folder
from tests.small_disk import fill, needs_root, small_disk


@needs_root
async def test_a_disk_that_refuses_is_told_once_with_its_folder_and_what_to_do(tmp_path: Path) -> None:
    notes: list[str] = []
    with small_disk(tmp_path / "run", 1) as run:
        task = asyncio.ensure_future(execute.watch_disk(run, notes.append, look_s=0.02))
        await asyncio.sleep(0.1)
        assert notes == []
        ballast = fill(run)
        await asyncio.sleep(0.2)
        assert [f"the disk of {run} takes no more: No space left on device (make room there;" in n for n in notes] == [
            True
        ]
        ballast.unlink()
        await asyncio.sleep(0.2)
        assert len(notes) == 2
        assert "the run goes on" in notes[1]
        assert list(run.iterdir()) == []
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@needs_root
def test_the_verdict_of_a_run_is_stored_on_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1) as disk:
        record = run_folder.RunRecord(name="r", file="l", seed=0, build="b", versions={}, started="", started_s=0.0)
        run = run_folder.claim(disk / "r", record, resume=False)
        run.save()
        fill(disk)
        run.end("crashed", "the disk takes no more " * 100)
        assert run_folder.read_record(disk / "r").verdict == "crashed"
        assert not list((disk / "r").glob("*.part"))
