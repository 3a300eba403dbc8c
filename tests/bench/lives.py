"""What a boot and an episode cost in processor time, model and learner left out.

Invariant: an episode's time is all of it: the desktop's boot, its guest, this process and its children for the
verifier. Desktops come one after the other, so no neighbour is counted.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable

import msgspec

from actors.cluster.config import models
from actors.cluster.config.suggest import hint
from actors.desktop.config import PoolConfig, SandboxConfig, screen_of
from actors.desktop.player import Play, Player, demonstrated
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.provider import DesktopSpec
from actors.desktop.providers.sandbox.provider import SandboxProvider
from apis.tasks import registry as tasks
from policy.tokenizer import Tokenizer
from runtime.errors import ConfigError
from tests.bench import stage
from tests.bench.reference import Reference, ReferenceRound, middle
from tests.bench.report import median, percentile

# By kind of episode: the applications of which a family needs one, beside light ones.
OFFICE = frozenset({"libreoffice_calc", "libreoffice_writer", "libreoffice_impress"})
EPISODES = {
    "light": stage.LIGHT,
    "Calc": frozenset({"libreoffice_calc"}),
    "office": OFFICE,
    "Chromium": frozenset({"google_chrome"}),
    "VLC": frozenset({"vlc"}),
}

Said = Callable[[str], None]


class Boots(msgspec.Struct, frozen=True, kw_only=True):
    """Boots one after the other, until the agent said that it is ready."""

    n: int
    guest_cpu_s: float | None  # median
    host_cpu_s: float | None  # median, of this process: keys, folders, the connection
    cpu_s: float | None  # median of both together
    wall_p50_s: float | None
    wall_p95_s: float | None
    reference: ReferenceRound


class OracleEpisodes(msgspec.Struct, frozen=True, kw_only=True):
    """Oracle episodes one after the other."""

    kind: str
    screen: str  # WIDTHxHEIGHT in pixels
    n: int
    successes: int
    faults: int
    families: list[str]
    boot_cpu_s: float | None  # median, guest
    play_cpu_s: float | None  # median, guest: set-up to verified
    host_cpu_s: float | None  # mean: this process, its helpers for the verifier, the sandbox's own start
    cpu_s: float | None  # mean of everything
    wall_p50_s: float | None  # from a leased desktop to the outcome
    steps: float  # mean
    reference: ReferenceRound


async def boots(made: SandboxProvider, count: int, reference: Reference, said: Said) -> Boots:
    """Boot and destroy `count` desktops."""
    said(f"{count} boots")
    guest, host, wall = [], [], []
    rounds = [await reference.round()]
    for _ in range(count):
        own = time.process_time()
        booted = await stage.boot(made)
        host.append(time.process_time() - own)
        wall.append(booted.wall_s)
        guest.append((await made.probe(booted.desktop)).cpu_s)
        await booted.link.close()
        await made.destroy(booted.desktop)
        rounds.append(await reference.round())
    both = [a + b for a, b in zip(guest, host, strict=True)]
    counted = _counted(guest)
    return Boots(
        n=count,
        guest_cpu_s=median(guest) if counted else None,
        host_cpu_s=median(host),
        cpu_s=median(both) if counted else None,
        wall_p50_s=median(wall),
        wall_p95_s=percentile(wall, 0.95),
        reference=middle(rounds),
    )


def kinds(wanted: str) -> list[str]:
    """The kinds of episodes in a comma-separated list. Raises ConfigError."""
    found = [name.strip() for name in wanted.split(",") if name.strip()]
    for name in found:
        if name not in EPISODES:
            raise ConfigError(f"--kinds {name}: no such kind of episodes; {hint(name, EPISODES)}")
    return found


def families(kind: str) -> list[str]:
    """The families that need an application of `kind` and, beside it, none but the office's and the light ones."""
    apps = EPISODES[kind]
    return [
        name
        for name, found in tasks.FAMILIES.items()
        if not apps.isdisjoint(found.apps) and (apps | stage.LIGHT | OFFICE).issuperset(found.apps)
        and (kind != "light" or stage.LIGHT.issuperset(found.apps))
    ]  # fmt: skip


async def episodes(
    sandbox: SandboxConfig, kind: str, screen: str, count: int, reference: Reference, *, said: Said
) -> OracleEpisodes:
    """Play `count` held-out instances of a kind's families in turns, each on a desktop of its own, one by one."""
    said(f"{count} {kind} episodes by oracle at {screen}")
    named, (width, height) = families(kind), screen_of(screen)
    tokenizer = Tokenizer.load(models.locate(""))
    plays: list[Play] = []
    rounds = [await reference.round()]
    made = await SandboxProvider.start(sandbox, f"bench-{os.getpid()}")
    began = _cpu_s()
    pool = DesktopPool(made, DesktopSpec(width=width, height=height), PoolConfig(warm_pool=0))
    try:
        for number in range(count):
            task = f"{named[number % len(named)]}/held-out/{number}"
            plays.append(await Player(pool).play(task, demonstrated(tokenizer), seed=number))
            rounds.append(await reference.round())
    finally:
        await pool.close()
    host = (_cpu_s() - began) / len(plays) if plays else None
    guests = [play.boot_cpu_s + play.cpu_s for play in plays]
    counted = _counted(guests)
    return OracleEpisodes(
        kind=kind,
        screen=screen,
        n=len(plays),
        successes=sum(play.success for play in plays),
        faults=sum(len(play.faults) for play in plays),
        families=named,
        boot_cpu_s=median([play.boot_cpu_s for play in plays]) if counted else None,
        play_cpu_s=median([play.cpu_s for play in plays]) if counted else None,
        host_cpu_s=host,
        cpu_s=host + sum(guests) / len(guests) if host is not None and counted else None,
        wall_p50_s=median([play.wall_s for play in plays]),
        steps=sum(len(play.steps) for play in plays) / max(1, len(plays)),
        reference=middle(rounds),
    )


def _counted(guest_cpu_s: list[float]) -> bool:
    """Whether anything counts what desktops use: where no control group can be made, nothing does, and none used 0."""
    return all(guest_cpu_s)


def _cpu_s() -> float:
    """Processor seconds of this process and of the children it waited for.

    What a sandbox's processes used is not in it: the kernel ends them together with their namespace and adds nothing.
    """
    mine, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return mine.ru_utime + mine.ru_stime + children.ru_utime + children.ru_stime
