"""What a policy does to its own desktop is its own failure, and costs the desktop beside it nothing.

Everything here is done from inside by real actions: a terminal is opened and a command is typed into it. Beside it a
bystander desktop of the same pool is looked at all the time.
"""

from __future__ import annotations

import asyncio
import logging
import os
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from actors.desktop.answers import Answer, Prompt
from actors.desktop.config import DesktopsConfig, PoolConfig, SandboxConfig, SeatConfig
from actors.desktop.episode import Episode, PlayedEpisode, Stage, StageClock
from actors.desktop.pool import desktops as events
from actors.desktop.pool.desktops import BootedDesktop
from actors.desktop.pool.leased import LeasedDesktop
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.provider import DesktopHealth
from actors.desktop.recorder import Recorder
from actors.desktop.scene import DesktopScene
from apis.observation import Observation
from apis.prompts.text import Turn
from runtime.segments import SegmentStore
from tests.actors.desktop.offices import reservation
from tests.heard import Heard
from tests.proofs import proofs

LOG = logging.getLogger(__name__)
LOOK_S = 1.0  # of looking at the bystander before the attack
FAULTS = (events.DESKTOP_BOOT_FAILED, events.DESKTOP_SPARE_DIED, events.DESKTOP_NOT_REMOVED, events.HOST_QUARANTINED)
WORK = reservation(max_turns=40)


class Typist:
    """Opens a terminal, types a command, looks what happens for a while, and claims success."""

    def __init__(self, command: str, come: Callable[[], Awaitable[bool]], looks: int = 3, most: int = 30) -> None:
        enter = f"Agent.type(text={command!r}, enter=True)"
        self.texts = ["Agent.open_app(app_name='terminal')", enter, *["Agent.wait()"] * looks]
        self.come = come  # whether what the command is to do can be seen from outside
        self.most = most  # looks that a busy machine may need until then

    async def answer(
        self, step: int, prompt: Prompt, observation: Observation, history: list[Turn], last: str | None
    ) -> Answer:
        if len(self.texts) <= step < self.most and not await self.come():
            self.texts.append("Agent.wait()")
        text = self.texts[step] if step < len(self.texts) else "Agent.exit(success=True)"
        return Answer(text=text, prompt_ids=[1], response_ids=[2], logprobs=[-0.5], spans=[], seconds=0.0)


def traces(booted: BootedDesktop, health: DesktopHealth) -> dict[str, int]:
    """Evidence from outside that a limit was reached."""
    outside = booted.desktop.outside
    assert outside is not None
    folder = outside.cgroups.get("pids") or outside.cgroups["unified"]
    refused = [int(line.split()[1]) for line in Path(folder, "pids.events").read_text().splitlines()]
    room = os.statvfs(outside.home)
    return {
        "disk_full": int(room.f_bavail * room.f_frsize < 1 << 20),
        "processes_refused": refused[0],
        "memory_refused": health.oom_kills,
    }


class Street:
    """A pool with an attacker's desktop and a bystander's."""

    def __init__(self, pool: DesktopPool, heard: Heard, folder: Path) -> None:
        self.pool = pool
        self.heard = heard
        self.recorder = Recorder(SegmentStore(folder / "segments", "test"))
        self.looking = True
        self.seen: dict[str, int] = {}  # what the host saw of the attack at its end

    async def look(self, body: LeasedDesktop, seconds: float) -> list[float]:
        """Milliseconds that the bystander took for an observation, again and again."""
        took = []
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.looking:
            began = time.monotonic()
            await body.call("observe", {}, 20.0)
            took.append(1e3 * (time.monotonic() - began))
            await asyncio.sleep(0.1)
        return took

    async def play(self, command: str, witness: str) -> PlayedEpisode:
        async def come() -> bool:
            health = await self.pool.provider.probe(booted.desktop)
            return not witness or not health.alive or traces(booted, health)[witness] > 0

        booted = await self.pool.acquire(60.0, "attacker")
        clock = StageClock(0.0)
        clock.enter(Stage.LEASING, 0.0)
        config = SeatConfig(screenshots="none", call_timeout_s=8.0, settle_ms=300)
        try:
            episode = Episode(
                WORK, DesktopScene(WORK, LeasedDesktop(booted), config), answerer=Typist(command, come),
                recorder=self.recorder, config=config,
                enter=lambda stage: clock.enter(stage, 0.0),
            )  # fmt: skip
            return await episode.play()
        finally:
            self.seen = traces(booted, await self.pool.provider.probe(booted.desktop))
            self.pool.retire(booted)


@pytest_asyncio.fixture
async def street(state_dir: str, tmp_path: Path) -> AsyncIterator[Street]:
    small = SandboxConfig(state_dir=state_dir, memory_mib=400, disk_mib=64, max_processes=200)
    heard = Heard()
    pool = await DesktopPool.open(DesktopsConfig(provider=small, pool=PoolConfig(warm_pool=1)), tmp_path, heard)
    street = Street(pool, heard, tmp_path)
    yield street
    await street.recorder.close()
    await pool.close()


BOMB = "import os\\nwhile True:\\n try: os.fork() or os.setsid()\\n except OSError: pass"


EITHER = {"agent_broke_desktop", "not_verified"}  # the desktop may survive, the episode fails all the same


@pytest.mark.parametrize(
    ("command", "reasons", "detail", "witness"),
    [
        ("pkill -9 -f guest.agent", {"agent_broke_desktop"}, "link_closed", ""),
        ("cat /dev/zero > ~/full; cat /dev/zero > /tmp/full", EITHER, "", "disk_full"),
        ("for i in 1 2 3 4; do tail /dev/zero & done", EITHER, "", "memory_refused"),
        *proofs(
            ("pkill -9 sshd", {"agent_broke_desktop"}, "link_closed", ""),
            ("pkill -STOP -f guest.agent", {"agent_broke_desktop"}, "no_answer", ""),
            (":(){ :|:& };:", EITHER, "", "processes_refused"),
            (f"python3 -c $'{BOMB}'", EITHER, "", "processes_refused"),
        ),
    ],
    ids=["agent", "disk", "memory", "sshd", "stopped_agent", "forks", "sessions"],
)
async def test_a_policy_that_ruins_its_desktop_has_failed_alone(
    street: Street, command: str, reasons: set[str], detail: str, witness: str
) -> None:
    bystander = await street.pool.acquire(60.0, "bystander")
    body = LeasedDesktop(bystander)
    await body.call("launch", {"argv": ["mousepad"]}, 10.0)
    before = await street.look(body, LOOK_S)
    looking = asyncio.ensure_future(street.look(body, 600.0))
    played = await street.play(command, witness)
    street.looking = False
    during = await looking
    assert not played.outcome.success
    assert played.outcome.reason in reasons, played.detail
    assert played.detail.startswith(detail), played.detail
    assert not witness or street.seen[witness] > 0, f"it never came to {witness}: {street.seen}"
    lines = [(event.name, fields) for event, fields in street.heard.lines if event in FAULTS]
    assert lines == [], "nothing of it counts as a fault"
    normal, now = statistics.median(before), statistics.median(during)
    figures = f"bystander {normal:.0f} ms before, {now:.0f} during, worst {max(during):.0f}"
    LOG.info("%s; %s: %s; %s", figures, played.outcome.reason, played.detail, street.seen)
    assert now < 5 * normal + 1000, f"the bystander took {now:.0f} ms instead of {normal:.0f}"
    assert max(during) < 10_000
    street.pool.retire(bystander)
    again = await street.pool.acquire(60.0, "next")
    assert await LeasedDesktop(again).call("ping", {}, 10.0) == "pong"
    street.pool.retire(again)
