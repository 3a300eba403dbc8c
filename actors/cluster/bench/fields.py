"""Where `bench typing` types and how it reads back what stands there, one way per application.

Invariant: what is read comes from the application itself, and never from what was typed. It is a file that the
application wrote, or a field that it shows.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Awaitable, Callable

import msgspec

from actors.cluster.bench.stage import CALL_S, observe
from actors.desktop.link import GuestLink
from apis.apps.application import OFFICE
from apis.tasksets.steps import CSV_FILTER

DOCUMENTS = "Documents"  # relative to HOME
FILE = f"{DOCUMENTS}/typed.txt"
SHEET = f"{DOCUMENTS}/typed.csv"
PAGE_FILE = f"{DOCUMENTS}/page.html"
PAGES = "Downloads"
UTF8 = "--infilter=Text (encoded):UTF8,LF,,,"
REST = {"timeout_ms": 15_000, "quiet_ms": 100}
SHOWN_MAX = 450  # characters that an observation surely shows of a field
BOX_MAX = 450  # characters that are surely told of a box of a presentation
READS = 120  # of what a busy application has not written or shown yet
BOX = re.compile(r"^- Box \d+ \([^)]*\): (.*)$", re.MULTILINE)
PAGE = b"""<title>Page</title><textarea rows=20 cols=90 autofocus></textarea><script>
let at = 0;
onkeydown = event => {
  if (event.key != "F8") return;
  const link = document.createElement("a");
  link.href = "data:text/plain;charset=utf-8," + encodeURIComponent(JSON.stringify(event.target.value));
  link.download = "typed-" + ++at + ".json";
  link.click();
};
</script>"""

Keys = tuple[tuple[str, ...], ...]


class Field(msgspec.Struct, frozen=True, kw_only=True):
    """A place to type into."""

    argv: tuple[str, ...]  # "~" stands for HOME
    title: str
    accessible: bool = True  # its window tells the accessibility bus what it shows
    ready: Keys = ()  # pressed once, when the window is there
    dialog: str = ""  # the title of what opens then
    clear: Keys  # empties it, whatever stands there
    before: str = ""  # typed before the text
    unused: Keys = ()  # ends what was typed without `before`
    contents: Callable[[GuestLink, int], Awaitable[str]]  # link, how many texts were read before
    lines: bool = True  # takes lines
    most: int = 1000  # signs


_ALL: Keys = (("ctrl", "a"), ("delete",))
_SAVED: Keys = (("ctrl", "s"),)


async def press(link: GuestLink, keys: Keys) -> None:
    """Press combinations, with a rest after each."""
    for names in keys:
        await link.call("hotkey", timeout_s=CALL_S, keys=list(names))
        await link.call("settle", timeout_s=CALL_S, **REST)


def _file(path: str, keys: Keys) -> Callable[[GuestLink, int], Awaitable[str]]:
    """`path`, once `keys` have had it written."""

    async def stands(link: GuestLink) -> str:
        data = bytes(await link.call("read_file", timeout_s=CALL_S, path=path))
        return data.decode("utf-8-sig", "replace").rstrip("\n")

    async def read(link: GuestLink, _: int) -> str:
        before = await stands(link)
        await press(link, keys)
        for _ in range(READS):
            if await stands(link) != before:
                break
            await link.call("settle", timeout_s=CALL_S, timeout_ms=500, quiet_ms=100)
        return await stands(link)

    return read


async def _sheet(link: GuestLink, number: int) -> str:
    said = await _file(SHEET, _SAVED)(link, number)
    return "\n".join(row[0] if row else "" for row in csv.reader(said.splitlines()))


async def _page(link: GuestLink, number: int) -> str:
    await press(link, (("f8",),))
    await link.call("settle", timeout_s=CALL_S, timeout_ms=5000, quiet_ms=500)
    said = await link.call("read_file", timeout_s=CALL_S, path=f"{PAGES}/typed-{number + 1}.json")
    return str(json.loads(bytes(said)))


async def _shown(link: GuestLink, _: int) -> str:
    found, before = "", ""
    for _ in range(READS):
        seen = (await observe(link)).elements
        before, found = (
            found,
            next((e.text or e.name for e in seen if "foc" in e.states and e.tag in ("combo-box", "text")), ""),
        )
        if found and found == before:
            break
        await link.call("settle", timeout_s=CALL_S, timeout_ms=500, quiet_ms=100)
    return found


async def _box(link: GuestLink, _: int) -> str:
    told = ""
    for _ in range(READS):
        told = max(BOX.findall(await link.call("info", timeout_s=CALL_S)), key=len, default="")
        if told:
            break
        await link.call("settle", timeout_s=CALL_S, timeout_ms=500, quiet_ms=100)
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], told)


FIELDS = {
    "text_editor": Field(argv=("mousepad", FILE), title="typed.txt", clear=_ALL, contents=_file(FILE, _SAVED)),
    "terminal": Field(
        argv=("xterm",), title="xterm", clear=(), before=f"cat > {FILE}\n", contents=_file(FILE, (("ctrl", "d"),)),
        unused=(("ctrl", "u"),), accessible=False,
    ),
    "libreoffice_writer": Field(
        argv=(*OFFICE, UTF8, "--writer", FILE), title="typed.txt", clear=_ALL, contents=_file(FILE, _SAVED)
    ),
    "libreoffice_calc": Field(
        argv=(*OFFICE, CSV_FILTER, "--calc", SHEET), title="typed.csv", clear=(*_ALL, ("ctrl", "home")),
        contents=_sheet,
    ),
    "libreoffice_impress": Field(
        argv=(*OFFICE, "--impress"), title="Impress", ready=(("x",),), clear=_ALL, contents=_box, most=BOX_MAX
    ),
    "file_manager": Field(
        argv=("pcmanfm", DOCUMENTS), title="Documents", ready=(("ctrl", "l"),), clear=_ALL, contents=_shown,
        lines=False,
        most=SHOWN_MAX,
    ),
    "google_chrome": Field(argv=("chromium", f"file://~/{PAGE_FILE}"), title="Page", clear=_ALL, contents=_page),
    "vlc": Field(
        argv=("vlc",), title="VLC", ready=(("ctrl", "n"),), dialog="Open Media", clear=_ALL, contents=_shown,
        lines=False,
        most=SHOWN_MAX,
    ),
}  # fmt: skip
