"""The office's sandbox where it fails, and small parts of the comparison: no LibreOffice is needed here."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from actors.desktop.files import office
from actors.desktop.files.read_home import FileSeen, ReadLimits, as_wanted
from actors.errors import DesktopFault
from apis.documents.docx import make_docx
from apis.documents.read.bounds import Bounds, Budget, RefusedError
from apis.documents.read.contents import text_document
from apis.documents.read.written import tight
from apis.tasks.verify.verify import OFFICE, WantedFile
from runtime.errors import ConfigError

WANTED = make_docx(["one"])
SAVED = b"PK\x03\x04\x14\x00\x00\x08" + WANTED[8:]  # as far as its first bytes say


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "soffice.bin").touch()
    monkeypatch.setattr(office, "PROGRAM", tmp_path / "soffice.bin")


async def judged(data: bytes) -> FileSeen:
    asked = [WantedFile("Documents/a.docx", OFFICE, expected=WANTED)]
    (found,) = await as_wanted(asked, [FileSeen(path="Documents/a.docx", data=data)], ReadLimits())
    return found


async def test_what_no_office_can_have_saved_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(office, "_run", lambda _: pytest.fail("it was opened"))
    for data in (b"", b"text", make_docx(["two"])):
        found = (await judged(data)).office
        assert found is not None
        assert "LibreOffice" in found.difference
    untouched = (await judged(WANTED)).office
    assert (untouched.unsaved, untouched.difference) == (True, "") if untouched else False


async def test_other_files_and_missing_ones_are_left_as_they_were_seen() -> None:
    names = ["notes.txt", "a.docx", "gone.docx"]
    asked = [WantedFile(names[0]), *(WantedFile(name, OFFICE, expected=WANTED) for name in names[1:])]
    seen = [FileSeen(path=names[0], data=b"text"), FileSeen(path=names[1], data=b"text"), FileSeen(path=names[2])]
    notes, document, gone = await as_wanted(asked, seen, ReadLimits())
    assert (notes, gone) == (seen[0], seen[2])
    assert document.office is not None


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("said", [["known", "late"], ["known", "ended", "-11"], ["known", "ended", "-24"]])
async def test_a_document_that_ends_libreoffice_twice_has_failed(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    monkeypatch.setattr(office, "_run", lambda _: said)
    found = (await judged(SAVED)).office
    assert found is not None
    assert "LibreOffice ends when it opens it" in found.difference


@pytest.mark.usefixtures("there")
@pytest.mark.parametrize("said", [[], ["ended", "-11"], ["known", "ended", "-9"], ["bwrap:", "no"], ["known"]])
async def test_libreoffice_that_fails_on_what_is_wanted_or_is_killed_is_a_fault(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    monkeypatch.setattr(office, "_run", lambda _: said)
    with pytest.raises(DesktopFault, match="LibreOffice, which reads documents, ended"):
        await judged(SAVED)


async def test_without_libreoffice_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(office, "PROGRAM", tmp_path / "none")
    with pytest.raises(ConfigError, match="LibreOffice is missing on this machine"):
        await judged(SAVED)


def test_an_archive_is_tight_without_bytes_before_between_or_behind() -> None:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", "x")
    assert not tight(file.getvalue())  # its names' encoding is not said
    assert not tight(file.getvalue() + bytes(30))


def test_tables_in_tables_cost_no_more_than_is_allowed() -> None:
    """Each table, row and cell is looked through for all that is below it."""

    def nested(depth: int, words: int) -> bytes:
        inside = "<w:t>a</w:t>" * words
        for _ in range(depth):
            inside = f"<w:tbl><w:tr><w:tc>{inside}</w:tc></w:tr></w:tbl>"
        space = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            body = f"<w:body>{inside}</w:body>"
            archive.writestr("word/document.xml", f'<w:document xmlns:w="{space}">{body}</w:document>')
        return file.getvalue()

    assert text_document(nested(2, 3), Budget(Bounds())).tables == ("aaa, aaa\naaa", "aaa")
    with pytest.raises(RefusedError, match="too_big"):
        text_document(nested(19, 30), Budget(Bounds(looks=10_000)))
