"""What stays on disk: payloads and reservoirs."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from actors.replay.ledger import retention
from actors.replay.messages import Phase, Reservation, StepPayload, StepRef
from runtime.errors import StoreError
from runtime.messaging.message import BlobRef, Version
from runtime.segments import SegmentStore, read_blob
from tests.actors.replay.ledger_tools import Play, payload


class Desk:
    """Commits episodes with real payloads, a hundred kilobytes each."""

    def __init__(self, folder: Path, **rules: int) -> None:
        self.folder = folder / "segments"
        self.store = SegmentStore(self.folder, "desk", max_bytes=500_000)
        self.play = Play(folder, **rules)
        self.count = 0

    def steps(self, version: str | None, *, picture: bool = False) -> list[StepRef]:
        self.count += 1
        shot = self.store.append(f"picture {self.count}".encode() * 100) if picture else None
        content = payload(observation=f"{self.count} " + "x" * 100_000, screenshot=shot)
        blob = self.store.append(msgspec.msgpack.encode(content))
        oldest = Version.parse(version) if version else None
        return [
            StepRef(blob=blob, prompt_tokens=3, response_tokens=2, well_formed=True, oldest=oldest, screenshot=shot)
        ]

    def finish(self, work: Reservation, success: bool, version: str | None, *, picture: bool = False) -> StepRef:
        steps = self.steps(version, picture=picture)
        self.play.commit(work, success, steps)
        return steps[0]

    def sweep(self) -> int:
        self.play.do(retention.collect)
        freed: int = self.play.do(lambda tx: retention.sweep(tx, self.folder))
        return freed

    def used(self) -> int:
        return sum(path.stat().st_blocks * 512 for path in self.folder.glob("*.seg"))


def test_failures_go_and_successes_stay(tmp_path: Path) -> None:
    desk = Desk(tmp_path, keep_payload_steps=1)
    desk.play.rl()
    kept, gone = [], []
    for n in range(3):
        version = f"0.{n}"
        kept.append(desk.finish(desk.play.reserve(), True, version, picture=True))
        gone.append(desk.finish(desk.play.reserve(), False, version, picture=True))
        desk.play.trained(desk.play.batch())
        desk.play.serving(f"0.{n + 1}")
    assert desk.sweep() == 0, "no checkpoint: the groups may come back"
    desk.play.checkpointed("0.3")
    assert desk.sweep() == 0, "their groups ended just now"
    desk.play.group([False, False], "0.3")
    desk.play.group([True, False], "0.3")
    desk.play.trained(desk.play.batch())
    assert desk.sweep() > 3 * 100_000
    assert desk.sweep() == 0
    for ref in kept:
        assert ref.screenshot is not None
        assert msgspec.msgpack.decode(read_blob(desk.folder, ref.blob), type=StepPayload).prompt_ids == [1, 2, 3]
        read_blob(desk.folder, ref.screenshot)
    for ref in gone:
        with pytest.raises(StoreError):
            read_blob(desk.folder, ref.blob)


@pytest.mark.slow
def test_disk_is_bounded_while_a_run_goes_on(tmp_path: Path) -> None:
    """Forty steps of two 100 kB episodes each need no more space than a few of them."""
    desk = Desk(tmp_path, keep_payload_steps=1, reservoir_per_task=1)
    desk.play.rl()
    most = 0
    for n in range(40):
        desk.play.wall += 1e9  # nothing that is written now is newer than the oldest episode in flight
        version = f"0.{n}"
        desk.finish(desk.play.reserve(), True, version)
        desk.finish(desk.play.reserve(), False, version)
        desk.play.trained(desk.play.batch())
        desk.play.checkpointed(f"0.{n + 1}")
        desk.play.serving(f"0.{n + 1}")
        desk.sweep()
        most = max(most, desk.used())
    assert most < 1_500_000, "40 steps wrote 8 MB"
    assert len(list(desk.folder.glob("*.seg"))) < 8
    assert desk.play.figures().successes_kept == 3


def test_disk_is_bounded_where_no_step_comes_about(tmp_path: Path) -> None:
    desk = Desk(tmp_path, keep_payload_steps=1)
    desk.play.rl()
    for _ in range(30):
        desk.play.wall += 1e9
        for _slot in range(2):
            desk.finish(desk.play.reserve(), False, "0.0")
        desk.sweep()
    assert desk.play.figures().endings["zero_variance"] == 30
    assert desk.used() < 1_500_000, "thirty groups wrote 6 MB"


def test_segments_of_episodes_in_flight_stay(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.play.rl()
    work = desk.play.reserve()
    steps = [desk.steps("0.0")[0] for _ in range(12)]  # over two segments, the ledger has not heard of any
    desk.play.wall = 0.0
    desk.sweep()
    desk.play.commit(work, True, steps)
    for ref in steps:
        read_blob(desk.folder, ref.blob)


def learn(desk: Desk, version: str) -> list[StepRef]:
    """A step of RL on one success and one failure; their steps."""
    desk.play.serving(version)
    made = [desk.finish(desk.play.reserve(), success, version) for success in (True, False)]
    desk.play.trained(desk.play.batch())
    return made


def test_a_reservoir_that_was_learned_from_is_let_go_once_no_resume_needs_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path, keep_payload_steps=1)
    desk.play.rl()
    first = learn(desk, "0.0")[0]
    desk.play.phase(Phase.PULSE, steps=1)
    desk.play.trained(desk.play.batch())
    desk.play.checkpointed("0.1")  # before the pulse: a resume would go back into it
    desk.play.rl()
    second = learn(desk, "0.2")[0]
    third = learn(desk, "0.3")[0]
    desk.sweep()
    read_blob(desk.folder, first.blob)
    desk.play.checkpointed("0.4")
    desk.sweep()
    with pytest.raises(StoreError):
        read_blob(desk.folder, first.blob)
    for kept in (second, third):
        read_blob(desk.folder, kept.blob)
    assert desk.play.figures().successes_kept == 2
    assert not desk.play.ledger.tx.rows("SELECT * FROM reservoirs WHERE stay = 1")


def test_what_can_not_be_read_is_left_out_though_its_pulse_was_over_and_comes_again(tmp_path: Path) -> None:
    play = Play(tmp_path, max_staleness=50).rl()
    play.checkpointed("0.0")
    for _ in range(3):
        play.group([True, False])
    play.trained(play.batch())
    play.phase(Phase.PULSE, steps=9)
    batch = play.batch()
    gone = batch.samples[0].blob
    play.phase(Phase.RL)
    play.unreadable(batch, [gone])
    play.resumed("1.0", "0.0")
    play.phase(Phase.RL)
    play.phase(Phase.PULSE, steps=9)
    for _ in range(6):
        batch = play.batch()
        assert gone not in {sample.blob for sample in batch.samples}
        play.trained(batch)


def test_a_picture_that_two_steps_share_stays_and_goes_with_them(tmp_path: Path) -> None:
    desk = Desk(tmp_path, keep_payload_steps=1)
    desk.play.rl()

    def shown(success: bool) -> BlobRef:
        work, png = desk.play.reserve(), desk.store.append(random.randbytes(100_000))
        steps = [msgspec.structs.replace(desk.steps("0.0")[0], pictures=[png]) for _ in range(2)]
        desk.play.commit(work, success, steps)
        return png

    kept, gone = shown(True), shown(False)
    desk.play.reopen()
    desk.play.trained(desk.play.batch())
    desk.play.serving("0.1")
    desk.play.checkpointed("0.1")
    for wins in ([False, False], [True, False]):
        desk.play.group(wins, "0.1")
    desk.play.trained(desk.play.batch())
    read_blob(desk.folder, gone)
    assert desk.sweep() > 3 * 100_000
    assert len(read_blob(desk.folder, kept)) == 100_000
    with pytest.raises(StoreError):
        read_blob(desk.folder, gone)
