"""All providers under the same faults: at each verb an answer or a fault in time, and nothing left.

What lies elsewhere is played on stand-ins: machines of bubblewrap, and a service that enforces the E2B protocol.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import msgspec
import pytest
from fault_worlds import KINDS, World, fill, small_disk, world_of

from actors.desktop.files.read_home import ReadLimits
from actors.desktop.link import GuestLink
from actors.desktop.provider import Desktop, Provider
from actors.desktop.providers import ssh
from actors.desktop.providers.qemu import provider as qemu_module
from actors.errors import DesktopFault
from apis.tasks.verify.verify import WantedFile
from tests.heard import until

VERB_S, BOOT_S = 60.0, 300.0
pytestmark = [pytest.mark.desktop, pytest.mark.parametrize("kind", KINDS)]


@pytest.fixture
async def world(kind: str, state_dir: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    with contextlib.ExitStack() as undone:
        disk = Path(state_dir)
        if kind in ("ssh", "osworld", "container elsewhere", "e2b"):  # those of this machine limit each desktop's disk
            disk = disk / ".lock"
            undone.enter_context(small_disk(disk))
        async with world_of(kind, disk, monkeypatch) as world:
            yield world


async def nothing_left(world: World) -> None:
    """Wait until nothing shows of desktops; a failure says what did."""
    seen: list[str] = []

    def none() -> bool:
        seen[:] = world.left()
        return not seen

    try:
        await until(none)
    except AssertionError:
        assert seen == []


@pytest.fixture
async def provider(world: World) -> AsyncIterator[Provider]:
    made = await world.open("faults")
    yield made
    async with asyncio.timeout(VERB_S):
        await made.close()
    await nothing_left(world)


def groups_of(desktop: Desktop) -> list[str]:
    return [] if desktop.outside is None else [one for one in desktop.outside.cgroups.values() if Path(one).exists()]


async def read(provider: Provider, desktop: Desktop) -> object:
    return await provider.read_home(desktop, [WantedFile(".bashrc")], ReadLimits())


async def close(provider: Provider, _: Desktop) -> object:
    return await provider.close()


VERBS: dict[str, Callable[[Provider, Desktop], Awaitable[object]]] = {
    "probe": lambda provider, desktop: provider.probe(desktop),
    "freeze": lambda provider, desktop: provider.freeze(desktop),
    "read_home": read,
    "destroy": lambda provider, desktop: provider.destroy(desktop),
    "close": close,
}


async def answer(provider: Provider, desktop: Desktop, verb: str) -> object:
    """What a verb returns in time, or its fault."""
    async with asyncio.timeout(VERB_S):
        try:
            return await VERBS[verb](provider, desktop)
        except DesktopFault as fault:
            return fault


async def dead(provider: Provider, desktop: Desktop) -> bool:
    return not (await provider.probe(desktop)).alive


async def test_one_that_is_killed_is_seen_to_be_dead_at_each_verb(world: World, provider: Provider) -> None:
    desktop = await provider.boot(world.spec)
    os.kill(world.held_by(provider, desktop), signal.SIGKILL)
    await until(lambda: dead(provider, desktop))
    assert isinstance(await answer(provider, desktop, "freeze"), DesktopFault)
    await answer(provider, desktop, "read_home")
    await provider.destroy(desktop)
    for verb in ("freeze", "read_home"):
        assert isinstance(await answer(provider, desktop, verb), DesktopFault), verb
    assert await answer(provider, desktop, "destroy") is None
    assert groups_of(desktop) == []


async def test_one_that_hangs_answers_or_is_a_fault_and_goes(
    world: World, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, limit in ((qemu_module, "FLUSH_S"), (ssh, "FREEZE_S"), (ssh, "END_S")):
        monkeypatch.setattr(module, limit, 2.0)
    desktop = await provider.boot(world.spec)
    os.kill(world.held_by(provider, desktop), signal.SIGSTOP)
    assert (await provider.probe(desktop)).alive
    for verb in ("read_home", "freeze"):
        await answer(provider, desktop, verb)
    await provider.destroy(desktop)
    assert await dead(provider, desktop)
    assert groups_of(desktop) == []


async def test_one_whose_connection_is_cut_is_still_read(world: World, provider: Provider) -> None:
    desktop = await provider.boot(world.spec)
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


async def test_one_whose_disk_is_full_is_still_read(world: World, provider: Provider) -> None:
    desktop = await provider.boot(msgspec.structs.replace(world.spec, disk_bytes=64 << 20))
    link = await GuestLink.open(desktop, timeout_s=BOOT_S)
    await link.call("write_file", path="plum.txt", data=b"before", timeout_s=VERB_S)
    filling = ["sh", "-c", "head -c 300M /dev/zero >full; sync; echo $?"]
    await link.call("run", argv=filling, timeout_ms=110_000, timeout_s=BOOT_S)
    await provider.freeze(desktop)
    (kept, full) = await provider.read_home(desktop, [WantedFile("plum.txt"), WantedFile("full")], ReadLimits())
    assert kept.data == b"before"
    assert full.refusal == "too_big"
    await link.close()


async def test_a_disk_without_room_refuses_a_boot_and_keeps_nothing(
    kind: str, state_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(Path(state_dir, "small")) as mounted:
        if not mounted:
            pytest.skip("mounting is not allowed here")
        async with world_of(kind, Path(state_dir, "small"), monkeypatch) as world:
            provider = await world.open("full")
            fill(world.disk)
            with contextlib.suppress(DesktopFault):  # what it needs of the disk may be there already
                await provider.boot(world.spec)
            await provider.close()
            await nothing_left(world)


@pytest.mark.parametrize("after_s", [0.0, 0.05, 0.3, 1.0])
async def test_a_boot_that_is_killed_or_cancelled_leaves_nothing(
    world: World, provider: Provider, after_s: float
) -> None:
    boot = asyncio.create_task(provider.boot(world.spec))
    async with asyncio.timeout(VERB_S):
        while not world.starting(provider) and not boot.done():  # noqa: ASYNC110 - another process's
            await asyncio.sleep(0.005)
    await asyncio.sleep(after_s)
    if pid := world.starting(provider):  # it may be over; 0 would be this process's own group
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    (ended,) = await asyncio.gather(boot, return_exceptions=True)
    if isinstance(ended, Desktop):  # it was up already
        await provider.destroy(ended)
    else:
        assert isinstance(ended, DesktopFault)
    assert world.known(provider) == 0
    again = asyncio.create_task(provider.boot(world.spec))
    await asyncio.sleep(after_s)
    again.cancel()
    await asyncio.gather(again, return_exceptions=True)


OWNER = """
import asyncio, sys
import msgspec
from actors.desktop.config import ProviderConfig
from actors.desktop.pool.pool import open_provider
from actors.desktop.provider import DesktopSpec

async def main():
    config, spec = sys.stdin.readline(), sys.stdin.readline()
    provider = await open_provider(msgspec.json.decode(config, type=ProviderConfig), "owner")
    desktop = await provider.boot(msgspec.json.decode(spec, type=DesktopSpec))
    if sys.argv[1] == "frozen":
        await provider.freeze(desktop)
    print("up", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.mark.parametrize("desktop", ["up", "booting", "frozen"])
async def test_what_an_owner_leaves_that_is_killed_is_removed(world: World, desktop: str) -> None:
    owner = await asyncio.create_subprocess_exec(".venv/bin/python", "-c", OWNER, desktop, stdin=-1, stdout=-1)
    assert owner.stdin is not None
    assert owner.stdout is not None
    owner.stdin.write(msgspec.json.encode(world.config) + b"\n" + msgspec.json.encode(world.spec) + b"\n")
    if desktop == "booting":
        await until(world.left)
    else:
        async with asyncio.timeout(BOOT_S):
            assert await owner.stdout.readline() == b"up\n"
    owner.kill()
    await owner.wait()
    provider = await world.open("next")
    await provider.close()
    await nothing_left(world)
    assert not [name for name in os.listdir(world.disk) if "owner" in name]
