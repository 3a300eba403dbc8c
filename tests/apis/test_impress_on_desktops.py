"""Impress in a desktop: how it starts, what is said of its slides, and typing and calls side by side."""

from __future__ import annotations

import io
import shlex
import shutil
import zipfile
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from actors.cluster.checks.desk import OPEN_MS, RealDesk, opened, provider
from actors.desktop import link
from actors.desktop.config import SandboxConfig
from apis.apps.check.case import tables
from apis.apps.check.steps import values
from apis.documents.odp import make_odp
from apis.observation import Element, Observation, from_guest
from apis.plans.setup import setup
from apis.tasks.osworld import Evaluator, Open, Task
from tests.folders import desk_folder

pytestmark = [
    pytest.mark.desktop,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed"),
]

IMPRESS = tables()["libreoffice_impress"]
SOUND = "Documents/beep.wav"
PARTS = (
    '<draw:frame svg:x="1cm" svg:y="1cm" svg:width="8cm" svg:height="2cm"><table:table>'
    '<table:table-column table:number-columns-repeated="2"/><table:table-row><table:table-cell><text:p>A</text:p>'
    "</table:table-cell><table:table-cell><text:p>B</text:p></table:table-cell></table:table-row></table:table>"
    '</draw:frame><draw:g>{boxes}</draw:g><draw:line svg:x1="1cm" svg:y1="9cm" svg:x2="5cm" svg:y2="9cm"/>'
)
BOX = (
    '<draw:frame svg:x="{x}cm" svg:y="5cm" svg:width="3cm" svg:height="1cm"><draw:text-box><text:p>{text}</text:p>'
    "</draw:text-box></draw:frame>"
)
CALLS = 5000  # more than there is time for
TRIES = 30  # of 0.3 s, the time that app info may take
# A component of the office's that adds a module to those that are called: it says whether the main thread calls it.
WHERE = """
import os, sys, threading, types
import unohelper
from com.sun.star.task import XJob
import guest.tools
class Tools:
    _service, _sort, _kind = "com.sun.star.presentation.PresentationDocument", "", "presentation"
    def __init__(self, doc):
        pass
    def _info(self):
        return threading.get_native_id() == os.getpid()
class Where(unohelper.Base, XJob):
    def __init__(self, context):
        made = types.ModuleType("where")
        made.TOOLS = Tools
        sys.modules["where"] = made
        guest.tools.BY_OWNER["Where"] = guest.tools.CALC._replace(module="where")
    def execute(self, arguments):
        return ""
g_ImplementationHelper = unohelper.ImplementationHelper()
g_ImplementationHelper.addImplementation(Where, "test.Where", ())
"""
ASK = """
import json, os, sys
code, run, home = sys.argv[1:]
sys.path.insert(0, os.path.dirname(code))
os.environ.update(json.load(open(run + "/session.json")))
from guest.office.office import CONNECT_S, Call, Office
office = Office()
there = office.reached(CONNECT_S)
loader = there.ServiceManager.createInstanceWithContext("com.sun.star.loader.Python", there)
loader.activate("test.Where", "", f"file://{home}/where.py", None).createInstanceWithContext(there)
sys.stdout.write(office.ask(Call("info", "where", "info"), 5.0))
sys.stdout.flush()
os._exit(0)  # UNO's threads may crash an interpreter that takes itself down
"""


async def emptied(desk: RealDesk, element: Element) -> None:
    """Click into it and take its text away by keys."""
    for method, arguments in (
        ("click", {"x": element.cx, "y": element.cy, "n": 2}),
        ("hotkey", {"keys": ["ctrl", "a"]}),
        ("hotkey", {"keys": ["BackSpace"]}),
    ):
        await desk.call(method, **arguments)
        await desk.call("settle", timeout_ms=5000, quiet_ms=200)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[RealDesk]:
    """Impress, started without a file."""
    started = msgspec.structs.replace(IMPRESS, files={}, opens=[], title="LibreOffice Impress")
    with desk_folder() as folder:
        async with provider(SandboxConfig(state_dir=folder)) as made, opened(made, started) as found:
            yield found


async def look(desk: RealDesk) -> Observation:
    """What is seen; asked again while a busy machine makes the office late to say what its document holds."""
    for _ in range(TRIES):
        seen = from_guest(msgspec.to_builtins(await desk.call("observe")))
        if not seen.info.startswith("not known"):
            return seen
    raise AssertionError(seen.info)


async def show(desk: RealDesk, name: str, data: bytes) -> None:
    """Open a file as a task's set-up does."""
    await desk.call("write_file", path=f"Documents/{name}", data=data)
    step = Open(f"/home/user/Documents/{name}")
    task = Task(
        id="t", snapshot="", instruction="", source="", config=[step], trajectory="", related_apps=[],
        evaluator=Evaluator(func="infeasible"),
    )  # fmt: skip
    for each in setup(task, desk.home):
        patient = {"timeout_ms": OPEN_MS} if each.method == "open_window" else {}
        await desk.call(each.method, **each.args | patient)
    assert any(window.active and window.title.startswith(name) for window in await desk.call("windows"))


async def test_it_starts_with_an_empty_presentation_and_no_questions(desk: RealDesk) -> None:
    seen = await look(desk)
    assert seen.app == "libreoffice_impress"
    assert [window.title for window in seen.windows] == ["Untitled 1 - LibreOffice Impress"]
    assert seen.info == "slides: 1; current: 1\nSlide 1:\n- Box 0 (title)\n- Box 1 (subtitle)"
    there = {(element.tag, element.name or element.text) for element in seen.elements}
    assert {("menu", "Slide Show"), ("paragraph", "Click to add Title"), ("push-button", "Save")} <= there
    assert await desk.tool("save") == "refused: the presentation has no file yet: name it first with ctrl+s"


@pytest.mark.proof
async def test_what_is_typed_and_what_is_called_go_together(desk: RealDesk) -> None:
    await show(desk, "talk.odp", make_odp([[("title", "Plan"), ("outline", "one\ntwo")], [("title", "End")]]))
    title = next(e for e in (await look(desk)).elements if e.tag == "paragraph" and e.text == "Plan")
    steps: list[tuple[str, dict[str, Any]]] = [
        ("click", {"x": title.cx, "y": title.cy, "n": 2}),
        ("hotkey", {"keys": ["ctrl", "a"]}),
        ("type_text", {"text": "Typed"}),
    ]
    for method, arguments in steps:
        await desk.call(method, **arguments)
        await desk.call("settle", timeout_ms=5000, quiet_ms=200)
    assert "- Box 0 (title): Typed\n" in (await look(desk)).info
    said = await desk.tool("write_text", content=" and called", page_index=1, box_index=0, append=True)
    assert said == "11 characters added to box 0 of slide 1"
    assert "- Box 0 (title): Typed and called\n" in (await look(desk)).info
    assert (await desk.tool("go_to_slide", slide_index=2)) == "slide 2 of 2 is shown"
    told = "- Box 0 (title): Typed and called\n- Box 1 (outline): one\\ntwo\nSlide 2:\n- Box 0 (title): End"
    assert (await look(desk)).info == f"slides: 2; current: 2\nSlide 1:\n{told}"
    assert await desk.tool("save_as", file_path="~/Documents/talk.pptx") == "saved as talk.pptx"
    assert await desk.tool("write_text", content="Ende", page_index=2, box_index=0) == (
        "4 characters written into box 0 of slide 2"
    )
    assert await desk.tool("save") == "saved talk.pptx"
    saved = await desk.contents("Documents/talk.pptx")
    with zipfile.ZipFile(io.BytesIO(saved)) as file:
        assert "Typed and called" in file.read("ppt/slides/slide1.xml").decode()
        assert "Ende" in file.read("ppt/slides/slide2.xml").decode()
    await show(desk, "again.pptx", saved)
    assert "- Box 0 (title): Ende" in (await look(desk)).info


@pytest.mark.proof
async def test_a_box_that_is_emptied_by_keys_is_empty_in_the_file_that_a_call_saves(desk: RealDesk) -> None:
    await show(desk, "bare.odp", make_odp([[("title", "Plan"), ("outline", "one")]]))
    title = next(e for e in (await look(desk)).elements if e.tag == "paragraph" and e.text == "Plan")
    await emptied(desk, title)
    assert "- Box 0 (title)\n- Box 1 (outline): one" in (await look(desk)).info
    assert await desk.tool("save") == "saved bare.odp"
    content = zipfile.ZipFile(io.BytesIO(await desk.contents("Documents/bare.odp"))).read("content.xml").decode()
    assert ">one<" in content
    assert "Plan" not in content


@pytest.mark.proof
async def test_a_table_and_a_group_are_told_and_coloured_as_wholes(desk: RealDesk) -> None:
    inside = PARTS.format(boxes=BOX.format(x=1, text="left") + BOX.format(x=5, text="right"))
    await show(desk, "parts.odp", with_boxes(make_odp([[("title", "Parts")]]), inside))
    told = "- Box 0 (title): Parts\n- Box 1 (table): A | B\n- Box 2 (group): left | right\n- Box 3 (line)"
    assert (await look(desk)).info.endswith(told)
    for box in (1, 2):
        refused = await desk.tool("write_text", content="x", page_index=1, box_index=box)
        assert "which is no text; boxes with text here: 0, 3" in refused
        assert "is #ff0000" in await desk.tool("set_text_color", slide_index=1, box_index=box, color="red")
    assert await desk.tool("save") == "saved parts.odp"
    spans = "//draw:page/draw:*[position()=2 or position()=3]//text:p/text:span"
    red = "//part[@name='content.xml']//style:style[.//@fo:color='#ff0000']/@style:name"
    painted = values(await desk.contents("Documents/parts.odp"), f"{spans}[@text:style-name={red}]")
    assert painted == ["A", "B", "left", "right"]
    refused = await desk.tool("set_background_color", slide_index=1, box_index=3, color="red")
    assert refused == "refused: box_index: box 3 of slide 1 is a box of kind line, without an area"
    removed = await desk.tool("delete_content", slide_index=1, box_index=3)
    assert removed == "box 3 of slide 1 (line) is removed; slide 1 has 3 boxes left"
    assert await desk.tool("delete_content", slide_index=1, box_index=1) == "box 1 of slide 1 is empty"
    assert "- Box 1 (table):  | \n" in (await look(desk)).info
    assert await desk.tool("delete_content", slide_index=1, box_index=1) == "box 1 of slide 1 is empty, as it was"


def with_boxes(deck: bytes, inside: str) -> bytes:
    """The presentation with more boxes on its last slide."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(deck)) as file, zipfile.ZipFile(out, "w") as made:
        for entry in file.infolist():
            data = file.read(entry)
            if entry.filename == "content.xml":
                before, end, after = data.rpartition(b"</draw:page>")
                data = before + inside.encode() + end + after
                table = b'xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0" '
                data = data.replace(b"<office:document-content ", b"<office:document-content " + table)
            made.writestr(entry, data)
    return out.getvalue()


async def choose(desk: RealDesk, menu: str, item: str) -> None:
    """Choose from a menu."""
    for name in (menu, item):
        there: list[Any] = []
        for _ in range(TRIES):
            there = [e for e in (await look(desk)).elements if e.name == name and "menu" in e.tag]
            if there:
                break
        await desk.call("click", x=there[0].cx, y=there[0].cy)
        await desk.call("settle", timeout_ms=5000, quiet_ms=200)


async def slides(desk: RealDesk) -> list[Element]:
    """The slides that an observation lists, as the slide pane or the slide sorter shows them."""
    return [e for e in (await look(desk)).elements if e.tag == "panel"]


@pytest.mark.proof
async def test_slides_are_counted_and_shown_in_every_view_that_shows_them(desk: RealDesk) -> None:
    await show(desk, "views.odp", make_odp([[("title", f"S{n}")] for n in range(1, 4)]))
    await desk.call("write_file", path=SOUND, data=IMPRESS.made()[SOUND])
    first, _, third = await slides(desk)
    assert "sel" in first.states
    await desk.call("click", x=third.cx, y=third.cy)
    await desk.call("settle", timeout_ms=5000, quiet_ms=200)
    assert await desk.tool("get_slide_count") == "3 slides; slide 3 is shown"
    assert [(e.name, "sel" in e.states) for e in await slides(desk)] == [
        ("Slide 1", False), ("Slide 2", False), ("Slide 3", True),
    ]  # fmt: skip
    for number, view in ((3, "Slide Sorter"), (2, "Outline"), (1, "Notes")):
        await choose(desk, "View", view)
        assert await desk.tool("go_to_slide", slide_index=number) == f"slide {number} of 3 is shown"
        assert await desk.tool("get_slide_count") == f"3 slides; slide {number} is shown"
        assert (await look(desk)).info.startswith(f"slides: 3; current: {number}\nSlide 1:\n- Box 0 (title): S1")
        said = await desk.tool("insert_file", file_path=f"~/{SOUND}", slide_index=None)
        assert said.startswith(f"the sound is box 1 of slide {number}, ")
    await choose(desk, "View", "Master Handout")
    assert await desk.tool("go_to_slide", slide_index=2) == (
        "refused: slide_index: the handout shows no single slide: choose View > Normal first"
    )
    await choose(desk, "View", "Normal")
    assert await desk.tool("go_to_slide", slide_index=2) == "slide 2 of 3 is shown"


async def test_calls_run_on_the_main_thread_of_the_office(desk: RealDesk) -> None:
    """Elsewhere they would end it by chance, for the main thread tells the accessibility bus of what they change."""
    await desk.tool("get_slide_count")  # the office has the guest's modules then
    await desk.call("write_file", path="where.py", data=WHERE.encode())
    python, _, code, _, _, run = desk.desktop.agent
    connection = await link.connect(desk.desktop)
    try:
        done = await connection.run(shlex.join([python, "-I", "-c", ASK, code, run, desk.home]))
    finally:
        connection.close()
        await connection.wait_closed()
    assert (done.stdout, done.stderr) == ("True", "")


@pytest.mark.proof
async def test_an_office_that_ends_says_so_and_can_be_had_again(desk: RealDesk) -> None:
    await show(desk, "gone.odp", make_odp([[("title", "Gone")]]))
    assert not await desk.ended()
    await desk.call("launch", argv=["sh", "-c", "sleep 0.5; pkill -KILL -x soffice.bin"])
    said = ""
    for number in range(CALLS):
        said = await desk.tool("go_to_slide", slide_index=1)
        if said.startswith("refused"):
            break
        assert number < CALLS - 1
    during = "refused: go_to_slide: LibreOffice ended during the call: open it again; what was not saved may be lost"
    assert said in (during, "refused: LibreOffice is not running: open it first")
    await desk.call("settle", timeout_ms=3000, quiet_ms=100)
    assert await desk.ended()
    assert await desk.tool("get_slide_count") == "refused: LibreOffice is not running: open it first"
    await desk.again()
    assert await desk.tool("get_slide_count") == "1 slides; slide 1 is shown"
