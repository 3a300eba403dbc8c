"""A seat whose episodes can't be stored: what it tells the ledger, and how it waits."""

from __future__ import annotations

import asyncio
import errno
import os

import msgspec
import pytest

from actors.desktop import actor
from actors.desktop.recorder import Recorder
from actors.replay.messages import Lane, NoWork, Release, Reservation, Reserve, StepPayload
from runtime import disk
from runtime.actor import Actor, handles
from runtime.errors import DiskRefuses
from runtime.logs.reader import read_logs
from runtime.logs.writer import host_log
from runtime.messaging.message import Done
from runtime.segments import SegmentStore, read_blob
from runtime.system import ActorSpec, ActorSystem
from tests.actors.desktop.test_seat import SEAT, lines, reserved, seat_config
from tests.heard import until
from tests.small_disk import fill, needs_root, small_disk

STEP = StepPayload(
    prompt_ids=list(range(5000)), response_ids=[4], logprobs=[], spans=[], temperature=1.0, observation="", response="",
    action=None, refusal=None, result=None, screenshot=None, observe_ms=0.0, generate_ms=0.0, act_ms=0.0,
)  # fmt: skip

OTHER = msgspec.structs.replace(STEP, prompt_ids=list(range(1, 9000)))


@needs_root
async def test_what_a_full_disk_refuses_is_stored_once_there_is_room(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "AGAIN_S", 0.02)
    log = host_log(tmp_path, "desktop/0")
    with small_disk(tmp_path / "small", 1) as folder:
        recorder = Recorder(SegmentStore(folder, "desktop-0"), log)
        first = await recorder.step(STEP, well_formed=True)
        ballast = fill(folder)
        for _ in range(2):
            with pytest.raises(DiskRefuses, match=r"No space left on device \(make room there"):
                await recorder.step(OTHER, well_formed=False)
        assert recorder.gate.shut
        waits = asyncio.ensure_future(recorder.gate.passed())
        await asyncio.sleep(0.1)
        assert not waits.done()
        ballast.unlink()
        await waits
        later = await recorder.picture(b"\xff\xd8 other bytes")
        assert later is not None
        await recorder.flush([first])
        assert read_blob(folder, first.blob)
        assert read_blob(folder, later) == b"\xff\xd8 other bytes"
        await recorder.close()
    log.close()
    (told,) = read_logs(tmp_path, event="disk_refuses")
    assert told["folder"] == str(folder)
    assert len(list(read_logs(tmp_path, event="disk_accepts"))) == 1


@pytest.mark.parametrize("call", ["pwrite", "fsync"])
async def test_a_device_that_fails_is_told_as_the_disk(tmp_path, monkeypatch, call):
    recorder = Recorder(SegmentStore(tmp_path, "desktop-0"))

    def fails(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    stored = await recorder.step(STEP, well_formed=True)
    with monkeypatch.context() as broken:
        broken.setattr(os, call, fails)
        with pytest.raises(DiskRefuses, match="see dmesg"):
            await (recorder.flush([stored]) if call == "fsync" else recorder.picture(b"\xff\xd8 other bytes"))
    again = await recorder.picture(b"\xff\xd8 still other bytes")
    assert again is not None
    assert read_blob(tmp_path, again) == b"\xff\xd8 still other bytes"
    await recorder.close()


class Once(Actor):
    """A ledger with work, which remembers what was given back."""

    asked = 0
    released: asyncio.Queue[Release]

    async def on_start(self) -> None:
        type(self).asked = 0
        type(self).released = asyncio.Queue()

    @handles(Reserve)
    async def reserve(self, msg: Reserve) -> Reservation | NoWork:
        """Work."""
        type(self).asked += 1
        return reserved(type(self).asked, Lane.DEMO)

    @handles(Release)
    async def release(self, msg: Release) -> Done:
        """Remember it."""
        self.released.put_nowait(msg)
        return Done()


async def test_no_seat_pays_for_the_disk_and_none_takes_work_meanwhile(tmp_path, state_dir, monkeypatch):
    monkeypatch.setattr(disk, "AGAIN_S", 0.02)
    full = "No space left on device (make room there)"
    monkeypatch.setattr(disk, "refusal", lambda _folder: full)

    async def cannot_store(self: actor.DesktopController, *_: object) -> None:
        self._recorder.gate.refuse(full)
        raise DiskRefuses(full)

    monkeypatch.setattr(actor.DesktopController, "_play", cannot_store)
    async with ActorSystem(tmp_path) as system:
        await system.spawn(ActorSpec(name="replay", factory=Once))
        await system.spawn(ActorSpec(name="desktop/0", factory=SEAT, config=seat_config(state_dir)))
        back = await Once.released.get()
        assert (back.fault.cause, back.fault.culprit, back.fault.detail) == ("disk_refuses", "disk", full)
        await asyncio.sleep(0.3)
        assert Once.asked == 1
        monkeypatch.setattr(disk, "refusal", lambda _folder: "")
        await until(lambda: Once.asked > 5)
        assert not lines(tmp_path, "seat_rests")
        assert not lines(tmp_path, "actor_failed")
