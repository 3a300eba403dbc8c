"""PDF and archives of a hostile guest: what is read of good ones, and that every other file is refused by name."""

from __future__ import annotations

import io
import sys
import tarfile
import zlib
from collections.abc import Callable

import hostile
import pypdf
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from actors.desktop.files import fork as forked
from actors.desktop.files.read_home import FileSeen, ReadLimits, ReadRefusal, as_wanted
from actors.desktop.pool.leased import view_of
from apis.documents.read import parse
from apis.documents.read.bounds import Bounds, RefusedError
from apis.documents.zip import zipped
from apis.tasks.metrics.papers import compare_archive, compare_zip_files
from apis.tasks.verify.verify import GUEST_HOME, WantedFile
from tests.apis.twins.made_papers import PACKERS, joined, make_pdf, make_tar

GOOD = make_pdf("one two", "three", fields=["Ann"])
FILES = {"./in/a.txt": b"one", "b.pdf": GOOD, "empty/": b""}
# Of memory there is more than the worker has: a child of these tests starts with all that they have loaded.
SMALL = Bounds(member_bytes=1 << 20, unpacked_bytes=2 << 20, members=50, memory_bytes=8 << 30)


@pytest.mark.slow
async def test_the_worker_reads_pages_and_packed_files_and_refuses_others() -> None:
    content = {"a.pdf": GOOD, "b.pdf": b"x", "c.tar.gz": make_tar(FILES), "d.zip": b"PK\x03\x04"}
    wanted = [WantedFile(name, "pdf" if name.endswith("pdf") else "archive") for name in content]
    seen = [FileSeen(path=name, data=data) for name, data in content.items()]
    pdf, no_pdf, packed, broken = (view_of(one, GUEST_HOME) for one in await as_wanted(wanted, seen, ReadLimits()))
    assert pdf.pdf is not None
    assert [page.text.split() for page in pdf.pdf.pages] == [["one", "two", "Ann"], ["three"]]
    assert packed.archive is not None
    assert (packed.archive.form, packed.archive.folders) == ("tar.gz", ("empty",))
    assert {name: one.data for name, one in packed.archive.files.items()} == {"in/a.txt": b"one", "b.pdf": GOOD}
    assert packed.archive.files["b.pdf"].pdf == pdf.pdf
    assert (no_pdf.reason, broken.reason) == ("not_a_pdf", "not_an_archive")


def entry(name: str, size: int = 0, **more: object) -> bytes:
    """A tar of one entry, as its header says it, and a few bytes."""
    made = tarfile.TarInfo(name)
    made.size = size
    for key, value in more.items():
        setattr(made, key, value)
    return made.tobuf() + b"x" * 512 + b"\0" * 1024


def streams(*contents: bytes, kids: str = "3 0 R") -> bytes:
    """A PDF whose page draws these packed contents one after the other."""
    drawn = " ".join(f"{n} 0 R" for n in range(5, 5 + len(contents)))
    return joined([
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count 1 >>".encode(),
        f"<< /Type /Page /Parent 2 0 R /Contents [{drawn}] /Resources << /Font << /F 4 0 R >> >> "
        "/MediaBox [0 0 9 9] >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        *(b"<< /Filter /FlateDecode /Length %d >>\nstream\n%s\nendstream" % (len(one), one) for one in contents),
    ])  # fmt: skip


# Made when they are tried: some take long to pack.
HOSTILE: dict[str, tuple[str, str, Callable[[], bytes]]] = {
    "unpacks to much": ("archive", "zip_bomb", lambda: make_tar({"a": b"\0" * (8 << 20)})),
    "unpacks to much by xz": ("archive", "zip_bomb", lambda: make_tar({"a": b"\0" * (8 << 20)}, "tar.xz")),
    "zip that unpacks to much": ("archive", "zip_bomb", lambda: hostile.packed({"a": b" " * (8 << 20)})),
    "many files": ("archive", "too_big", lambda: make_tar({f"{n}": b"" for n in range(60)})),
    "many files in a zip": ("archive", "too_big", lambda: zipped({f"{n}": b"" for n in range(60)})),
    "leads outside": ("archive", "not_an_archive", lambda: make_tar({"../../etc/passwd": b"x"})),
    "leads to the root": ("archive", "not_an_archive", lambda: entry("/etc/passwd", 1)),
    "zip that leads outside": ("archive", "not_an_archive", lambda: hostile.packed({"a/../../b": b"x"})),
    "symbolic link": ("archive", "not_an_archive", lambda: entry("a", type=tarfile.SYMTYPE, linkname="/etc/passwd")),
    "hard link": ("archive", "not_an_archive", lambda: entry("a", type=tarfile.LNKTYPE, linkname="b")),
    "device": ("archive", "not_an_archive", lambda: entry("a", type=tarfile.CHRTYPE, devmajor=1, devminor=3)),
    "says to be larger than it is": ("archive", "too_big", lambda: entry("a", 1 << 30)),
    "the same name twice": ("archive", "not_an_archive", lambda: entry("a", 1)[:1024] + entry("./a", 1)),
    "a file in place of a folder": ("archive", "not_an_archive", lambda: entry("a", 1)[:1024] + entry("a/b", 1)),
    "cut off": ("archive", "not_an_archive", lambda: make_tar(FILES)[:-9]),
    "more behind its end": ("archive", "not_an_archive", lambda: make_tar(FILES) + b"more"),
    "no archive": ("archive", "not_an_archive", lambda: b"x" * 999),
    "drawing that unpacks to much": ("pdf", "not_a_pdf", lambda: streams(zlib.compress(b" " * (64 << 20)))),
    "many drawings": ("pdf", "zip_bomb", lambda: streams(*[zlib.compress(b" " * (1 << 20))] * 9)),
    "page within itself": ("pdf", "not_a_pdf", lambda: streams(zlib.compress(b" "), kids="2 0 R")),
    "no PDF": ("pdf", "not_a_pdf", lambda: b"%PDF-1.4\n" + b"x" * 999),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_by_name(name: str) -> None:
    kind, wanted, made = HOSTILE[name]
    with pytest.raises(RefusedError, match=f"^{wanted}$"):
        forked.parsed(made(), SMALL, kind)


def test_a_page_of_packed_contents_is_read() -> None:
    said = b"BT /F 12 Tf 72 700 Td (hi) Tj ET"
    assert parse.pdf(streams(zlib.compress(said)), SMALL)["pages"][0]["text"].strip() == "hi"


def framed(colour: bytes, *, loop: bool = False, more: bytes = b"") -> bytes:
    """A PDF that draws a form, in which a form with a picture of one pixel stands."""
    inner = b"/B 5 0 R" if loop else b"/B 6 0 R"
    return joined([
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R /Resources << /XObject << /A 5 0 R >> >> >>",
        b"<< /Length 5 >>\nstream\n/A Do\nendstream",
        b"<< /Subtype /Form /Resources << /XObject << %s >> >> /Length 5 >>\nstream\n/B Do\nendstream" % inner,
        b"<< /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceRGB %s /Length 3 >>\nstream\n%s\nendstream"
        % (more, colour),
    ])  # fmt: skip


def test_pictures_within_forms_are_part_of_what_is_drawn() -> None:
    made = [framed(b"\xff\0\0"), framed(b"\0\0\xff"), framed(b"\xff\0\0", more=b"/Decode [1 0 1 0 1 0]")]
    made.append(framed(b"\xff\0\0", loop=True))
    drawn = [parse.pdf(one, SMALL)["pages"][0]["drawn"] for one in made]
    assert len(set(drawn)) == len(made)
    assert parse.pdf(made[0], SMALL)["pages"][0]["drawn"] == drawn[0]


def test_a_missing_or_changed_pypdf_is_no_refusal_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pypdf.PdfReader, "pages", None)
    with pytest.raises(forked.ChildLostError, match="pypdf does not read what it has to: TypeError"):
        forked.parsed(GOOD, SMALL, "pdf")
    monkeypatch.setitem(sys.modules, "pypdf", None)
    with pytest.raises(forked.ChildLostError, match="pypdf"):
        forked.parsed(GOOD, SMALL, "pdf")


@pytest.mark.proof
async def test_many_pictures_are_handed_on_within_the_bound() -> None:
    """Of those beyond it there is the digest, so equal archives still score 1, and others do not."""
    made = [io.BytesIO() for _ in range(8)]
    for number, file in enumerate(made):
        Image.new("RGB", (1920, 1080), (number, 0, 0)).save(file, "PNG")
    files = {f"{number}.png": file.getvalue() for number, file in enumerate(made)}
    other = {**files, "6.png": made[7].getvalue()}
    wanted = [WantedFile(name, "archive") for name in ("a.zip", "b.zip")]
    seen = [FileSeen(path=one.path, data=zipped(held)) for one, held in zip(wanted, (files, other), strict=True)]
    whole, changed = (view_of(one, GUEST_HOME) for one in await as_wanted(wanted, seen, ReadLimits()))
    assert whole.archive is not None
    assert [bool(one.picture and one.picture.pixels) for one in whole.archive.files.values()] == [True] * 3 + [
        False
    ] * 5
    assert compare_zip_files(whole, whole, {}).value == 1.0
    assert compare_archive(whole, whole, {"file_type": "image"}).value == 1.0
    with pytest.raises(LookupError, match="too many to compare"):
        compare_archive(changed, whole, {"file_type": "image"})


def test_an_archive_in_an_archive_stays_packed() -> None:
    inner = make_tar({"a": b"\0" * (8 << 20)}, "tar.xz")
    found = parse.archive(make_tar({"inner.tar.xz": inner}), SMALL)
    assert list(found["files"]) == ["inner.tar.xz"]


@pytest.mark.parametrize("form", PACKERS)
def test_each_form_is_read(form: str) -> None:
    found = parse.archive(make_tar(FILES, form), Bounds())
    assert (found["form"], sorted(found["files"])) == (form, ["b.pdf", "in/a.txt"])


SEEDS = [("pdf", GOOD), *(("archive", make_tar({"a.txt": b"one", "b/c": b"2"}, form)) for form in PACKERS)]


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(SEEDS), st.integers(0, 2000), st.binary(max_size=20))
def test_any_bytes_get_an_answer_or_a_refusal(seed: tuple[str, bytes], at: int, other: bytes) -> None:
    kind, data = seed
    for made in (data[:at] + other, data[:at] + other + data[at + len(other) :]):
        refusal = ""
        try:
            parse.PARSERS[kind](made, SMALL)
        except RefusedError as refused:
            refusal = str(refused)
        assert refusal in {"", *ReadRefusal}
