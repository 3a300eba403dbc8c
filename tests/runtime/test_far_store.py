"""What a machine that is full or cut off answers: an error that may be over later, and that names the machine."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import msgspec
import pytest

from runtime.errors import DiskRefuses, StoreError, TransferFailed
from runtime.hosts.ticket import HostTicket
from runtime.storage import far_store
from runtime.storage.bulk import Answered, EndFolder, Files, Flush, Flushed, ListFiles, Written
from runtime.storage.far_store import ANSWER_S, WHOLE_S, FarStore, made

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
        made(TICKET, "/run/checkpoints/0.1", tmp_path, full)
    assert os.listdir(tmp_path) == []
    assert not issubclass(TransferFailed, DiskRefuses)
    with pytest.raises(StoreError, match=r"can't make a folder in .*No such file") as gone:
        made(TICKET, "/run/checkpoints/0.1", tmp_path / "none", full)
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
