"""Steps and pictures in segments on a disk that is slow, full or broken, and how a seat waits for it.

The disk is real, its slowness is simulated: the system call that writes or flushes waits on an event first.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import struct
import threading
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.desktop import actor, recorder
from actors.desktop.files.read_home import FileSeen, ReadRefusal
from actors.desktop.recorder import EndState, Recorder
from actors.replay.messages import Lane, NoWork, PictureRef, Release, Reservation, Reserve, StepPayload, VersionSpan
from apis.tasks.verify.manifest import FILE, FOLDER, Entry, Manifest
from runtime import disk
from runtime.actor import Actor, handles
from runtime.errors import DiskRefuses, PayloadLost, StoreError
from runtime.logs.reader import read_logs
from runtime.logs.writer import host_log
from runtime.messaging.message import Done, Version
from runtime.segments import SegmentStore, read_blob
from runtime.system import ActorSpec, ActorSystem
from tests.actors.desktop.test_seat import SEAT, lines, reserved, seat_config
from tests.actors.replay import ledger_tools
from tests.heard import Heard, until
from tests.small_disk import fill, needs_root, small_disk

PICTURE = b"\xff\xd8" + bytes(1000)


class Held:
    """A system call that waits until it is let go."""

    def __init__(self, real: Any) -> None:
        self.real = real
        self.go = threading.Event()
        self.calls = 0

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        assert self.go.wait(30)
        return self.real(*args)


def payload(number: int) -> StepPayload:
    return ledger_tools.payload(prompt_ids=[number], response_ids=[2])


async def test_the_ledger_hears_how_surprising_an_answer_was_and_whose_it_was_and_no_token_of_it(tmp_path):
    kept = Recorder(SegmentStore(tmp_path, "desktop/0"))
    drawn = msgspec.structs.replace(payload(1), response_ids=[2, 3], logprobs=[-0.5, -1.25])
    ref = await kept.step(drawn, well_formed=True)
    assert (ref.response_tokens, ref.surprisal) == (2, 1.75)
    shown = await kept.step(payload(1), well_formed=True)
    assert (shown.surprisal, shown.oldest, shown.newest) == (0.0, None, None)
    old, new = Version(lineage=0, step=3), Version(lineage=0, step=4)
    spans = [VersionSpan(version=old, start=0, end=2), VersionSpan(version=new, start=2, end=3)]
    ref = await kept.step(msgspec.structs.replace(payload(1), spans=spans), well_formed=True)
    assert (ref.oldest, ref.newest) == (old, new), "the weights of its oldest and its newest token"
    await kept.close()


async def test_an_unchanged_screen_is_stored_once_and_lives_as_long_as_its_steps(tmp_path):
    kept = Recorder(SegmentStore(tmp_path, "desktop/0"))
    one, other = (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + struct.pack(">II", 640, 360) + end for end in (b"a", b"b"))
    seen = dict[str, PictureRef]()
    for at, png in ((5, one), (9, one), (7, other)):
        ref = await kept.shown(png, at, seen)
        seen[ref.digest] = ref
        assert read_blob(tmp_path, ref.blob) == png
        assert (ref.width, ref.height, ref.at, ref.digest) == (640, 360, at, hashlib.sha256(png).hexdigest())
        stored = await kept.step(msgspec.structs.replace(payload(1), pictures=[ref]), well_formed=True)
        assert stored.blobs == [stored.blob, ref.blob], "the ledger counts it among what lives as long as the step"
    assert len(seen) == 2
    await kept.close()
    assert sum(file.read_bytes().count(one) for file in tmp_path.iterdir()) == 1


@pytest.mark.parametrize("call", ["pwrite", "fsync"])
async def test_a_slow_disk_holds_back_who_writes_and_nobody_else(tmp_path, monkeypatch, call):
    monkeypatch.setattr(disk, "SLOW_AFTER_S", 0.1)
    held = Held(getattr(os, call))
    heard = Heard()
    kept = Recorder(SegmentStore(tmp_path, "desktop/0"), heard)
    monkeypatch.setattr(f"runtime.segments.os.{call}", held)
    seats = [asyncio.ensure_future(kept.step(payload(n), well_formed=True)) for n in range(3)]
    picture = asyncio.ensure_future(kept.picture(PICTURE))
    if call == "fsync":
        await asyncio.gather(*seats, picture)
        seats.append(asyncio.ensure_future(kept.flush([seat.result() for seat in seats])))
    await until(lambda: heard.lines)  # the loop runs on
    assert not seats[-1].done(), "whoever stores waits"
    held.go.set()
    await asyncio.gather(*seats, picture)
    refs = [seat.result() for seat in seats[:3]]
    assert [msgspec.msgpack.decode(read_blob(tmp_path, ref.blob))["prompt_ids"] for ref in refs] == [[0], [1], [2]]
    assert read_blob(tmp_path, picture.result()) == PICTURE
    what = {"pwrite": "append", "fsync": "flush"}[call]
    slow = [fields for event, fields in heard.lines if event.name == "disk_slow" and fields["what"] == what]
    assert slow[0]["file"] == "desktop-0-000000.seg"
    assert slow[0]["waited_s"] >= 0.1
    assert [event.name for event, fields in heard.lines if fields["what"] == what].count("disk_answers") == len(slow)
    await kept.close()


async def test_a_disk_that_is_stuck_is_an_error_that_names_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(recorder, "STUCK_S", 0.2)
    held = Held(os.fsync)
    kept = Recorder(SegmentStore(tmp_path, "desktop/0"))
    await kept.step(payload(1), well_formed=True)
    monkeypatch.setattr("runtime.segments.os.fsync", held)
    with pytest.raises(StoreError, match=r"desktop-0-000000\.seg: flush was not done within 0\.2 s"):
        await kept.flush([])
    held.go.set()
    await kept.close()


PATHS = st.text(min_size=1, max_size=6)
ENTRIES = st.builds(Entry, st.sampled_from((FILE, FOLDER)), st.integers(0, 9), st.just(0o644), st.text(max_size=2))
MANIFESTS = st.builds(Manifest, st.dictionaries(PATHS, ENTRIES, max_size=5), st.text(max_size=3))
FILES = st.one_of(
    st.builds(FileSeen, path=PATHS, data=st.binary(max_size=20)),
    st.builds(FileSeen, path=PATHS, names=st.lists(PATHS, max_size=3)),
    st.builds(FileSeen, path=PATHS, refusal=st.sampled_from(ReadRefusal)),
)


@given(st.lists(FILES, max_size=4), MANIFESTS, MANIFESTS, st.dictionaries(PATHS, PATHS, max_size=2))
def test_what_was_kept_comes_back(
    files: list[FileSeen], before: Manifest, after: Manifest, told: dict[str, str]
) -> None:
    end = EndState(files, before, after, "/home/agent", told)
    assert EndState.of(end.parts()) == end
    assert end.parts()[2:] == [file.data for file in files if file.data is not None]  # stored by their content


def test_a_large_end_state_is_not_kept_and_half_of_it_is_none() -> None:
    large = EndState([FileSeen(path="a", data=bytes(recorder.MOST_BYTES + 1))], Manifest(), Manifest(), "/home/agent")
    assert large.parts() == []
    whole = EndState([FileSeen(path="a", data=b"x")], Manifest(), Manifest(), "/home/agent").parts()
    for torn in ([], whole[:2], [b"?", *whole[1:]]):
        with pytest.raises(PayloadLost):
            EndState.of(torn)


STEP, OTHER = ledger_tools.payload(prompt_ids=list(range(5000))), ledger_tools.payload(prompt_ids=list(range(1, 9000)))


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
