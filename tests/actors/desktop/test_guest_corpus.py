"""What is typed stands there: a corpus of what editors correct, complete and reformat, in every application with text.

Where the field goes on by itself with a name that it knows, the addition is gone before anything reads it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from actors.cluster.checks.functions import missing
from apis.applications import OFFICE
from apis.observation import Element
from apis.plans.action import typed
from apis.tasksets.steps import CSV_FILTER
from tests.actors.desktop.offices import Guest, booted

pytestmark = [pytest.mark.desktop, pytest.mark.asyncio(loop_scope="module")]
needs = {app: pytest.mark.skipif(bool(missing(app)), reason=missing(app) or app) for app in ("google_chrome", "code")}
needs_office = pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
# For what is typed often: the lines that most editors correct.
SHORT = r"""
say "hello" to it's owner
a -- b and c - d --- e;
- first
1. third
(c) (tm) ... 1/2 of 3/4 !
http://example.com/a?b=c and www.example.com .
at 10:30 or 9:05pm
i am at THe end. teh adn
apple pie
app
if (x) { y = "z"; }
January
Ja
""".strip().split("\n")
CORPUS = [
    *SHORT,
    *r"""
* second
the 1st, 2nd and 3rd ;
*bold* _under_ /it/ -strike- .
+---+---+
---
    return [1, (2), 'three'
<b>"a" & 'b'</b>
:smile: -> <- => .
5 x 6 « q » : ; ! ?
cAPS lOCK wORD .
#1 @home $5 50% a^b ~x `q` a|b \n
""".strip().split("\n"),
]
ONE_LINE = (
    r"""say "it's" a -- b - (c) ... 1/2 1st 10:30pm i am teh http://a.b/c?d=e =SUM(A1) {x: [1]} <b> 'q' #1 ~$5 \n"""
)
CODE = "if x:\n\ty = {1: (2)}\n\t\tz = [3\n  w  \n\nend"
HOME = "/home/agent"
PAGE = """<title>Form</title><form><textarea rows=9 cols=80 spellcheck=true autofocus></textarea><br>
<input name=fruit autocomplete=on size=80> <input type=submit></form><p><input type=file aria-label=Choose>
<script>
const [area, field] = [document.querySelector("textarea"), document.querySelector("[name=fruit]")];
onkeydown = event => {
  if (event.key != "F8") return;
  const link = document.createElement("a");
  link.href = "data:text/plain;charset=utf-8," + encodeURIComponent(JSON.stringify([area.value, field.value]));
  link.download = "typed.json";
  link.click();
};
</script>"""


class Desk(Guest):
    """One desktop for the whole module."""

    async def type(self, text: str) -> None:
        assert [await self(call.method, **call.args) for call in typed(text)][-1] == "Type Success"
        assert await self("settle", timeout_ms=15_000)

    async def keys(self, *names: str) -> None:
        await self.act("hotkey", keys=list(names))

    async def seen(self) -> list[Element]:
        return list((await self.look()).elements)

    async def click(self, tag: str, label: str) -> None:
        found = await self.seen()
        (wanted,) = [element for element in found if element.tag == tag and label in element.label]
        await self.act("click", x=wanted.cx, y=wanted.cy)

    async def fields(self) -> list[str]:
        """The texts of fields that have the focus; of a browser that is one of the page, and one of the window."""
        fields = [e for e in await self.seen() if "foc" in e.states and e.tag in ("combo-box", "entry", "text")]
        return [field.text or field.name for field in fields]

    async def text(self, path: str) -> str:
        """A file's text, once a busy application has written it."""
        for _ in range(20):
            if (text := await super().text(path)) is not None:
                return text
            await self("settle", timeout_ms=500, quiet_ms=100)
        raise AssertionError(path)

    async def names(self, folder: str) -> list[str]:
        return str((await self("run", argv=["ls", "-1", folder])).out).splitlines()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[Desk]:
    async with booted() as made:
        guest = Desk(*made)
        for name in ("apple pie.txt", "apple pie", "typed.txt", "code.txt"):
            await guest("write_file", path=f"names/{name}" if "." in name else f"names/{name}/x.txt", data=b"")
        yield guest


@pytest.mark.proof
async def test_text_editor(desk: Desk) -> None:
    await desk.open("mousepad", "names/typed.txt", title="typed.txt")
    text = "\n".join([*CORPUS, CODE])
    await desk.type(text)
    await desk.keys("ctrl", "s")
    assert (await desk.text("names/typed.txt")).rstrip("\n") == text
    await desk.keys("ctrl", "shift", "s")
    await desk.keys("ctrl", "a")
    await desk.type(f"{HOME}/names/app")
    assert f"{HOME}/names/app" in await desk.fields()
    await desk.keys("Return")
    assert (await desk.text("names/app")).rstrip("\n") == text
    await desk.keys("ctrl", "o")
    await desk.type(f"{HOME}/names/apple p")
    assert f"{HOME}/names/apple p" in await desk.fields()
    await desk.keys("ctrl", "a")
    await desk.type(f"{HOME}/names/app\n")
    assert "app - Mousepad" in [window.title for window in await desk("windows")]
    await desk.keys("ctrl", "q")


async def test_file_manager(desk: Desk) -> None:
    await desk.open("pcmanfm", "names", title="names")
    await desk.click("icon", "code.txt")
    await desk.keys("F2")
    await desk.keys("ctrl", "a")
    name = ONE_LINE.replace("/", "")
    await desk.type(f"{name}\n")
    assert name in await desk.names("names")
    await desk.keys("ctrl", "l")
    await desk.type(f"{HOME}/names/app")
    assert f"{HOME}/names/app" in await desk.fields()
    await desk.type("le pie\n")
    assert "apple pie" in [window.title for window in await desk("windows")]
    await desk.keys("alt", "F4")


@pytest_asyncio.fixture(loop_scope="module")
async def form(desk: Desk) -> AsyncIterator[str]:
    """The address of a page with fields, which a browser shows."""
    await desk("write_file", path="names/form.html", data=PAGE.encode())
    address = f"file://{HOME}/names/form.html"
    await desk.open("chromium", address, title="Form")
    yield address
    await desk.keys("alt", "F4")


@pytest.mark.proof
@needs["google_chrome"]
async def test_browser(desk: Desk, form: str) -> None:
    await desk.keys("Tab")
    await desk.type("apple pie\n")
    await desk.keys("ctrl", "l")
    await desk.type(f"{form}\n")
    text = "\n".join(SHORT)  # `bench typing` types all lines
    await desk.type(text)
    await desk.keys("Tab")
    await desk.type("app")
    assert not [element for element in await desk.seen() if element.label == "apple pie"]
    await desk.keys("F8")
    assert json.loads(await desk.text("Downloads/typed.json")) == [text, "app"]
    await desk.keys("ctrl", "l")
    await desk.type(ONE_LINE)
    assert ONE_LINE in await desk.fields()
    for part in (form[:-4], "chrome:"):
        await desk.keys("ctrl", "a")
        await desk.type(part)
        assert part in await desk.fields()
    await desk.keys("Escape")


@needs["code"]
async def test_code_editor(desk: Desk) -> None:
    for name in ("typed.py", "typed.html", "typed.md"):
        await desk("write_file", path=f"names/{name}", data=b"")
        await desk.open("code", f"names/{name}", title=name)
        text = "\n".join([*SHORT, CODE])
        await desk.type(text)
        await desk.keys("ctrl", "s")
        assert (await desk.text(f"names/{name}")).rstrip("\n") == text


@needs_office
@pytest.mark.proof
async def test_writer(desk: Desk) -> None:
    await desk.open(*OFFICE, "--writer", title="Writer")
    await desk.type("\n".join(SHORT))
    assert [element.text for element in await desk.seen() if element.tag == "paragraph"] == SHORT
    await desk.click("text", "Font Name")
    await desk.keys("ctrl", "a")
    await desk.type("Lib")
    assert "Lib" in await desk.fields()
    await desk.keys("Escape")


@pytest.mark.proof
@needs_office
async def test_calc(desk: Desk) -> None:
    await desk.open(*OFFICE, CSV_FILTER, "--calc", title="Calc")
    await desk.type("\n".join([*CORPUS, "=1+2"]) + "\n")
    told = await desk("tool", owner="CalcTools", name="get_column_data", arguments={"column_name": "A"})
    assert json.loads(told[told.index("[") :]) == [*CORPUS, 3]
