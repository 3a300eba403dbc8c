"""What stays on disk: payloads and reservoirs."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from actors.replay.ledger import retention
from actors.replay.messages import Phase, StepPayload, StepRef
from runtime.errors import StoreError
from runtime.messaging.message import BlobRef
from runtime.segments import read_blob
from tests.actors.replay.ledger_tools import Play, StoredPlay


class Desk(StoredPlay):
    """Commits episodes with real payloads, a hundred kilobytes each."""

    def __init__(self, folder: Path, **rules: int) -> None:
        super().__init__(folder, max_bytes=500_000, **rules)
        self.count = 0

    def steps(self, version: str | None, screenshot: bytes = b"") -> list[StepRef]:
        self.count += 1
        return [self.stored(version, f"{self.count} " + "x" * 100_000, screenshot)]

    def finish(self, success: bool, version: str | None, *, picture: bool = False) -> StepRef:
        """A whole episode of one step."""
        work = self.reserve()
        steps = self.steps(version, f"picture {self.count}".encode() * 100 if picture else b"")
        self.commit(work, success, steps)
        return steps[0]

    def sweep(self) -> int:
        self.do(retention.collect)
        freed: int = self.do(lambda tx: retention.sweep(tx, self.segments))
        return freed

    def used(self) -> int:
        return sum(path.stat().st_blocks * 512 for path in self.segments.glob("*.seg"))


def test_failures_go_and_successes_stay(tmp_path: Path) -> None:
    desk = Desk(tmp_path, keep_payload_steps=1)
    desk.rl()
    kept, gone = [], []
    for n in range(3):
        version = f"0.{n}"
        kept.append(desk.finish(True, version, picture=True))
        gone.append(desk.finish(False, version, picture=True))
        desk.trained(desk.batch())
        desk.serving(f"0.{n + 1}")
    assert desk.sweep() == 0, "no checkpoint: the groups may come back"
    desk.checkpointed("0.3")
    assert desk.sweep() == 0, "their groups ended just now"
    desk.group([False, False], "0.3")
    desk.group([True, False], "0.3")
    desk.trained(desk.batch())
    assert desk.sweep() > 3 * 100_000
    assert desk.sweep() == 0
    for ref in kept:
        assert ref.screenshot is not None
        assert msgspec.msgpack.decode(read_blob(desk.segments, ref.blob), type=StepPayload).prompt_ids == [1, 2, 3]
        read_blob(desk.segments, ref.screenshot)
    for ref in gone:
        with pytest.raises(StoreError):
            read_blob(desk.segments, ref.blob)


def test_disk_is_bounded_where_no_step_comes_about(tmp_path: Path) -> None:
    desk = Desk(tmp_path, keep_payload_steps=1)
    desk.rl()
    for _ in range(30):
        desk.wall += 1e9
        for _slot in range(2):
            desk.finish(False, "0.0")
        desk.sweep()
    assert desk.figures().endings["zero_variance"] == 30
    assert desk.used() < 1_500_000, "thirty groups wrote 6 MB"


def test_segments_of_episodes_in_flight_stay(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.rl()
    work = desk.reserve()
    steps = [desk.steps("0.0")[0] for _ in range(12)]  # over two segments, the ledger has not heard of any
    desk.wall = 0.0
    desk.sweep()
    desk.commit(work, True, steps)
    for ref in steps:
        read_blob(desk.segments, ref.blob)


def learn_once(desk: Desk, version: str) -> list[StepRef]:
    """A step of RL on one success and one failure; their steps."""
    desk.serving(version)
    made = [desk.finish(success, version) for success in (True, False)]
    desk.trained(desk.batch())
    return made


def test_a_reservoir_that_was_learned_from_is_let_go_once_no_resume_needs_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path, keep_payload_steps=1)
    desk.rl()
    first = learn_once(desk, "0.0")[0]
    desk.phase(Phase.PULSE, steps=1)
    desk.trained(desk.batch())
    desk.checkpointed("0.1")  # before the pulse: a resume would go back into it
    desk.rl()
    second = learn_once(desk, "0.2")[0]
    third = learn_once(desk, "0.3")[0]
    desk.sweep()
    read_blob(desk.segments, first.blob)
    desk.checkpointed("0.4")
    desk.sweep()
    with pytest.raises(StoreError):
        read_blob(desk.segments, first.blob)
    for kept in (second, third):
        read_blob(desk.segments, kept.blob)
    assert desk.figures().successes_kept == 2
    assert not desk.ledger.tx.rows("SELECT * FROM reservoirs WHERE stay = 1")


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
    desk.rl()

    def shown(success: bool) -> BlobRef:
        work, png = desk.reserve(), desk.store.append(random.randbytes(100_000))
        steps = [msgspec.structs.replace(desk.steps("0.0")[0], pictures=[png]) for _ in range(2)]
        desk.commit(work, success, steps)
        return png

    kept, gone = shown(True), shown(False)
    desk.reopen()
    desk.trained(desk.batch())
    desk.serving("0.1")
    desk.checkpointed("0.1")
    for wins in ([False, False], [True, False]):
        desk.group(wins, "0.1")
    desk.trained(desk.batch())
    read_blob(desk.segments, gone)
    assert desk.sweep() > 3 * 100_000
    assert len(read_blob(desk.segments, kept)) == 100_000
    with pytest.raises(StoreError):
        read_blob(desk.segments, gone)
