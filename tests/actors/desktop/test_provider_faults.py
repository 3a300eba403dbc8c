"""Providers of this machine under the same faults: at each verb an answer or a fault in time, and nothing left."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from actors.desktop.config import ContainerConfig, ProviderConfig, QemuConfig, SandboxConfig
from actors.desktop.files.read_home import ReadLimits
from actors.desktop.link import GuestLink
from actors.desktop.pool.pool import open_provider
from actors.desktop.provider import Desktop, DesktopSpec
from actors.desktop.providers.container import LABEL
from actors.desktop.providers.qemu import machine
from actors.desktop.providers.qemu import provider as qemu_module
from actors.desktop.providers.sandbox.provider import SandboxProvider
from actors.errors import DesktopFault
from apis.tasks.verify.verify import WantedFile

ROOT = os.geteuid() == 0
VERB_S, BOOT_S = 60.0, 300.0
PODMAN = pytest.mark.skipif(not shutil.which("podman") or not ROOT, reason="make containers; it needs root")
lacking = not shutil.which(machine.PROGRAM) or not Path(QemuConfig().image_folder, "disk.qcow2").exists()
VM = (
    pytest.mark.proof,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(lacking, reason="make vm-image has not made an image here"),
)
KINDS = [
    pytest.param("sandbox"),
    pytest.param("container", marks=PODMAN),
    pytest.param("qemu", marks=VM),
]
pytestmark = [pytest.mark.desktop, pytest.mark.parametrize("kind", KINDS)]


def config_of(kind: str, state_dir: str) -> ProviderConfig:
    if kind == "container":
        return ContainerConfig(state_dir=state_dir, runtime="runc" if shutil.which("runc") else "")
    return QemuConfig(state_dir=state_dir) if kind == "qemu" else SandboxConfig(state_dir=state_dir)


@pytest.fixture
async def provider(kind: str, state_dir: str) -> AsyncIterator[SandboxProvider]:
    made = await open_provider(config_of(kind, state_dir), "faults")
    assert isinstance(made, SandboxProvider)
    yield made
    async with asyncio.timeout(VERB_S):
        await made.close()
    assert left(state_dir) == []


def left(state_dir: str) -> list[str]:
    """Processes, mounts and containers that carry the state folder's name or that of an owner in it."""
    traces = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # it ended
            if state_dir.encode() in (line := entry.read_bytes()):
                traces.append(line.decode("utf-8", "replace"))
    traces += [line for line in Path("/proc/self/mounts").read_text().splitlines() if state_dir in line]
    if shutil.which("podman"):
        names = subprocess.run(
            ["podman", "ps", "-aq", "--filter", f"label={LABEL}={state_dir}"], capture_output=True, check=False
        )
        traces += names.stdout.decode().split()
    return traces


def spec_of(kind: str) -> DesktopSpec:
    """A small desktop, for other programs have desktops on the same machine; a machine is as large as its image."""
    return DesktopSpec() if kind == "qemu" else DesktopSpec(memory_bytes=400 << 20)


def groups_of(desktop: Desktop) -> list[str]:
    assert desktop.outside is not None
    return [folder for folder in desktop.outside.cgroups.values() if Path(folder).exists()]


async def read(provider: SandboxProvider, desktop: Desktop) -> object:
    return await provider.read_home(desktop, [WantedFile(".bashrc")], ReadLimits())


async def close(provider: SandboxProvider, _: Desktop) -> object:
    return await provider.close()


VERBS: dict[str, Callable[[SandboxProvider, Desktop], Awaitable[object]]] = {
    "probe": lambda provider, desktop: provider.probe(desktop),
    "freeze": lambda provider, desktop: provider.freeze(desktop),
    "read_home": read,
    "destroy": lambda provider, desktop: provider.destroy(desktop),
    "close": close,
}


async def answer(provider: SandboxProvider, desktop: Desktop, verb: str) -> object:
    """What a verb returns in time, or its fault."""
    async with asyncio.timeout(VERB_S):
        try:
            return await VERBS[verb](provider, desktop)
        except DesktopFault as fault:
            return fault


async def test_one_that_is_killed_is_seen_to_be_dead_at_each_verb(kind: str, provider: SandboxProvider) -> None:
    desktop = await provider.boot(spec_of(kind))
    box = provider._sandboxes[desktop.name]
    assert box.init is not None
    assert box.process is not None
    os.kill(box.init.pid, signal.SIGKILL)
    await box.init.ended(VERB_S)
    health = await provider.probe(desktop)
    assert not health.alive
    assert isinstance(await answer(provider, desktop, "freeze"), DesktopFault)
    await answer(provider, desktop, "read_home")
    await provider.destroy(desktop)
    for verb in ("freeze", "read_home"):
        assert isinstance(await answer(provider, desktop, verb), DesktopFault), verb
    assert await answer(provider, desktop, "destroy") is None
    assert groups_of(desktop) == []


async def test_one_that_hangs_answers_or_is_a_fault_and_goes(
    kind: str, provider: SandboxProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qemu_module, "FLUSH_S", 2.0)
    desktop = await provider.boot(spec_of(kind))
    box = provider._sandboxes[desktop.name]
    assert box.init is not None
    os.kill(box.init.pid, signal.SIGSTOP)
    assert (await provider.probe(desktop)).alive
    for verb in ("read_home", "freeze"):
        await answer(provider, desktop, verb)
    await provider.destroy(desktop)
    assert not (await provider.probe(desktop)).alive
    assert groups_of(desktop) == []


async def test_one_whose_connection_is_cut_is_still_read(kind: str, provider: SandboxProvider) -> None:
    desktop = await provider.boot(spec_of(kind))
    link = await GuestLink.open(desktop, timeout_s=BOOT_S)
    await link.call("write_file", path="plum.txt", data=b"before", timeout_s=VERB_S)
    calling = asyncio.create_task(link.call("settle", timeout_ms=20_000, quiet_ms=19_000, timeout_s=60))
    await asyncio.sleep(0.1)
    await link.close()
    await asyncio.gather(calling, return_exceptions=True)
    assert (await provider.probe(desktop)).alive
    await provider.freeze(desktop)
    (seen,) = await provider.read_home(desktop, [WantedFile("plum.txt")], ReadLimits())
    assert seen.data == b"before"


async def test_one_whose_disk_is_full_is_still_read(kind: str, provider: SandboxProvider) -> None:
    desktop = await provider.boot(msgspec.structs.replace(spec_of(kind), disk_bytes=64 << 20))
    link = await GuestLink.open(desktop, timeout_s=BOOT_S)
    await link.call("write_file", path="plum.txt", data=b"before", timeout_s=VERB_S)
    fill = ["sh", "-c", "head -c 300M /dev/zero >full; sync; echo $?"]
    await link.call("run", argv=fill, timeout_ms=110_000, timeout_s=BOOT_S)
    await provider.freeze(desktop)
    (kept, full) = await provider.read_home(desktop, [WantedFile("plum.txt"), WantedFile("full")], ReadLimits())
    assert kept.data == b"before"
    assert full.refusal == "too_big"
    await link.close()


@pytest.fixture
def small_disk(state_dir: str) -> Iterator[str]:
    """A folder for state on a small disk, where mounting is allowed."""
    small = Path(state_dir, "small")
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=48m,mode=755", "none", str(small)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        small.rmdir()
        pytest.skip("mounting is not allowed here")
    yield str(small)
    subprocess.run(["umount", str(small)], check=True)
    small.rmdir()


def fill(folder: str) -> None:
    with contextlib.suppress(OSError), Path(folder, "filler").open("wb") as file:
        while file.write(bytes(4096)):
            file.flush()


async def test_a_host_without_room_refuses_a_boot_and_keeps_nothing(kind: str, small_disk: str) -> None:
    provider = await open_provider(config_of(kind, small_disk), "full")
    fill(small_disk)
    with contextlib.suppress(DesktopFault):  # what it needs of the host's disk may be there already
        await provider.boot(spec_of(kind))
    await provider.close()
    assert [line for line in left(small_disk) if f" {small_disk} " not in line] == []


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.3, 1.0])
async def test_a_boot_that_is_killed_or_cancelled_leaves_nothing(
    kind: str, provider: SandboxProvider, after_s: float
) -> None:
    boot = asyncio.create_task(provider.boot(spec_of(kind)))
    async with asyncio.timeout(VERB_S):
        while not any(box.process for box in provider._sandboxes.values()) and not boot.done():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    await asyncio.sleep(after_s)
    (box,) = provider._sandboxes.values()
    assert box.process is not None
    with contextlib.suppress(ProcessLookupError):
        os.kill(box.process.pid, signal.SIGKILL)
    (ended,) = await asyncio.gather(boot, return_exceptions=True)
    if isinstance(ended, Desktop):  # it was up already
        await provider.destroy(ended)
    else:
        assert isinstance(ended, DesktopFault)
    assert provider._sandboxes == {}
    again = asyncio.create_task(provider.boot(spec_of(kind)))
    await asyncio.sleep(after_s)
    again.cancel()
    await asyncio.gather(again, return_exceptions=True)


OWNER = """
import asyncio, os, signal, sys
sys.path.insert(0, {root!r})
from actors.desktop.pool.pool import open_provider
from tests.actors.desktop.test_provider_faults import config_of, spec_of

async def main():
    provider = await open_provider(config_of({kind!r}, {state_dir!r}), "owner")
    boot = asyncio.create_task(provider.boot(spec_of({kind!r})))
    if {during}:
        while not any(box.process for box in provider._sandboxes.values()):
            await asyncio.sleep(0.005)
    else:
        await boot
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.parametrize("during", [False, True], ids=["with a desktop", "while one boots"])
async def test_what_an_owner_leaves_that_is_killed_is_removed(kind: str, state_dir: str, during: bool) -> None:
    program = OWNER.format(root=os.getcwd(), kind=kind, state_dir=state_dir, during=during)
    owner = await asyncio.create_subprocess_exec(".venv/bin/python", "-c", program)
    async with asyncio.timeout(BOOT_S):
        assert await owner.wait() == -signal.SIGKILL
    provider = await open_provider(config_of(kind, state_dir), "next")
    await provider.close()
    assert left(state_dir) == []
    assert not [name for name in os.listdir(state_dir) if "owner" in name]
