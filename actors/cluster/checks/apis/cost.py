"""What a call costs in processor time, beside the same call by an interpreter that is started for it alone.

Invariant: one control group, a desktop's, counts both sides in one run, LibreOffice and the SSH server included. Both
sides run the same functions on the same workbook and answer the same.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Mapping
from typing import Any

from actors.cluster.checks.apis.desk import CALL_S, RealDesk
from actors.cluster.checks.apis.targets import Target
from actors.desktop import link
from actors.desktop.provider import Desktop
from actors.desktop.providers.sandbox import cgroups
from apis.apps.check.case import NotSo

APP = "libreoffice_calc"
TIMES_LEAST = 50.0
CALLS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("get_column_data", {"column_name": "B"}),
    ("set_cell_value", {"cell": "D2", "value": "=B2*C2"}),
    ("get_workbook_info", {}),
)
FRESH_MOST = 5  # of these, a few are enough: one costs a hundred calls
# What a desktop where nothing is kept alive for calls would run for each: the same modules, in a new process that makes
# its own connection and asks the office for one object after the other.
FRESH = """
import json, os, sys
code, run, name, arguments = sys.argv[1:]
sys.path.insert(0, os.path.dirname(code))
os.environ.update(json.load(open(run + "/session.json")))
from guest.office.office import CONNECT_S, Office
from guest.office.inside import Inside
sys.stdout.write(Inside(Office().reached(CONNECT_S)).done("tool", "guest.calc.functions", name, json.loads(arguments)))
"""


async def measure(desk: RealDesk, repeats: int) -> list[Target]:
    """A target per function of `CALLS`. Raises NotSo and LinkDown."""
    folders = counted(desk)
    await desk.tool("switch_active_sheet", sheet_name="after")
    return [await _one(desk, folders, name, arguments, repeats) for name, arguments in CALLS]


def counted(desk: RealDesk) -> dict[str, str]:
    """The control groups that tell the desktop's processor time. Raises NotSo where they don't."""
    folders = desk.desktop.outside.cgroups if desk.desktop.outside is not None else {}
    if not cgroups.cpu_s(folders):
        raise NotSo("the processor time of desktops can't be counted here: their control groups are not writable")
    return folders


def unmeasured() -> list[Target]:
    """The same targets without a figure."""
    return [_target(name, None) for name, _ in CALLS]


async def _one(
    desk: RealDesk, folders: dict[str, str], name: str, arguments: Mapping[str, Any], repeats: int
) -> Target:
    rounds = min(FRESH_MOST, repeats)
    each = 5 * repeats // rounds  # calls of a round
    call_s = fresh_s = 0.0
    wanted = await desk.tool(name, **arguments)
    async with asyncio.timeout(2 * rounds * CALL_S):
        connection = await link.connect(desk.desktop)
        try:
            command = _command(desk.desktop, name, arguments)
            for _ in range(rounds):  # in turns, so that an hour in which the machine is slow makes both dearer
                await desk.call("settle", timeout_ms=5000, quiet_ms=200)
                before_s = cgroups.cpu_s(folders)
                for _ in range(each):
                    await desk.tool(name, **arguments)
                call_s += cgroups.cpu_s(folders) - before_s
                await desk.call("settle", timeout_ms=5000, quiet_ms=200)
                before_s = cgroups.cpu_s(folders)
                done = await connection.run(command)
                fresh_s += cgroups.cpu_s(folders) - before_s
                if done.stdout != wanted:
                    raise NotSo(f"a fresh interpreter says {str(done.stdout or done.stderr)[-300:]!r}, not {wanted!r}")
        finally:
            connection.close()
            await connection.wait_closed()
    call_ms, fresh_ms = 1e3 * call_s / (rounds * each), 1e3 * fresh_s / rounds
    label = f"{name}: {call_ms:.2f} ms of CPU a call, {fresh_ms:.0f} by a fresh interpreter"
    return _target(label, fresh_ms / call_ms)


def _target(name: str, measured: float | None) -> Target:
    return Target(name=name, measured=measured, bound=TIMES_LEAST, unit="times", at_least=True)


def _command(desktop: Desktop, name: str, arguments: Mapping[str, Any]) -> str:
    python, _, code, _, _, run = desktop.agent
    return shlex.join([python, "-I", "-c", FRESH, code, run, name, json.dumps(arguments)])
