"""How many desktops one machine holds at once, what each takes, and whether all of them still answer.

Invariant: a boot begins only while the machine has the memory for it, so measuring never ends in the kernel's killing.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable

import msgspec
import psutil

from actors.desktop.config import SandboxConfig, ScreenConfig
from actors.desktop.link import LinkDown
from actors.desktop.provider import DesktopSpec
from actors.desktop.providers.sandbox import cgroups
from actors.desktop.providers.sandbox.provider import SandboxProvider
from actors.desktop.providers.sandbox.shares import fitted, free
from actors.errors import DesktopFault, GuestRefused
from runtime.errors import ConfigError
from tests.bench import stage
from tests.bench.actions import members_of
from tests.bench.report import median

BOOTS_AT_ONCE = 2
ROUGHLY_BYTES = {True: 60 << 20, False: 150 << 20}  # of one desktop, light or not: refuses what can't fit
RESERVE_BYTES = 1 << 30  # stays free for everything else
IDLE_S = 10.0
FILES_EACH = 16  # descriptors of one desktop in this process, amply


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Desktops held at once, an application open in each."""

    app: str
    wanted: int
    held: int  # booted and prepared
    answering: int  # to a ping and an observation, when all were up
    ready_s: float  # until the last one was up
    pss_median_bytes: int
    pss_max_bytes: int
    pss_all_bytes: int
    charged_median_bytes: int  # by the control group: processes, files in memory
    charged_max_bytes: int
    taken_bytes: int  # how much less the machine had available afterwards
    host_bytes: int  # resident memory of this process, which holds all connections
    idle_cpu: float  # of all guests, as a share of one core
    lost: list[str]  # why those that are missing are


def refuse_unless_fits(app: str, count: int) -> None:
    """Raise ConfigError when the machine's memory or limits can't hold `count` desktops with `app`."""
    available = psutil.virtual_memory().available
    need = count * ROUGHLY_BYTES[app in stage.LIGHT] + RESERVE_BYTES
    if need > available:
        most = max(0, (available - RESERVE_BYTES) // ROUGHLY_BYTES[app in stage.LIGHT])
        raise ConfigError(
            f"--hold {count}: {count} desktops with {app} need about {need >> 20} MiB, {available >> 20} MiB are free;"
            f" at most {most}"
        )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, FILES_EACH * count + 256)
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise ConfigError(f"--hold {count}: needs about {wanted} open files, the limit is {hard} (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def hold(made: SandboxProvider, app: str, count: int, said: Callable[[str], None]) -> Held:
    """Boot `count` desktops, hold them, look at them, and throw them away. Raises ConfigError when they don't fit."""
    refuse_unless_fits(app, count)
    limits = fitted(SandboxConfig(), count, 0, free(), key="--hold")
    before = psutil.virtual_memory().available
    gate = asyncio.Semaphore(BOOTS_AT_ONCE)
    up: list[stage.Booted] = []
    ready: list[str] = []  # names
    lost: list[str] = []
    began = time.monotonic()

    async def one() -> None:
        async with gate:
            if psutil.virtual_memory().available < RESERVE_BYTES:
                lost.append("the machine's memory ran low")
                return
            try:
                booted = await stage.boot(made, DesktopSpec.of(limits, ScreenConfig()))
                up.append(booted)
                await stage.prepare(booted, app)
                ready.append(booted.desktop.name)
            except (DesktopFault, LinkDown, GuestRefused) as error:
                lost.append(str(error)[:200])
                return
        if len(ready) % max(1, count // 8) == 0:
            said(f"{len(ready)} of {count} desktops with {app} up after {time.monotonic() - began:.0f} s")

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(one())
        ready_s = time.monotonic() - began
        said(f"{len(ready)} up; watching them idle for {IDLE_S:g} s")
        cpu_before, watched = _cpu_s(up), time.monotonic()
        await asyncio.sleep(IDLE_S)
        idle = (_cpu_s(up) - cpu_before) / (time.monotonic() - watched)
        pss, charged = await asyncio.to_thread(_memory, up)
        taken = before - psutil.virtual_memory().available
        said("asking each for a ping and an observation")
        answers = await asyncio.gather(*(_answers(booted, gate) for booted in up))
        lost += [answer for answer in answers if answer]
    finally:
        said("throwing them away")
        for booted in up:
            await booted.link.close()
            await made.destroy(booted.desktop)
    return Held(
        app=app,
        wanted=count,
        held=len(ready),
        answering=sum(not answer for answer in answers),
        ready_s=ready_s,
        pss_median_bytes=int(median(pss) or 0),
        pss_max_bytes=max(pss, default=0),
        pss_all_bytes=sum(pss),
        charged_median_bytes=int(median(charged) or 0),
        charged_max_bytes=max(charged, default=0),
        taken_bytes=taken,
        host_bytes=psutil.Process().memory_info().rss,
        idle_cpu=idle,
        lost=lost[:10],
    )


async def _answers(booted: stage.Booted, gate: asyncio.Semaphore) -> str:
    """Empty, or why it does not."""
    async with gate:
        try:
            await booted.link.call("ping", timeout_s=stage.CALL_S)
            await stage.observe(booted.link)
        except (LinkDown, GuestRefused) as error:
            return str(error)[:200]
    return ""


def _cpu_s(up: list[stage.Booted]) -> float:
    return sum(cgroups.cpu_s(one.desktop.outside.cgroups) for one in up if one.desktop.outside is not None)


def _memory(up: list[stage.Booted]) -> tuple[list[int], list[int]]:
    seen = [members_of(booted) for booted in up]
    return [one.pss_bytes() for one in seen], [one.charged_bytes() for one in seen]
