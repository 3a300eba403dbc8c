"""What a machine that is full or cut off answers: an error that may be over later, and that names the machine."""

from __future__ import annotations

import errno
import os
import socket
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from runtime.errors import DiskRefuses, StoreError, TransferFailed
from runtime.hosts.door import HostTicket
from runtime.hosts.frames import MAX_FRAME_BYTES
from runtime.messaging.message import BlobRef
from runtime.segments import SegmentStore, read_blobs
from runtime.spec import HostSpec
from runtime.storage import bulk as bulk_side
from runtime.storage import far_store
from runtime.storage.bulk import (
    Answered,
    Blobs,
    Bulk,
    EndFolder,
    Failed,
    Files,
    Flush,
    Flushed,
    ListFiles,
    ReadBlobs,
    WritePart,
    Written,
)
from runtime.storage.far_store import ANSWER_S, WHOLE_S, Alone, FarStore, Makers, made

TICKET = HostTicket(address="h:1", name="away", life="l", key=b"k", certificate="")


def answered(monkeypatch: pytest.MonkeyPatch, *answers: Answered) -> tuple[socket.socket, ...]:
    """Both ends of a connection whose other side has given these answers already."""
    ours, theirs = socket.socketpair()
    for answer in answers:
        body = msgspec.msgpack.encode(answer)
        theirs.sendall(len(body).to_bytes(4, "big") + body)
    theirs.shutdown(socket.SHUT_WR)
    monkeypatch.setattr(far_store, "enter_blocking", lambda ticket, way: ours)
    return ours, theirs


def full(path: Path) -> str:
    raise DiskRefuses(f"can't write {path}: No space left on device")


def test_a_full_disk_of_this_machine_is_not_taken_for_the_main_hosts(tmp_path: Path) -> None:
    with pytest.raises(TransferFailed, match=rf"{socket.gethostname()}: can't write .*0\.1: No space"):
        made(TICKET, "/run/checkpoints/0.1", tmp_path, full, Alone())
    assert os.listdir(tmp_path) == []
    assert not issubclass(TransferFailed, DiskRefuses)
    with pytest.raises(StoreError, match=r"can't make a folder in .*No such file") as gone:
        made(TICKET, "/run/checkpoints/0.1", tmp_path / "none", full, Alone())
    assert not isinstance(gone.value, TransferFailed), "waiting brings no folder back"


def test_what_this_machine_can_not_keep_may_be_fetched_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, kind in ((errno.ENOSPC, TransferFailed), (errno.EACCES, StoreError)):
        ours, theirs = answered(monkeypatch, Files(files=[]))

        def refuse(*_: object, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patched:
            patched.setattr(far_store.os, "rename", refuse)
            with pytest.raises(StoreError, match=r"can't keep /model in") as error:
                FarStore(TICKET).fetch("/model", tmp_path / "cache")
        assert type(error.value) is kind
        ours.close()
        theirs.close()


def test_a_broken_connection_may_be_whole_later_and_whole_folders_get_the_longer_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (ours, theirs), store = answered(monkeypatch, Written(), Flushed(), Files(files=[])), FarStore(TICKET)
    limits = []
    for asked, wanted in (
        (EndFolder(folder="/f", files=[]), Written),
        (Flush(files=[]), Flushed),
        (ListFiles(folder="/f", weights=True), Files),
    ):
        store._ask(asked, wanted)
        limits.append(ours.gettimeout())
    assert limits == [WHOLE_S, ANSWER_S, WHOLE_S]
    with pytest.raises(TransferFailed, match="can't be reached"):
        store.flush()
    theirs.close()


def test_many_payloads_come_in_one_answer_and_no_answer_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SegmentStore(tmp_path / "segments", "seat")
    refs = [store.append(bytes([number]) * size) for number, size in enumerate([100] * 250 + [400] * 3 + [2000])]
    store.close()
    bulk, asked = Bulk(tmp_path, HostSpec(name="away", reads_segments=True)), list[list[BlobRef]]()

    def ask(_: FarStore, request: ReadBlobs, wanted: type) -> Answered:
        asked.append(request.refs)
        return bulk._answer(request)

    monkeypatch.setattr(FarStore, "_ask", ask)
    assert list(FarStore(TICKET).read(refs)) == list(read_blobs(tmp_path / "segments", refs))
    assert [len(part) for part in asked] == [len(refs)], "one round trip"
    asked.clear()
    for module in (far_store, bulk_side):
        monkeypatch.setattr(module, "BLOBS_BYTES", 1000)
        monkeypatch.setattr(module, "BLOBS_MOST", 8)
    assert list(FarStore(TICKET).read(refs)) == list(read_blobs(tmp_path / "segments", refs))
    assert {len(part) for part in asked[:31]} == {8}
    assert [[ref.size for ref in part] for part in asked[31:]] == [[100, 100, 400, 400], [400], [2000]]
    below = msgspec.structs.replace(refs[0], size=-(10**12))
    for part, said in (
        (refs[:9], "9 payloads of 900 bytes"),
        (refs[250:253], "3 payloads of 1200 bytes"),
        ([below, *refs[250:253]], "4 payloads of 1200 bytes"),
    ):
        answer = bulk._answer(ReadBlobs(refs=part))
        assert isinstance(answer, Failed)
        assert answer.text == f"{said} are too much for one answer"
    read = bulk._answer(ReadBlobs(refs=[below, refs[1]]))
    assert isinstance(read, Blobs)
    assert (read.found, list(read.lost)) == ([b"", b"\1" * 100], [0])
    large = bulk._answer(ReadBlobs(refs=[msgspec.structs.replace(refs[0], size=MAX_FRAME_BYTES)]))
    assert isinstance(large, Failed), "no frame holds it"


def test_a_disk_that_can_not_be_asked_is_not_taken_to_be_well(monkeypatch: pytest.MonkeyPatch) -> None:
    (_, theirs), failed = answered(monkeypatch, Failed(kind="StoreError", text="no")), "no"
    assert far_store.refusal(TICKET) == failed
    theirs.close()


class Two:
    """Two threads as makers: what fails in one fails in both."""

    def __init__(self) -> None:
        self.meet = threading.Barrier(2, timeout=20)
        self.said: dict[int, bytes | Exception] = {}

    def of(self, number: int) -> Makers:
        two = self

        class Maker:
            def on_first(self, work: Callable[[], bytes]) -> bytes:
                return self.on_all(work if number == 0 else bytes)[0]

            def on_all(self, work: Callable[[], bytes]) -> list[bytes]:
                try:
                    two.said[number] = work()
                except StoreError as error:
                    two.said[number] = error
                two.meet.wait()
                both = [two.said[0], two.said[1]]
                two.meet.wait()
                for one in both:
                    if isinstance(one, Exception):
                        raise one
                return [one for one in both if isinstance(one, bytes)]

        return Maker()


def test_two_machines_make_one_folder_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "checkpoints"
    kept.mkdir()
    bulks = {name: Bulk(tmp_path, HostSpec(name=name, writes=(str(kept),))) for name in ("one", "two")}
    broken: list[str] = []
    full_ones, room = set[str](), far_store._made_below

    def room_below(below: Path) -> tempfile.TemporaryDirectory[str]:
        if below.name in full_ones:
            raise TransferFailed(f"{below.name} is full")
        return room(below)

    monkeypatch.setattr(far_store, "_made_below", room_below)

    def ask(store: FarStore, asked: object, wanted: type) -> Answered:
        if broken and isinstance(asked, WritePart) and store._ticket.name == "two":
            raise TransferFailed(broken.pop())
        answer = bulks[store._ticket.name]._answer(asked)  # type: ignore[arg-type]
        assert not isinstance(answer, Failed), answer
        return answer

    monkeypatch.setattr(FarStore, "_ask", ask)

    def together(version: str) -> list[str]:
        two = Two()

        def one_of(number: int, name: str) -> str:
            def make(here: Path) -> str:
                assert not full_ones, "the other has no room, so this one would wait for it"
                if name == "one":
                    (here / "shards").mkdir(parents=True)
                    (here / "complete.json").write_bytes(b"{}")
                else:  # as of a rank that has no part in what is written first
                    (here / "shards").mkdir(parents=True)
                    (here / "shards" / "b").write_bytes(b"b" * 10)
                return name

            ticket = msgspec.structs.replace(TICKET, name=name)
            below = tmp_path / name
            below.mkdir(exist_ok=True)
            found = made(ticket, str(kept / version), below, make, two.of(number))
            assert os.listdir(below) == []
            return found

        with ThreadPoolExecutor(2) as threads:
            return list(threads.map(one_of, (0, 1), ("one", "two")))

    assert together("0.1") == ["one", "two"]
    found = {str(one.relative_to(kept)): one.read_bytes() for one in kept.rglob("*") if one.is_file()}
    assert found == {"0.1/complete.json": b"{}", "0.1/shards/b": b"b" * 10}
    broken.append("two is cut off")
    with pytest.raises(TransferFailed, match="cut off"):
        together("0.2")
    assert not (kept / "0.2").exists()
    full_ones.add("two")
    with pytest.raises(TransferFailed, match="two is full"):
        together("0.2")
    full_ones.clear()
    assert together("0.2") == ["one", "two"], "what was left half done is no hindrance"
