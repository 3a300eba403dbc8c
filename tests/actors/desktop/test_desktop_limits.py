"""What a program on a desktop may have of the machine, tried from inside of one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from conftest import Guest

from actors.desktop.provider import DesktopSpec
from actors.desktop.providers.sandbox import cgroups, shares
from actors.desktop.providers.sandbox.command import MESSAGES_BYTES
from actors.desktop.providers.sandbox.provider import SandboxProvider
from actors.errors import DesktopFault

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount limited file systems")

LOOK = r"""
import json, os, pty, resource, socket
seen = {"mounts": [], "limits": {}}
for line in open("/proc/self/mounts"):
    _, at, kind, options, *_ = line.split()
    if not os.path.isdir(at):
        continue
    probe = os.path.join(at, ".probe")
    try:
        open(probe, "w").close()
        os.remove(probe)
        writable = True
    except OSError:
        writable = False
    seen["mounts"].append([at, kind, options.split(","), writable])
for name in ("NOFILE", "CORE", "RTPRIO", "NICE", "MSGQUEUE"):
    seen["limits"][name] = resource.getrlimit(getattr(resource, "RLIMIT_" + name))
held = []
try:
    while True:
        held.append(pty.openpty())
except OSError as error:
    seen["terminals"] = [len(held), error.errno]
for pair in held:
    os.close(pair[0]), os.close(pair[1])
held = []
try:
    while True:
        held.append(os.dup(0))
except OSError as error:
    seen["files"] = [len(held), error.errno]
for fd in held:
    os.close(fd)
json.dump(seen, open("seen.part", "w"))
os.rename("seen.part", "seen.json")
"""


async def test_nothing_that_a_guest_may_fill_or_hold_is_without_a_bound(guest: Guest) -> None:
    await guest("launch", argv=["python3", "-c", LOOK])
    assert await guest("settle", timeout_ms=15_000)
    seen = json.loads(await guest.text("seen.json") or "{}")
    spec = DesktopSpec()
    unbounded = [
        (at, kind, options)
        for at, kind, options, writable in seen["mounts"]
        if writable and not any(option.startswith("size=") for option in options)
    ]
    assert unbounded == []
    sizes = {at: int(o[5:-1]) << 10 for at, _, options, _ in seen["mounts"] for o in options if o.startswith("size=")}
    assert {at for at, size in sizes.items() if size > spec.disk_bytes} == set()
    (terminals,) = [options for at, _, options, _ in seen["mounts"] if at == "/dev/pts"][-1:]
    assert f"max={spec.terminals}" in terminals
    assert seen["terminals"][0] <= spec.terminals
    assert seen["files"] == [pytest.approx(spec.open_files, abs=20), 24]  # EMFILE
    assert seen["limits"] == {
        "NOFILE": [spec.open_files] * 2, "CORE": [1, 1], "RTPRIO": [0, 0], "NICE": [0, 0],
        "MSGQUEUE": [MESSAGES_BYTES] * 2,
    }  # fmt: skip


async def test_limits_lie_in_the_group_of_all_desktops(guest: Guest) -> None:
    outside = guest.desktop.outside
    assert outside is not None
    spec, room, held = DesktopSpec(), shares.room(), cgroups.held()
    everyone = {name: Path(folder).parent for name, folder in outside.cgroups.items()}
    for name in cgroups.LIMITED:
        if name in everyone:
            assert everyone[name].name == cgroups.ALL
    if "memory" in everyone:
        assert cgroups.limit_of(everyone["memory"], "memory") == room.memory_mib << 20
        assert spec.memory_bytes <= held.memory_bytes <= room.memory_mib << 20
    if "pids" in everyone:
        assert cgroups.limit_of(everyone["pids"], "pids") == room.processes
        assert spec.processes <= held.processes <= room.processes


async def test_a_desktop_waits_for_those_that_leave_and_is_refused_where_others_stay(
    sandbox: SandboxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "memory" in cgroups.lacking():
        pytest.skip("no cgroup limits memory here")
    monkeypatch.setattr(cgroups, "ALL", f"computerrl-test-{os.getpid()}")  # apart from all others of this machine
    spec = DesktopSpec(memory_bytes=256 << 20)
    room = shares.Room(memory_mib=300, processes=9999, open_files=1 << 20, terminals=3000)
    monkeypatch.setattr(shares, "room", lambda: room)
    first = await sandbox.boot(spec)
    with pytest.raises(DesktopFault, match=r"^sandbox_refused: memory: .* desktops of other runs have to end$"):
        await sandbox.boot(spec)
    assert cgroups.held().memory_bytes == spec.memory_bytes
    leaving = sandbox._discard(sandbox._sandboxes[first.name])
    second = await sandbox.boot(spec)
    assert leaving.done()
    await sandbox.destroy(second)
    assert cgroups.held() == (0, 0)
