"""A desktop, an episode's work and a policy, in a test's words."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from actors.desktop.answers import Answer, Prompt
from actors.desktop.config import SandboxConfig
from actors.desktop.files.read_home import ReadLimits
from actors.desktop.link import GuestLink
from actors.desktop.provider import Desktop, DesktopSpec
from actors.desktop.providers.sandbox.provider import SandboxProvider
from actors.replay.messages import Lane, Phase, PhaseRef, Reservation, Sampling
from apis.observation import Frame, Observation, from_guest
from apis.plans.setup import setup
from apis.tasks.osworld import Evaluator, Step, Task
from apis.tasks.verify.verify import WantedFile
from tests.folders import desk_folder


def reservation(task: str = "text_editor/train/100", **more: Any) -> Reservation:
    """That of a demonstration, but for what is named."""
    plain: dict[str, Any] = {
        "token": 1, "lane": Lane.DEMO, "group": "", "slot": 0, "seed": 1, "max_turns": 8, "pin": None,
        "sampling": Sampling(temperature=1.0, max_new_tokens=64), "phase": PhaseRef(phase=Phase.DEMO, index=0),
    }  # fmt: skip
    return Reservation(task=task, **plain | more)


class Scripted:
    """Answers from a list, whose last one stays, and remembers what it was shown."""

    def __init__(self, *texts: str | Exception) -> None:
        self.texts = texts
        self.prompts: list[str] = []
        self.steps: list[int] = []

    async def answer(self, step: int, prompt: Prompt, *_: object) -> Answer:
        text = self.texts[min(len(self.steps), len(self.texts) - 1)]
        self.prompts.append(prompt.user)
        self.steps.append(step)
        if isinstance(text, Exception):
            raise text
        return Answer(text=text, prompt_ids=[1], response_ids=[2], logprobs=[-0.5], spans=[], seconds=0.0)


class Guest:
    """A desktop in a test's words."""

    def __init__(self, provider: SandboxProvider, desktop: Desktop, link: GuestLink) -> None:
        self.provider, self.desktop, self.link = provider, desktop, link

    async def __call__(self, method: str, **args: Any) -> Any:
        given = await self.link.call(method, timeout_s=100, **args)
        if not isinstance(given, Frame):
            return given
        frame = msgspec.to_builtins(given)
        return frame | {"elements": [tuple(element) for element in frame["elements"]]}

    async def act(self, method: str, **args: Any) -> None:
        await self(method, **args)
        assert await self("settle", timeout_ms=60_000)  # a busy machine starts an application late

    async def open(self, *argv: str, title: str, accessible: bool = True) -> None:
        await self("launch", argv=list(argv))
        await self("wait_window", title=title, accessible=accessible, timeout_ms=60_000)
        assert await self("settle", timeout_ms=60_000)  # a busy machine starts an application late

    async def elements(self) -> list[Any]:
        """What an observation lists; looked for again while an application is too busy to say all."""
        for _ in range(3):
            seen = await self("observe")
            if not seen["cut"]:
                break
        return list(seen["elements"])

    async def rows(self) -> list[tuple[str, str]]:
        """What shows: (tag, name or text)."""
        return [(element[0], element[1] or element[2]) for element in await self.elements()]

    async def centre(self, tag: str, label: str) -> dict[str, int]:
        for element in await self.elements():
            if element[0] == tag and label in (element[1], element[2]):
                return {"x": element[3] + element[5] // 2, "y": element[4] + element[6] // 2}
        raise AssertionError((tag, label, await self.rows()))

    async def prepare(self, *steps: Step) -> None:
        """Carry out a task's set-up."""
        task = Task(
            id="t", snapshot="", instruction="", source="", config=list(steps), trajectory="", related_apps=[],
            evaluator=Evaluator(func="infeasible"),
        )  # fmt: skip
        for each in setup(task, self.desktop.home):
            await self(each.method, **each.args)

    async def look(self) -> Observation:
        return from_guest(await self("observe"))

    async def titles(self) -> list[str]:
        return [window.title for window in await self("windows")]

    async def text(self, path: str) -> str | None:
        (seen,) = await self.provider.read_home(self.desktop, [WantedFile(path)], ReadLimits())
        return None if seen.data is None else seen.data.decode()


@asynccontextmanager
async def booted() -> AsyncIterator[tuple[SandboxProvider, Desktop, GuestLink]]:
    """A desktop and the link to it; it is gone afterwards."""
    with desk_folder() as folder:
        provider = await SandboxProvider.start(SandboxConfig(state_dir=folder), "test")
        try:
            desktop = await provider.boot(DesktopSpec())
            link = await GuestLink.open(desktop, timeout_s=30)
            yield provider, desktop, link
            await link.close()
        finally:
            await provider.close()
