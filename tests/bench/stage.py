"""Desktops to measure on, with an application open.

Everything is real and goes the way of an episode: the provider boots, the link calls, `apis.plans.action`
plans. A desktop that was booted is gone when the block ends.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import msgspec

from actors.cluster.config.suggest import hint
from actors.desktop.link import GuestLink
from actors.desktop.provider import Desktop, DesktopSpec
from actors.desktop.providers.sandbox.provider import SandboxProvider
from apis.observation import Observation, from_guest
from apis.plans.action import Call
from apis.plans.setup import setup
from apis.tasks.family import DOCUMENTS
from apis.tasks.osworld import Evaluator, Step, Task, data_url, launch, put
from apis.tasks.osworld import opened as step_that_opens
from runtime.errors import ConfigError

CALL_S = 30.0
LINES = "".join(f"line {n} of a file with some words in it\n" for n in range(1, 31))
SHEET = "".join(f"item{n},{n},{n * n}\n" for n in range(1, 31))
NAMES = ("apple.txt", "kiwi.txt", "lemon.txt", "melon.txt")
APPS = ("text_editor", "file_manager", "terminal", "libreoffice_calc")
LIGHT = frozenset(APPS[:3])


def known(flag: str, text: str, names: Collection[str]) -> list[str]:
    """The names of a comma-separated list. Raises ConfigError for one that is none of `names`."""
    listed = [name.strip() for name in text.split(",") if name.strip()]
    for name in listed:
        if name not in names:
            raise ConfigError(f"{flag} {name}: {hint(name, names)}")
    return listed


def opened(app: str) -> Task:
    """A task that only opens `app` on something to act on."""
    texts, path = {}, DOCUMENTS
    if app == "file_manager":
        texts = {f"{DOCUMENTS}/{name}": LINES for name in NAMES}
    elif app != "terminal":
        name, text = ("sheet.csv", SHEET) if app == "libreoffice_calc" else ("lines.txt", LINES)
        path = f"{DOCUMENTS}/{name}"
        texts = {path: text}
    files = put((file, data_url(text.encode())) for file, text in texts.items())
    config: list[Step] = [*files, launch("xterm") if app == "terminal" else step_that_opens(path)]
    return Task(
        id=f"bench/{app}", snapshot=app, instruction="", source="bench", config=config, trajectory="",
        related_apps=[app], evaluator=Evaluator(func="infeasible"),
    )  # fmt: skip


class Booted(msgspec.Struct, frozen=True):
    """One desktop, its link and what its boot took."""

    desktop: Desktop
    link: GuestLink
    wall_s: float


async def boot(made: SandboxProvider, spec: DesktopSpec = DesktopSpec()) -> Booted:  # noqa: B008 - it is frozen
    """A desktop whose agent says that it is ready."""
    began = time.monotonic()
    desktop = await made.boot(spec)
    link = await GuestLink.open(desktop, timeout_s=CALL_S)
    return Booted(desktop, link, time.monotonic() - began)


@asynccontextmanager
async def desktop(made: SandboxProvider, app: str) -> AsyncIterator[Booted]:
    """A desktop with `app` open and at rest."""
    booted = await boot(made)
    try:
        await prepare(booted, app)
        yield booted
    finally:
        await booted.link.close()
        await made.destroy(booted.desktop)


async def prepare(booted: Booted, app: str) -> None:
    """Open `app`."""
    await carry_out(booted.link, setup(opened(app), booted.desktop.home))


async def carry_out(link: GuestLink, calls: list[Call]) -> None:
    """Make the calls one after the other."""
    for call in calls:
        await link.call(call.method, timeout_s=CALL_S, **call.args)


async def observe(link: GuestLink) -> Observation:
    """What the model would be shown."""
    frame = await link.call("observe", timeout_s=CALL_S)
    return from_guest(frame)
