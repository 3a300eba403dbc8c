"""Segments give back what was put in, once each, whatever tore the file's end."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest.mock import Mock, patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime import segments
from runtime.errors import DiskRefuses, PayloadLost, StoreError
from runtime.messaging.message import BlobRef
from runtime.segments import SegmentStore, free_blob, read_blob

ROOT = Path(segments.__file__).resolve().parent.parent


@pytest.mark.slow
@given(payloads=st.lists(st.binary(max_size=200), max_size=30), max_bytes=st.integers(1, 2000))
def test_what_was_appended_reads_back(tmp_path_factory, payloads, max_bytes):
    folder = tmp_path_factory.mktemp("segments")
    store = SegmentStore(folder, "desktop/3", max_bytes)
    refs = [store.append(p) for p in payloads]
    store.close()
    assert [read_blob(folder, r) for r in refs] == payloads
    assert len({(r.segment, r.offset) for r in refs}) == len(payloads)
    files = len(list(folder.iterdir()))
    SegmentStore(folder, "desktop/3").close()
    assert len(list(folder.iterdir())) == files == len({r.segment for r in refs}), "an empty one is not left"


@pytest.mark.parametrize("change", [{"digest": "00" * 16}, {"offset": 30}, {"size": 3}, {"segment": "w-000009.seg"}])
def test_a_wrong_reference_is_refused(tmp_path, change):
    store = SegmentStore(tmp_path, "w")
    ref = store.append(b"payload")
    store.close()
    with pytest.raises(StoreError):
        read_blob(tmp_path, msgspec.structs.replace(ref, **change))


def test_a_reference_can_not_leave_the_folder(tmp_path):
    (tmp_path / "secret").write_bytes(b"x" * 100)
    (tmp_path / "in").mkdir()
    ref = BlobRef(segment="../secret", offset=24, size=1, digest="")
    with pytest.raises(StoreError, match="not a reference"):
        read_blob(tmp_path / "in", ref)


def test_freed_payloads_are_gone_and_can_be_stored_again(tmp_path):
    store = SegmentStore(tmp_path, "w")
    first, second = store.append(b"a" * 9000), store.append(b"b" * 9000)
    free_blob(tmp_path, first)
    with pytest.raises(StoreError):
        read_blob(tmp_path, first)
    assert read_blob(tmp_path, second) == b"b" * 9000
    assert read_blob(tmp_path, store.append(b"a" * 9000)) == b"a" * 9000
    store.close()
    with pytest.raises(StoreError):
        free_blob(tmp_path, msgspec.structs.replace(second, offset=second.offset + 1))


def test_a_file_server_that_does_not_answer_says_nothing_of_a_payload(tmp_path, monkeypatch):
    store = SegmentStore(tmp_path, "seat")
    ref = store.append(b"step")
    store.close()
    for number, kind in ((errno.ESTALE, DiskRefuses), (errno.ETIMEDOUT, DiskRefuses), (errno.ENOENT, PayloadLost)):
        with monkeypatch.context() as away:
            away.setattr(segments.os, "pread", Mock(side_effect=OSError(number, "away")))
            with pytest.raises(kind, match=r"can't read seat-000000\.seg at \d+: away"):
                read_blob(tmp_path, ref)
    assert read_blob(tmp_path, ref) == b"step"


def test_lives_that_may_overlap_write_files_of_their_own(tmp_path):
    """Of two machines: the first was given up and still writes; the listing of the second's folder is an old one."""
    first = SegmentStore(tmp_path, "seat/0")
    ref = first.append(b"one")
    with patch.object(Path, "iterdir", return_value=iter(())):
        second = SegmentStore(tmp_path, "seat/0")
    refs = [ref, second.append(b"two"), first.append(b"three")]
    assert [ref.segment for ref in refs] == ["seat-0-000000.seg", "seat-0-000001.seg", "seat-0-000000.seg"]
    second.close()
    first.close()
    assert [read_blob(tmp_path, ref) for ref in refs] == [b"one", b"two", b"three"]


def test_a_segment_that_can_not_be_begun_costs_one_payload(tmp_path, monkeypatch):
    store = SegmentStore(tmp_path, "w", max_bytes=1000)
    first = store.append(b"a" * 900)
    real = os.open

    def full(path, *args, **more):
        if str(path).endswith("w-000001.seg"):
            raise OSError(errno.ENOSPC, "no space left")
        return real(path, *args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", full)
        with pytest.raises(StoreError, match=r"can't begin a segment after w-000000\.seg: .*no space left"):
            store.append(b"b" * 900)
    store.flush()
    second = store.append(b"b" * 900)
    assert (first.segment, second.segment) == ("w-000000.seg", "w-000001.seg")
    assert read_blob(tmp_path, second) == b"b" * 900
    store.close()


def test_what_a_failed_flush_may_have_lost_is_never_called_safe(tmp_path, monkeypatch):
    """The kernel reports lost pages to one fsync alone: a second seat's flush must not find all well with its own."""
    store = SegmentStore(tmp_path, "seat")
    first, others = store.append(b"one"), store.append(b"another seat's")
    real, fails = os.fsync, [OSError(errno.EIO, "lost")]

    def fsync(fd: int) -> None:
        if fails:
            raise fails.pop()
        real(fd)

    monkeypatch.setattr("runtime.segments.os.fsync", fsync)
    with pytest.raises(StoreError, match=r"can't flush seat-000000\.seg"):
        store.flush([first.segment])
    with pytest.raises(StoreError, match=r"can't flush seat-000000\.seg"):
        store.flush([others.segment])
    again = store.append(b"one")
    assert again.segment == "seat-000001.seg", "and not the copy that may be lost"
    store.flush([again.segment])
    store.close()


def test_a_writer_goes_on_after_a_disk_that_refused_the_next_file_too(tmp_path, monkeypatch):
    """A mount that is read-only for a moment refuses to flush and to begin files alike."""
    store = SegmentStore(tmp_path, "w")
    lost = store.append(b"one")

    def refused(*_args, **_more):
        raise OSError(errno.EROFS, "read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr("runtime.segments.os.fsync", refused)
        patch.setattr("runtime.segments.SegmentStore._open", refused)
        with pytest.raises(StoreError, match=r"can't flush w-000000\.seg"):
            store.flush([lost.segment])
        with pytest.raises(StoreError, match="can't begin a segment"):
            store.append(b"two")
    kept = store.append(b"two")
    store.flush([kept.segment])
    assert (kept.segment, read_blob(tmp_path, kept)) == ("w-000001.seg", b"two")
    store.close()
