"""Files that tasks start with: always the same bytes, and another reader finds what was put in."""

import io
import wave
import zipfile
from random import Random
from xml.etree import ElementTree

import docx
import pytest
from docx.enum.text import WD_COLOR
from hypothesis import given
from hypothesis import strategies as st

from apis.apps.check.case import MAKERS
from apis.documents.docx import Run, make_docx
from apis.documents.xlsx import Value, cells, make_xlsx
from apis.tasks import words
from apis.tasks.words import SPLITS, TRAIN, number, split_of_number

MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_categories=("C",)), min_size=1, max_size=12)
VALUES = st.one_of(TEXT, st.integers(-(10**9), 10**9), st.none())
ROWS = st.lists(st.lists(VALUES, max_size=5), max_size=6)


def read(data: bytes) -> dict[str, dict[str, str | float]]:
    """The cells of each sheet, by a reader of our own: relations are followed, nothing is taken by its place."""
    found = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        relations = ElementTree.fromstring(archive.read("xl/_rels/workbook.xml.rels"))
        targets = {relation.get("Id"): relation.get("Target") for relation in relations}
        for sheet in ElementTree.fromstring(archive.read("xl/workbook.xml")).iter(f"{MAIN}sheet"):
            target = next(targets[value] for key, value in sheet.items() if key.endswith("}id"))
            root = ElementTree.fromstring(archive.read(f"xl/{target}"))
            found[sheet.get("name") or ""] = {
                cell.get("r") or "": "".join(cell.itertext()) if cell.get("t") else float("".join(cell.itertext()))
                for cell in root.iter(f"{MAIN}c")
            }
    return found


@given(st.dictionaries(TEXT, ROWS, min_size=1, max_size=3))
def test_what_is_put_in_is_found(sheets: dict[str, list[list[Value]]]) -> None:
    data = make_xlsx(sheets)
    assert data == make_xlsx(sheets)
    assert read(data) == {name: cells(rows) for name, rows in sheets.items()}
    assert list(read(data)) == list(sheets)


def test_nothing_of_the_moment_or_the_machine_gets_into_the_bytes() -> None:
    with zipfile.ZipFile(io.BytesIO(make_xlsx({"a": [["x", 1]]}))) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(2020, 1, 1, 0, 0, 0)}
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}
        assert {entry.create_system for entry in archive.infolist()} == {3}


def test_what_is_no_small_workbook_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one sheet"):
        make_xlsx({})
    with pytest.raises(ValueError, match="column 26"):
        make_xlsx({"a": [[1] * 27]})


@given(st.integers(0, 10**6), st.sampled_from(SPLITS))
def test_numbers_belong_to_one_split(seed: int, split: str) -> None:
    random = Random(seed)
    drawn = words.numbers(random, split, 5)
    assert len(set(drawn)) == 5
    assert all(split_of_number(value) == split and words.LEAST <= value <= words.MOST for value in drawn)
    assert split_of_number(number(random, split, 0, 40)) == split


def test_a_fifth_of_all_numbers_is_held_out() -> None:
    share = sum(split_of_number(value) != TRAIN for value in range(10_000)) / 10_000
    assert 0.17 < share < 0.23


WORDS = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_categories=["C"]), max_size=12)


@given(st.lists(WORDS, min_size=1, max_size=5))
def test_a_made_document_holds_what_was_put_in(paragraphs: list[str]) -> None:
    data = make_docx(paragraphs)
    assert data == make_docx(paragraphs)
    assert [each.text for each in docx.Document(io.BytesIO(data)).paragraphs] == paragraphs
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert {info.date_time[0] for info in archive.infolist()} == {2020}


def test_a_made_document_has_looks() -> None:
    made = make_docx([(Run("a "), Run("b", highlight="yellow", bold=True))])
    first, second = docx.Document(io.BytesIO(made)).paragraphs[0].runs
    assert (first.bold, second.bold, second.font.highlight_color) == (None, True, WD_COLOR.YELLOW)
    with pytest.raises(ValueError, match="at least one paragraph"):
        make_docx([])


def test_fixtures_are_the_same_each_time_and_as_long_as_they_say() -> None:
    made = [MAKERS["sound"]({"seconds": 3, "hz": hz}) for hz in (440, 440, 330)]
    assert made[0] == made[1] != made[2]
    with wave.open(io.BytesIO(made[0])) as file:
        assert file.getnframes() / file.getframerate() == 3
    assert MAKERS["film"](4).count(b"FRAME\n") == 8
