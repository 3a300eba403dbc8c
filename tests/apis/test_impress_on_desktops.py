"""Impress in a desktop: which of its threads carries calls out, and what is said when it ends under one."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import AsyncIterator

import msgspec
import pytest
import pytest_asyncio

from actors.cluster.checks.desk import RealDesk, opened, provider
from actors.desktop import link
from actors.desktop.config import SandboxConfig
from apis.apps.check.case import tables
from tests.folders import desk_folder

pytestmark = [
    pytest.mark.desktop,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed"),
]

IMPRESS = tables()["libreoffice_impress"]
CALLS = 5000  # more than there is time for
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


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def desk() -> AsyncIterator[RealDesk]:
    """Impress, started without a file."""
    started = msgspec.structs.replace(IMPRESS, files={}, opens=[], title="LibreOffice Impress")
    with desk_folder() as folder:
        async with provider(SandboxConfig(state_dir=folder)) as made, opened(made, started) as found:
            yield found


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
