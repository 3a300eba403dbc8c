"""Functions on a real Calc that hangs, dies, shows a dialog or was started by the user; `apis/apps/check` has cases."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from actors.errors import GuestRefused
from apis.applications import app_named
from apis.documents.xlsx import make_xlsx
from apis.observation import Observation, from_guest
from tests.actors.desktop.offices import Office, booted

pytestmark = [
    pytest.mark.desktop,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed"),
]

BOOK = "Documents/book.xlsx"
TABLE = (("Name", "Price", "Qty"), ("plum", 30, 4), ("fig", 5, 9), ("N/A", 20, 1), ("pear", 7, 2))


class Calc(Office):
    """One warm Calc for the whole module."""

    owner = "CalcTools"

    async def open(self, path: str) -> None:
        argv = [*app_named("libreoffice_calc").argv, path]
        await self("open_window", argv=argv, title=path.rpartition("/")[2], timeout_ms=20_000)
        await self("settle", timeout_ms=5000, quiet_ms=100)

    async def shown(self, wanted: str) -> Observation:
        """An observation whose information holds `wanted`, or the last one: a busy office says late what it holds."""
        for _ in range(20):
            seen = from_guest(await self("observe"))
            if wanted in seen.info:
                break
            await self("settle", timeout_ms=500, quiet_ms=200)
        return seen

    async def signal(self, name: str) -> None:
        """Send a signal to the office, inside the desktop."""
        await self("launch", argv=["pkill", f"-{name}", "-x", "soffice.bin"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def calc() -> AsyncIterator[Calc]:
    async with booted() as made:
        guest = Calc(*made)
        await guest("write_file", path=BOOK, data=make_xlsx({"first": TABLE, "info": TABLE}))
        await guest.open(f"{guest.home}/{BOOK}")
        yield guest


async def test_a_link_out_of_home_is_not_followed(calc: Calc) -> None:
    await calc("launch", argv=["ln", "-s", "/tmp", "Documents/out"])
    await calc("settle")
    assert "outside the home folder" in await calc.tool("export_to_pdf", file_path="~/Documents/out/x.pdf")


async def test_an_office_that_hangs_or_dies_costs_a_call_its_deadline(calc: Calc) -> None:
    await calc.signal("STOP")
    await calc("settle", timeout_ms=500)
    first = await calc("info")
    assert first.startswith("not known: ")
    started = time.monotonic()
    assert "LibreOffice has been busy with" in await calc.tool("get_workbook_info")
    assert time.monotonic() - started < 12
    assert "LibreOffice has been busy with" in await calc.tool("get_workbook_info")
    assert await calc("ping") == "pong"
    assert time.monotonic() - started < 13
    await calc.signal("CONT")
    await calc("settle", timeout_ms=3000, quiet_ms=200)
    assert "sheets: 'first'" in await calc.tool("get_workbook_info")
    await calc.signal("KILL")
    await calc("settle", timeout_ms=3000, quiet_ms=200)
    assert "LibreOffice is not running" in await calc.tool("get_workbook_info")
    assert await calc("ping") == "pong"
    await calc("write_file", path="Documents/again.xlsx", data=make_xlsx({"new": (("a", 1),)}))
    await calc.open("Documents/again.xlsx")
    assert "'new'" in await calc.tool("get_workbook_info")


async def test_a_dialog_does_not_stop_the_functions(calc: Calc) -> None:
    await calc("hotkey", keys=["ctrl", "1"])
    await calc("wait_window", title="Format Cells", timeout_ms=10_000)
    assert await calc.tool("set_cell_value", cell="A2", value="plum") == "A2 = plum"
    await calc("hotkey", keys=["Escape"])
    await calc("settle", timeout_ms=3000)
    assert "2: plum" in (await calc.shown("2: plum")).info


@pytest.mark.proof
async def test_an_office_ends_well_after_calls(calc: Calc) -> None:
    await calc.signal("KILL")
    await calc("settle", timeout_ms=3000, quiet_ms=200)
    await calc("write_file", path="start.sh", data=b"soffice --norestore --nologo --calc; echo $? > ended\n")
    await calc("launch", argv=["sh", "start.sh"])
    await calc("wait_window", title="Untitled", timeout_ms=20_000)
    await calc("settle", timeout_ms=5000, quiet_ms=200)
    assert "used: A1" in await calc.tool("get_workbook_info")
    await calc("hotkey", keys=["ctrl", "q"])
    status = b""
    for _ in range(200):  # it takes a while on a busy machine
        await calc("settle", timeout_ms=500, quiet_ms=200)
        with contextlib.suppress(GuestRefused):  # no such file yet
            status = bytes(await calc("read_file", path="ended"))
        if status.endswith(b"\n"):
            break
    assert status == b"0\n"
    assert "LibreOffice is not running" in await calc.tool("get_workbook_info")
