"""What samplers are told of rounds' weights, and the folders that keep them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from actors.entropulse import actor as entropulse
from actors.entropulse.actor import PinnedFolders
from actors.entropulse.config import EntropulseSettings
from actors.replay.messages import (
    EvalFigures,
    Figures,
    GetFigures,
    Phase,
    PhaseRef,
    WaitFigures,
)
from actors.sampler.messages import Pin, Unpin
from runtime.actor import Actor, handles
from runtime.errors import StoreError
from runtime.messaging.message import Done, Version
from runtime.system import ActorSpec, ActorSystem
from tests.actors.entropulse.peers import SETTINGS, Crash, Mortal, Sampler
from tests.actors.replay.ledger_tools import Play


class Script(Actor):
    """A ledger in RL with one open round, which stands back while `waits` says so."""

    figures: ClassVar[Figures]
    looked: ClassVar[asyncio.Queue[None]]

    @handles(WaitFigures, concurrent=True)
    async def wait(self, _msg: WaitFigures) -> Figures:
        self.looked.put_nowait(None)
        await asyncio.sleep(0.01)
        return self.figures

    @classmethod
    async def until(cls, looks: int) -> None:
        """Return once the supervisor has looked so often from now on."""
        cls.looked = asyncio.Queue()
        for _ in range(looks):
            await cls.looked.get()

    @handles(GetFigures, concurrent=True)
    async def get(self, _msg: GetFigures) -> Figures:
        return self.figures


class Ordered(Sampler):
    """Remembers the order, too."""

    told: ClassVar[list[str]] = []

    @handles(Pin)
    async def pin(self, msg: Pin) -> Done:
        self.told.append(f"pin {msg.version}")
        return await super().pin(msg)

    @handles(Unpin)
    async def unpin(self, msg: Unpin) -> Done:
        self.told.append(f"unpin {msg.version}")
        return await super().unpin(msg)


def open_round(step: int) -> EvalFigures:
    """A round on the weights of that step, of which nothing was played yet."""
    version = Version(lineage=0, step=step)
    return EvalFigures(
        round=f"round {version}", version=version, temperature=1.0, tasks=2, played=0, successes=0, feasible=2,
        faults=0,
    )  # fmt: skip


def ledger_says(folder: Path, phase: Phase, rounds: list[EvalFigures]) -> Figures:
    """Figures of a run in that phase whose rounds' weights are pinned."""
    for found in rounds:
        export = folder / "weights" / str(found.version)
        export.mkdir(parents=True)
        (export / "model.safetensors").write_text(str(found.version))
        PinnedFolders(folder).pin(found.version, export)
    (folder / "ledger").mkdir()
    return msgspec.structs.replace(
        Play(folder / "ledger").figures(), phase=PhaseRef(phase=phase, index=2), phase_limit=9, phase_steps=0,
        steps={"bc": 2}, stays={"bc": 1, "rl": 1}, evals=rounds,
    )  # fmt: skip


@asynccontextmanager
async def supervised(folder: Path, config: EntropulseSettings = SETTINGS) -> AsyncIterator[ActorSystem]:
    """A supervisor that looks at scripted figures all the time."""
    Script.looked, Ordered.told = asyncio.Queue(), []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(entropulse, "LOOK_S", 0.01)
        async with ActorSystem(folder) as system:
            await system.spawn(
                ActorSpec(name="replay", factory=Script),
                ActorSpec(name="sampler/0", factory=Ordered),
                ActorSpec(name="entropulse", factory=Mortal, config=config),
            )
            yield system


async def seen_with(figures: Figures) -> list[str]:
    """What samplers were told until the supervisor had looked twice at `figures`."""
    Script.figures = figures
    async with asyncio.timeout(60):
        await Script.until(3)
    told, Ordered.told = Ordered.told, []
    return told


async def test_pins_of_a_round_are_let_go_while_it_stands_back_and_told_again(tmp_path: Path) -> None:
    round_ = open_round(2)
    playing = Script.figures = ledger_says(tmp_path, Phase.RL, [round_])
    waiting = msgspec.structs.replace(playing, rounds_wait=True)
    folder = tmp_path / "pinned" / "0.2"
    async with supervised(tmp_path) as system:
        assert await seen_with(playing) == ["pin 0.2"]
        assert await seen_with(waiting) == ["unpin 0.2"]
        with pytest.raises(Exception, match="crash"):
            await system.ref("entropulse").ask(Crash(), timeout_s=30)
        assert await seen_with(waiting) == ["unpin 0.2"], "its successor can't know that they were told"
        assert folder.exists(), "the round needs it later"
        assert await seen_with(playing) == ["pin 0.2"]
        assert await seen_with(waiting) == ["unpin 0.2"]
        closed = msgspec.structs.replace(round_, closed=True)
        assert await seen_with(msgspec.structs.replace(waiting, evals=[closed])) == ["unpin 0.2"]
        assert not folder.exists()


@pytest.mark.parametrize("apart", [True, False])
async def test_engines_of_one_version_are_told_the_oldest_open_rounds_alone(tmp_path: Path, apart: bool) -> None:
    rounds = [open_round(2), open_round(4)]
    ends = Script.figures = ledger_says(tmp_path, Phase.PULSE, rounds)
    async with supervised(tmp_path, msgspec.structs.replace(SETTINGS, single_version=apart)):
        assert await seen_with(ends) == (["unpin 0.4", "pin 0.2"] if apart else ["pin 0.4", "pin 0.2"])
        closed = msgspec.structs.replace(rounds[0], closed=True)
        after = await seen_with(msgspec.structs.replace(ends, evals=[closed, rounds[1]]))
        assert after == (["pin 0.4", "unpin 0.2"] if apart else ["unpin 0.2"])


def test_pinned_folders_outlive_the_export(tmp_path: Path) -> None:
    pins, version = PinnedFolders(tmp_path), Version(lineage=0, step=3)
    export = tmp_path / "weights" / "0.3"
    with pytest.raises(StoreError):
        pins.pin(version, export)
    export.mkdir(parents=True)
    (export / "model.safetensors").write_text("weights")
    location = pins.pin(version, export)
    assert pins.pin(version, export) == location
    for path in export.iterdir():
        path.unlink()
    export.rmdir()
    assert (location / "model.safetensors").read_text() == "weights"
    kept = pins.keep(version, location)
    half = [location.with_name(".0.4.part"), kept.with_name(".0.5.part")]
    for folder in half:
        folder.mkdir()
    pins.clear()
    assert not any(folder.exists() for folder in half), "of a supervisor that was killed"
    assert pins.surplus([version]) == []
    assert pins.surplus([]) == [version]
    pins.release(version)
    assert not location.exists()
    pins.forget([version])
    assert (kept / "model.safetensors").read_text() == "weights"
    pins.forget([])
    assert not kept.exists()
