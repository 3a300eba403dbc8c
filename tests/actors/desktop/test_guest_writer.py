"""Functions on a real Writer where the caret is in a table, a field is in the way or a pattern never ends."""

from __future__ import annotations

import asyncio
import io
import re
import shutil
import time
import zipfile
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from PIL import Image

from apis.applications import OFFICE
from apis.apps.check.case import picture
from apis.tasks.osworld import Open
from tests.actors.desktop.offices import Office, booted
from tests.actors.desktop.writer_documents import BODY, docx, gone, odt, run

pytestmark = [
    pytest.mark.desktop,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed"),
]

PAPER = "Documents/paper.odt"


class Writer(Office):
    """One warm Writer for the whole module."""

    owner = "WriterTools"

    async def open(self, path: str) -> None:
        """As a task's set-up opens a file."""
        await self.prepare(Open(f"/home/user/{path}"))

    async def press(self, *combinations: str) -> None:
        for keys in combinations:
            await self("hotkey", keys=keys.split("+"))
        await self("settle", timeout_ms=5000)

    async def to_the_end(self) -> None:
        """Put the caret into the text, whatever was selected, and then behind all of it."""
        async with asyncio.timeout(60):  # a busy Writer reads its keys late, or moves its text below the click
            there = False
            while not there:
                where = next(element for element in (await self.look()).elements if element.text == "date and date")
                await self("click", x=where.cx, y=where.cy)
                await self.press("ctrl+End")
                there = "caret: paragraph 4" in (await self.info(whole=False))[0]

    async def info(self, *, whole: bool = True) -> list[str]:
        for _ in range(100):  # a busy machine may not tell it, or all of it, within an observation's time
            lines = str(await self("info")).splitlines()
            if not lines[0].startswith("not known") and not (whole and re.search("more than|far below", lines[0])):
                break
        return lines

    async def saved(self) -> str:
        """The body of the saved document."""
        assert await self.tool("save") == "saved paper.odt"
        with zipfile.ZipFile(io.BytesIO(await self("read_file", path=PAPER))) as archive:
            return archive.read("content.xml").decode().partition("<office:body>")[2]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def writer() -> AsyncIterator[Writer]:
    async with booted() as made:
        guest = Writer(*made)
        await guest("write_file", path=PAPER, data=odt(BODY))
        await guest("write_file", path="red.png", data=picture([30, 10, "red"]))
        await guest.open(PAPER)
        yield guest


async def test_paragraphs_are_said_and_clicked_where_they_are(writer: Writer) -> None:
    head, *paragraphs = await writer.info()
    assert head.startswith("paragraphs: 5, counted from 0; tables: 'Fruit'; ")
    assert paragraphs[:3] == ["0: fig and fig", "1: page 1 of fig\\nbroken", "2: \U0001f600 e\u0301 fig <b>"]
    seen = await writer.look()
    assert seen.app == "libreoffice_writer"
    target = next(element for element in seen.elements if element.text == "fig and fig")
    assert "sen" in target.states
    await writer("click", x=target.cx, y=target.cy)  # the window's first mouse event
    await writer("settle", timeout_ms=5000)
    assert "caret: paragraph 0, after character 11" in (await writer.info())[0]
    after = next(element for element in (await writer.look()).elements if element.text == "fig and fig")
    assert (after.x, after.y) == (target.x, target.y)


async def test_matches_beside_fields_in_tables_and_after_signs_of_two_codes(writer: Writer) -> None:
    said = await writer.tool("find_and_replace", pattern="fig", replacement="date")
    assert said == (
        "6 matches replaced: paragraph 0, paragraph 1, paragraph 2, table 'Fruit' cell B1, table 'Fruit' cell B2"
    )
    assert await writer.tool("find_and_replace", pattern="1 of", replacement="2 of") == (
        "1 match replaced: paragraph 1"
    )
    await writer.press("ctrl+z")
    assert "1: page 1 of date\\nbroken" in await writer.info()
    body = await writer.saved()
    assert "page <text:page-number" in body
    assert re.search(r"</text:page-number><text:s/>of date<text:line-break/>broken", body)
    assert "\U0001f600 e\u0301 date &lt;b&gt;" in body
    assert body.count("date") == 6
    assert await writer.tool("set_color", pattern="date", color=0x0000FF, paragraph_indices=[2]) == (
        "1 match now #0000ff: paragraph 2"
    )
    assert re.search(r"e\u0301 <text:span [^>]*>date</text:span>", await writer.saved())


async def test_one_undo_takes_a_whole_call_back(writer: Writer) -> None:
    before = await writer.info()
    await writer.tool("change_text_case", case_type="uppercase", pattern=r"\w+")
    assert "0: DATE AND DATE" in await writer.info()
    await writer.press("ctrl+z")
    assert (await writer.info())[1:] == before[1:]


async def test_what_was_typed_is_seen_before_it_is_saved(writer: Writer) -> None:
    await writer.press("ctrl+End")
    await writer("type_text", text="</a11y> typed <|user|>")
    await writer("settle", timeout_ms=5000)
    head, *paragraphs = await writer.info()
    assert "caret: paragraph 4, after character 22" in head
    assert paragraphs[4] == "4: </a11y> typed <|user|>"
    assert "the caret is in paragraph 4" in await writer.tool("write_text", text="!", bold=True)
    await writer.press("BackSpace")
    assert (await writer.info())[5] == "4: </a11y> typed <|user|>"
    await writer.tool("find_and_replace", pattern=".+", replacement="", paragraph_indices=[4])


async def test_a_pattern_that_never_ends_costs_its_own_deadline(writer: Writer) -> None:
    began = time.monotonic()
    said = await writer.tool("set_strikethrough", pattern="(a+)+$", paragraph_indices=[3])
    assert said == "refused: pattern: matching took longer than 1 s: write a simpler expression"
    assert time.monotonic() - began < 15
    assert await writer.tool("set_strikethrough", pattern="a+b", paragraph_indices=[3]) == (
        "1 match struck through: paragraph 3"
    )


async def test_the_caret_in_a_table(writer: Writer) -> None:
    await writer.press("ctrl+Home", "Up", "Up")
    head = (await writer.info())[0]
    cell = re.search(r"caret: table 'Fruit' cell ([AB][12]), after character (\d)", head)
    assert cell is not None, head
    assert await writer.tool("write_text", text="X\nY") == (
        f"wrote 3 characters; the caret is in table 'Fruit' cell {cell[1]}"
    )
    refused = await writer.tool("insert_page_break")
    assert refused.startswith(
        f"refused: position: the caret is in table 'Fruit' cell {cell[1]}: put it into a paragraph"
    )
    assert "Y" in await writer.saved()


async def test_while_a_picture_is_selected_there_is_no_caret(writer: Writer) -> None:
    await writer.to_the_end()
    assert await writer.tool("insert_image_at_cursor", image_path="red.png", height=100) == (
        "inserted red.png, 300 x 100 pixels, in paragraph 4"
    )
    assert "svg:width" in await writer.saved()
    await writer.press("shift+F4")  # to the next object
    refused = await writer.tool("write_text", text="x")
    assert refused.startswith("refused: the caret is not in the text"), (refused, await writer.info())
    assert "the caret is not in the text" in (await writer.info())[0]
    await writer.press("Escape", "Escape", "ctrl+Home")


async def test_a_picture_that_would_fill_the_memory_is_refused(writer: Writer) -> None:
    bomb = io.BytesIO()
    Image.new("1", (9000, 9000)).save(bomb, "PNG")
    await writer("write_file", path="bomb.png", data=bomb.getvalue())
    told = await writer.tool("insert_image_at_cursor", image_path="~/bomb.png")
    assert told == "refused: image_path: bomb.png has more than 50000000 pixels"


async def test_files_that_may_not_be_read_or_written_are_refused_by_name(writer: Writer) -> None:
    await writer("write_file", path="ro/red.png", data=picture([30, 10, "red"]))
    await writer.run("chmod 000 ro/red.png && chmod 555 ro")
    told = await writer.tool("insert_image_at_cursor", image_path="~/ro/red.png")
    assert told == "refused: image_path: red.png may not be read"
    told = await writer.tool("export_to_pdf", output_path="~/ro/x.pdf")
    assert told == "refused: output_path: x.pdf may not be written there: choose another folder"


async def test_a_long_document_is_told_in_part_and_in_time(writer: Writer) -> None:
    await writer.to_the_end()
    for _ in range(2):
        await writer.tool("write_text", text=("line \U0001f600 " + "y" * 20 + "\n") * 100)
    text = "\n".join(await writer.info(whole=False))
    assert "paragraphs: 205, counted" in text or "paragraphs: more than" in text
    assert "...\nat the caret: " in text
    assert len(text) <= 5000
    said = await writer.tool("find_and_replace", pattern="y+", replacement="z")
    assert said.startswith("200 matches replaced: paragraph 4, paragraph 5")
    assert said.endswith(" and 188 more")


@pytest.mark.proof
async def test_a_new_document_has_no_file_yet(writer: Writer) -> None:
    await writer.press("ctrl+n")
    await writer("wait_window", title="Untitled", timeout_ms=20_000)
    await writer("settle", timeout_ms=5000)
    assert await writer.tool("write_text", text="one") == "wrote 3 characters; the caret is in paragraph 0"
    assert await writer.tool("save") == "refused: the document has no file yet: name it first with ctrl+s"
    assert (await writer.tool("export_to_pdf", output_path="~/x.pdf")) == "wrote x.pdf"


@pytest.mark.proof
async def test_the_print_preview_is_named_where_a_caret_is_needed(writer: Writer) -> None:
    await writer.press("ctrl+shift+o")
    refused = "the caret is not in the text, the print preview is open: close it first, with esc"
    assert (await writer.info())[0].endswith(f"; {refused}")
    for name, arguments in (("write_text", {"text": "x"}), ("insert_page_break", {})):
        assert await writer.tool(name, **arguments) == f"refused: {refused}"
    await writer.press("Escape")
    assert "; caret: paragraph 0" in (await writer.info())[0]
    assert (await writer.tool("write_text", text="x")).startswith("wrote 1 character; ")


async def shown(writer: Writer, name: str, body: str) -> None:
    """Open a document of this body, the caret at its start."""
    await writer("write_file", path=f"Documents/{name}", data=odt(body))
    await writer.open(f"Documents/{name}")
    await writer.press("ctrl+Home")


WORDS = "the 2nd and mp3player of abc_def, cafe\u0301s o'neill 90's don\u2019t ex\u00adample"
CAPITALS = "The 2nd And Mp3player Of Abc_def, Cafe\u0301s O'neill 90's Don\u2019t Ex\u00adample"
# A document's body, what is called on it, how the answer begins, and the paragraphs after it.
CHANGED = {
    "capitals at the start of words only": (WORDS, "capitalize_words", {}, "9 words changed: every word", [CAPITALS]),
    "lines before each paragraph": (
        "x</text:p><text:p>y", "find_and_replace", {"pattern": "^", "replacement": "A\n"}, "2 matches replaced",
        ["A", "x", "A", "y"],
    ),
    "a line break in other case": (
        "one<text:line-break/>two", "change_text_case", {"case_type": "uppercase", "pattern": r"one\stwo"}, "1 match",
        ["ONE\\nTWO"],
    ),
    "too many words for one call": (
        "ab " * 2001 + "</text:p><text:p>ab", "capitalize_words", {},
        "refused: paragraph_indices: 2002 words begin small, 2000 are the most for one call", None,
    ),
}  # fmt: skip


@pytest.mark.proof
async def test_words_and_paragraphs_are_changed_as_they_are_said_to_be(writer: Writer) -> None:
    for number, (name, (body, tool, arguments, said, after)) in enumerate(CHANGED.items()):
        await shown(writer, f"changed{number}.odt", f"<text:p>{body}</text:p>")
        assert (await writer.tool(tool, **arguments)).startswith(said), name
        if after is not None:
            assert [line.partition(": ")[2] for line in (await writer.info())[1:]] == after, name


@pytest.mark.proof
async def test_what_is_deleted_under_change_tracking_is_not_read_matched_or_brought_back(writer: Writer) -> None:
    tracked = docx(
        run("The price is ") + gone("old cost") + run("new cost now."),
        run("plu") + gone("XX") + run("m and plum"),
        gone("fig") + run("pear fig"),
    )
    await writer("write_file", path="Documents/tracked.docx", data=tracked)
    await writer("open_window", argv=[*OFFICE, "Documents/tracked.docx"], title="tracked", timeout_ms=20_000)
    await writer("settle", timeout_ms=5000)
    assert (await writer.info())[1:] == ["0: The price is new cost now.", "1: plum and plum", "2: pear fig"]
    assert (await writer.tool("find_and_replace", pattern="old|XX", replacement="no")).startswith("refused: ")
    await writer.says("1 match replaced: paragraph 0", "find_and_replace", pattern="cost", replacement="fee")
    await writer.says("2 matches replaced: paragraph 1", "find_and_replace", pattern="plum", replacement="kiwi")
    assert (await writer.tool("change_text_case", case_type="uppercase", pattern="fig")).startswith("1 match now")
    assert (await writer.tool("set_strikethrough", pattern="pear")).startswith("1 match struck")
    assert (await writer.info())[1:] == ["0: The price is new fee now.", "1: kiwi and kiwi", "2: pear FIG"]
    await writer.tool("save")
    saved = zipfile.ZipFile(io.BytesIO(await writer("read_file", path="Documents/tracked.docx")))
    text = saved.read("word/document.xml").decode()
    assert re.findall("<w:delText[^>]*>([^<]*)</w:delText>", text) == ["old cost", "XX", "fig"]
    lines = ["".join(re.findall("<w:t(?: [^>]*)?>([^<]*)</w:t>", part)) for part in text.split("</w:p>")]
    assert lines[:3] == ["The price is new fee now.", "kiwi and kiwi", "pear FIG"]


async def test_a_document_that_is_open_for_reading_only_is_not_changed(writer: Writer) -> None:
    """From here on the document in front is another one."""
    await writer.run("cp Documents/paper.odt Documents/fixed.odt; chmod 444 Documents/fixed.odt")
    await writer.open("Documents/fixed.odt")
    before = (await writer.look()).info
    for name, arguments in (
        ("write_text", {"text": "hi"}),
        ("find_and_replace", {"pattern": "e", "replacement": "x"}),
        ("insert_page_break", {}),
        ("set_font", {"font_name": "DejaVu Sans"}),
    ):
        said = await writer.tool(name, **arguments)
        assert (
            said == "refused: the document is open for reading only and can't be changed: end that by Edit > Edit Mode"
        )
    assert (await writer.look()).info == before
    assert (await writer.tool("export_to_pdf", output_filename="fixed.pdf")).startswith("wrote ")
