"""What breaks under an episode, told apart where it happens: a fault of the host's, or the policy's own doing.

The desktop pretends here; its lease is a real one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio

from actors.desktop import scene
from actors.desktop.config import SeatConfig
from actors.desktop.episode import Episode, PlayedEpisode
from actors.desktop.faults import FaultCause, fault
from actors.desktop.files.read_home import FileSeen, ReadRefusal
from actors.desktop.link import GuestLink
from actors.desktop.pool.desktops import BootedDesktop, Lives
from actors.desktop.pool.leased import DesktopControl, LeasedDesktop
from actors.desktop.provider import Desktop, DesktopHealth, Provider, SshAddress
from actors.desktop.recorder import Recorder
from actors.desktop.scene import DesktopScene
from actors.errors import DesktopFault, GuestRefused
from apis.observation import SCREEN
from apis.tasks.osworld import (
    ActivateWindow,
    CloseWindow,
    Evaluator,
    Sleep,
    Task,
    opened,
)
from apis.tasks.verify.manifest import MANIFEST, Manifest
from apis.tasks.verify.verify import TaskVerdict, WantedFile
from apis.tasksets.published import PublishedError
from runtime.segments import SegmentStore
from tests.actors.desktop.offices import Scripted, reservation

FRAME = {"windows": [{"id": 7, "class": "Mousepad", "title": "plum.txt", "active": True}], "elements": []}
WORK = reservation(max_turns=3)
WAIT, CLAIM = "Agent.wait()", "Agent.exit(success=True)"


class Link:
    """Answers every call; `refused` names the method that is refused, from its call number `since` on."""

    def __init__(self, refused: str, since: int) -> None:
        self.refused, self.since, self.calls = refused, since, 0

    async def call(self, method: str, **_: Any) -> Any:
        self.calls += method == self.refused
        if method == self.refused and self.calls > self.since:
            raise GuestRefused("failed", "not now")
        return FRAME if method == "observe" else True


class Place:
    """A provider that takes `takes_s` to freeze, or can't; `health` is what it says of the desktop then."""

    def __init__(self, takes_s: float, refuses: FaultCause | None, health: DesktopHealth, cut: str) -> None:
        self.takes_s, self.refuses, self.health = takes_s, refuses, health
        self.manifest = Manifest(cut=cut)

    async def probe(self, _: Desktop) -> DesktopHealth:
        return self.health

    async def freeze(self, _: Desktop) -> None:
        await asyncio.sleep(self.takes_s)
        if self.refuses is not None:
            raise fault(self.refuses, "the pipe is broken")

    async def read_home(self, desktop: Desktop, wanted: list[WantedFile], *_: Any) -> list[FileSeen]:
        await asyncio.sleep(0)
        missing = ReadRefusal.MISSING
        return [
            FileSeen(path=want.path, manifest=self.manifest)
            if want.as_ == MANIFEST
            else FileSeen(path=want.path, refusal=missing)
            for want in wanted
        ]


@pytest_asyncio.fixture
async def recorder(tmp_path: Path) -> AsyncIterator[Recorder]:
    made = Recorder(SegmentStore(tmp_path / "segments", "test"))
    yield made
    await made.close()


async def play(
    recorder: Recorder,
    *says: str,
    refused: str = "",
    since: int = 0,
    takes_s: float = 0.0,
    refuses: FaultCause | None = None,
    health: DesktopHealth | None = None,
    cut: str = "",
    published_metrics: bool = False,
) -> PlayedEpisode:
    desktop = Desktop(
        name="d", provider="test", address=SshAddress(), username="agent", host_key=b"", client_key=b"", agent=(),
        home="/home/agent",
    )  # fmt: skip
    lives = Lives()
    lives.begin("d")
    lives.booted("d")
    lease = lives.lease("d", "desktop/0", time.monotonic(), 60.0)
    place = Place(takes_s, refuses, health or DesktopHealth(alive=True), cut)
    link = cast(GuestLink, Link(refused, since))
    booted = BootedDesktop(cast(Provider, place), desktop, link, lives, lease)
    config = SeatConfig(screenshots="none", verify_timeout_s=0.2, published_metrics=published_metrics)
    episode = Episode(
        WORK,
        DesktopScene(WORK, LeasedDesktop(booted), config),
        answerer=Scripted(*says),
        recorder=recorder,
        config=config,
        enter=lambda stage: None,
    )
    return await episode.play()


async def test_what_is_no_doing_of_the_policys_is_a_fault(recorder: Recorder) -> None:
    for cause, culprit, how in (
        ("setup_failed", "task", {"refused": "open_window"}),
        ("home_too_large", "task", {"cut": "more paths than are looked at"}),
        ("not_observed", "seat", {"refused": "observe"}),
        ("verify_timeout", "verifier", {"takes_s": 5.0}),
        ("machine_unreachable", "host", {"refuses": FaultCause.MACHINE_UNREACHABLE}),
    ):
        with pytest.raises(DesktopFault) as caught:
            await play(recorder, CLAIM, **how)
        assert (caught.value.cause, caught.value.culprit) == (cause, culprit)


async def test_a_session_that_ended_under_a_claim_is_the_policys_doing_once_it_has_acted(recorder: Recorder) -> None:
    ended: dict[str, Any] = {"refuses": FaultCause.MACHINE_UNREACHABLE, "health": DesktopHealth(alive=False)}
    played = await play(recorder, WAIT, CLAIM, **ended)
    assert (played.outcome.success, played.outcome.reason) == (False, "agent_broke_desktop")
    assert len(played.steps) == 2
    ended["health"] = DesktopHealth(alive=False, reachable=False)
    with pytest.raises(DesktopFault, match="machine_unreachable"):
        await play(recorder, WAIT, CLAIM, **ended)


async def test_what_can_not_be_observed_after_an_action_is_the_policys_doing(recorder: Recorder) -> None:
    played = await play(recorder, WAIT, CLAIM, refused="observe", since=1)
    assert (played.outcome.success, played.outcome.reason) == (False, "agent_broke_desktop")


async def test_published_verdicts_are_two_at_once_and_their_package_is_no_tasks_fault(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, at_once, full = threading.Lock(), [0], threading.Barrier(2)

    def judged(*_: Any, published_metrics: bool, strict: bool) -> TaskVerdict:
        assert (published_metrics, strict) == (True, False)
        with there:
            at_once.append(at_once[-1] + 1)
        full.wait(30)
        with there:
            at_once.append(at_once[-1] - 1)
        raise PublishedError("no answer")

    monkeypatch.setattr(scene, "judged", judged)
    played = (play(recorder, CLAIM, published_metrics=True) for _ in range(4))
    found = await asyncio.gather(*played, return_exceptions=True)
    assert [(one.cause, one.culprit) for one in found if isinstance(one, DesktopFault)] == [
        ("not_judged", "verifier")
    ] * 4
    assert max(at_once) == 2


class Windowless:
    """A desktop on which no window of the wanted name ever comes."""

    home, screen = "/home/agent", SCREEN

    def __init__(self, refuses: str) -> None:
        self.asked: list[str] = []
        self._refuses = refuses

    async def call(self, method: str, args: dict[str, Any], timeout_s: float) -> str:
        self.asked.append(method)
        if method == self._refuses:
            raise GuestRefused("no_window", "there is no such window")
        return "done"


async def prepared(*config: Any, refuses: str = "raise_window") -> list[str]:
    desktop = Windowless(refuses)
    task = Task(id="a", instruction="Do it", config=[*config], evaluator=Evaluator(func="infeasible"))
    await DesktopControl(cast("LeasedDesktop", desktop), SeatConfig()).set_up(task)
    return desktop.asked


async def test_a_window_that_does_not_come_is_no_fault_of_set_up() -> None:
    raised = ActivateWindow("gone")
    sleep = Sleep(1)
    assert await prepared(raised, sleep) == ["raise_window", "settle", "settle", "settle"]


async def test_no_keys_are_pressed_for_a_window_that_is_not_there_to_be_closed() -> None:
    closed = CloseWindow("gone")
    assert "hotkey" not in await prepared(closed)
    assert "hotkey" in await prepared(closed, refuses="")


async def test_a_program_that_does_not_open_is_a_fault_of_set_up() -> None:
    with pytest.raises(DesktopFault, match="no_window"):
        await prepared(opened("/home/user/a.odt"), refuses="open_window")
