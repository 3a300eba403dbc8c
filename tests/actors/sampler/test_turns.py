"""Learner and engine have one card in turn: the order of it, and what a kill in any state leaves behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from actors.replay.messages import Sampling
from actors.sampler.config import SamplersConfig, SamplerSettings, SglangConfig
from actors.sampler.messages import FallAsleep, Generate, Generated, WakeUp, Weights
from actors.sampler.turns import Held, Turns
from runtime.errors import ComputerRLError, ConfigError
from runtime.messaging.message import Version
from runtime.messaging.refs import Ref
from runtime.supervision import RestartPolicy
from runtime.system import ActorSpec, ActorSystem
from tests.actors.sampler.peers import Ledger
from tests.policy.engine_tools import write_model

BASE, ONE, TWO = (Version(lineage=0, step=step) for step in range(3))
AGAIN = Version(lineage=1, step=0)
STAND_IN = Path(__file__).with_name("ordered_sglang.py")


class Card(RuleBasedStateMachine):
    """A learner, a sampler and an engine, each killed at any moment; messages that come late."""

    def __init__(self) -> None:
        super().__init__()
        self.turns, self.memory, self.paused = Turns(), False, False
        self.announced, self.served, self.number = 0, -1, 0
        self.steps = False  # whether the learner computes
        self.sent = list[tuple[str, str]]()

    @rule()
    def learner_begins(self) -> None:
        """It takes the card for its next turn, or its successor does."""
        self.steps, self.number = False, self.number + 1
        self.sent.append(("sleep", str(self.number)))
        self.turns = self.turns.asked_to_sleep(str(self.number))

    @precondition(lambda self: self.number and self.turns.free and self.turns.turn in ("", str(self.number)))
    @rule()
    def learner_steps(self) -> None:
        self.steps = True
        self.announced += 1

    @precondition(lambda self: self.number)
    @rule()
    def learner_ends(self) -> None:
        self.steps = False
        self.sent.append(("wake", str(self.number)))
        self.turns = self.turns.asked_to_wake(str(self.number))

    @precondition(lambda self: len(self.sent) > 1 and self.sent[-1][0] == "sleep" and self.turns.turn)
    @rule(data=st.data())
    def late_message(self, data: st.DataObject) -> None:
        what, turn = data.draw(st.sampled_from(self.sent[:-1]))
        if what == "wake" and turn != str(self.number):
            self.turns = self.turns.asked_to_wake(turn)

    @precondition(lambda self: self.turns.due is Held.STARTING)
    @rule()
    def engine_starts(self) -> None:
        self.turns = self.turns.became(Held.STARTING, Held.NONE)
        self.memory, self.paused = True, False

    @precondition(lambda self: self.turns.engine is Held.STARTING)
    @rule()
    def engine_is_up(self) -> None:
        self.served = self.announced
        self.turns = self.turns.became(Held.AWAKE, Held.STARTING)

    @precondition(lambda self: self.turns.due not in (None, Held.STARTING))
    @rule()
    def engine_acts(self) -> None:
        """The stand-in's rules, as assertions."""
        before, after = self.turns.engine, self.turns.due
        assert after is not None
        if before is Held.AWAKE:
            self.paused = True
        elif after is Held.ASLEEP:
            assert self.memory
            assert self.paused
            self.memory = False
        elif before is Held.ASLEEP:
            assert not self.memory
            self.memory = True
        else:
            assert self.memory
            self.paused, self.served = False, self.announced
        self.turns = self.turns.became(after, before)

    @precondition(lambda self: self.turns.engine is not Held.NONE)
    @rule()
    def engine_is_killed(self) -> None:
        self.memory = False
        self.turns = self.turns.lost()
        assert self.turns.became(Held.AWAKE, Held.PAUSED) == self.turns, (
            "what its last call answers says nothing of a dead engine"
        )

    @rule()
    def sampler_is_killed(self) -> None:
        """Its engine ends with it."""
        self.memory, self.turns = False, Turns()

    @invariant()
    def the_card_is_one_s_own(self) -> None:
        assert not (self.steps and self.memory)
        assert not (self.turns.free and self.memory)
        assert self.turns.engine is not Held.AWAKE or (self.memory and not self.paused)

    def teardown(self) -> None:
        """Whatever happened: when the learner's turn is over, the engine draws with the newest weights."""
        self.learner_begins()
        self.learner_ends()
        for _ in range(6):
            if self.turns.due is Held.STARTING:
                self.engine_starts()
            elif self.turns.engine is Held.STARTING:
                self.engine_is_up()
            elif self.turns.due is not None:
                self.engine_acts()
        assert (self.turns.engine, self.turns.learner, self.served) == (Held.AWAKE, False, self.announced)


TestCard = Card.TestCase
TestCard.settings = hypothesis_settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_a_turn_ends_once_and_only_by_its_own_name() -> None:
    first = Turns().asked_to_sleep("a").asked_to_wake("a")
    assert not first.learner
    assert first.asked_to_sleep("a") == first
    second = first.asked_to_sleep("b")
    assert second.asked_to_wake("a") == second


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "embedded engine"),
        ({"engine": SglangConfig(), "attach": ["http://127.0.0.1:1"]}, "samplers.attach"),
        ({"engine": SglangConfig(), "count": 2}, "samplers.count"),
        ({"engine": SglangConfig(), "device": "cuda", "gpus": ["1"]}, "samplers.gpus"),
        ({"engine": SglangConfig(options={"tp_size": 2})}, "samplers.engine.options.tp_size"),
    ],
)
def test_where_turns_cant_be_had_they_are_refused_by_name(options: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=f"samplers.turns is true, and .*{why}"):
        SamplersConfig(turns=True, **options)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "0", seed=0)


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An interpreter in whose environment the stand-in is SGLang; its notes lie next to it."""
    package, made = tmp_path / "env" / "sglang", tmp_path / "env" / "python"
    package.mkdir(parents=True)
    shutil.copy(STAND_IN, package / "launch_server.py")
    made.write_text(f'#!/bin/sh\nPYTHONPATH={package.parent} exec {sys.executable} "$@"\n')
    made.chmod(0o755)
    monkeypatch.setenv("ORDERED_SGLANG", str(package.parent))
    return made


def sampler(python: Path, model: Path) -> ActorSpec:
    engine = SglangConfig(python=str(python))
    quick = RestartPolicy(max_restarts=5, first_delay_s=0.01)
    samplers = SamplersConfig(engine=engine, turns=True, generate_timeout_s=20.0)
    config = SamplerSettings(samplers=samplers, model=str(model), restart=quick)
    never = RestartPolicy(max_restarts=0)
    return ActorSpec(name="sampler/0", factory="actors.sampler.actor:SamplerActor", config=config, restart=never)


class Played:
    """A sampler whose learner is the test."""

    def __init__(self, ref: Ref, model: Path, notes: Path) -> None:
        self.ref, self.model, self.notes, self.asked = ref, model, notes, 0

    async def draw(self, tokens: int = 4) -> Version:
        """The version that an answer was drawn from."""
        self.asked += 1
        sampling = Sampling(temperature=1.0, max_new_tokens=tokens)
        request = Generate(rid=f"r{self.asked}", prompt_ids=[1, 2], sampling=sampling)
        answer: Generated = await self.ref.ask(request, timeout_s=60)
        (span,) = answer.spans
        return span.version

    async def sleep(self, turn: str) -> None:
        await self.ref.ask(FallAsleep(turn=turn), timeout_s=60)

    async def wake(self, turn: str, version: Version | None = None) -> None:
        if version is not None:
            await self.ref.tell(Weights(version=version, location=str(self.model)))
        await self.ref.ask(WakeUp(turn=turn), timeout_s=60)

    def calls(self) -> list[str]:
        """In order; an engine that was killed may have left the last one unanswered."""
        return [line.split()[0] for line in (self.notes / "calls").read_text().splitlines()]

    def servers(self) -> list[psutil.Process]:
        """The stand-in, while it runs; and for a moment after its end the launcher."""
        return [process for process in psutil.process_iter() if self._is_server(process)]

    async def none_runs(self) -> None:
        """Return once its process and its launcher's have ended, of which nobody is sent word."""
        async with asyncio.timeout(60):
            while self.servers():  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    def _is_server(self, process: psutil.Process) -> bool:
        with contextlib.suppress(psutil.Error):
            return (
                str(self.notes) in process.environ().get("ORDERED_SGLANG", "")
                and process.children() == []
                and ("--model-path" in process.cmdline())
            )
        return False


@asynccontextmanager
async def sampling(folder: Path, python: Path, model: Path) -> AsyncIterator[Played]:
    async with ActorSystem(folder, log_level="debug") as system:
        await system.spawn(ActorSpec(name="replay", factory=Ledger))
        await system.spawn(sampler(python, model))
        played = Played(system.ref("sampler/0"), model, python.parent)
        yield played
    assert not (python.parent / "wrong").exists(), (python.parent / "wrong").read_text()


ORDER = ["pause_generation", "release_memory_occupation", "resume_memory_occupation", "continue_generation"]


async def test_the_order_of_a_turn(tmp_path: Path, python: Path, model: Path) -> None:
    async with sampling(tmp_path / "run", python, model) as played:
        first = asyncio.create_task(played.draw())
        await played.sleep("a")  # at once: nothing is there yet
        await played.wake("a", BASE)
        assert await first == BASE
        assert not (played.notes / "calls").exists()

        # Answers that are being drawn end first; those that come meanwhile wait for the engine, and its weights.
        drawn = [asyncio.create_task(played.draw(100)) for _ in range(3)]
        await asyncio.sleep(0)
        await played.sleep("b")
        assert [await one for one in drawn] == [BASE] * 3
        waiting = asyncio.create_task(played.draw())
        await played.sleep("b")  # said again, it is no second release
        await played.wake("a")  # late
        assert played.calls() == ORDER[:2]
        await played.wake("b", ONE)
        assert await waiting == ONE
        assert played.calls() == [*ORDER, "update_weights_from_disk"]
        with pytest.raises(ComputerRLError, match="is over"):
            await played.sleep("b")

        # Without newer weights it goes on with those that it slept with.
        await played.sleep("c")
        await played.wake("c")
        assert await played.draw() == ONE


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("route", [*ORDER, "update_weights_from_disk"])
async def test_an_engine_killed_in_any_state_draws_again_after_the_turn(
    tmp_path: Path, python: Path, model: Path, route: str, when: str
) -> None:
    async with sampling(tmp_path / "run", python, model) as played:
        await played.wake("", BASE)
        assert await played.draw() == BASE
        (played.notes / "die-at").write_text(f"{when} {route}")
        await played.sleep("a")
        await played.wake("a", ONE)
        assert await played.draw() == ONE
        assert not (played.notes / "die-at").exists()
        await played.sleep("b")
        await played.wake("b", TWO)
        assert await played.draw() == TWO


async def test_an_engine_killed_in_its_sleep_does_not_start_before_its_turn(
    tmp_path: Path, python: Path, model: Path
) -> None:
    async with sampling(tmp_path / "run", python, model) as played:
        await played.wake("", BASE)
        assert await played.draw() == BASE
        await played.sleep("a")
        (asleep,) = played.servers()
        os.kill(asleep.pid, signal.SIGKILL)
        await played.none_runs()
        await played.sleep("a")
        waiting = asyncio.create_task(played.draw())
        await played.sleep("b")  # the learner was killed, too: its successor has the card now
        await played.none_runs()  # one that had started would go on
        await played.wake("b", AGAIN)
        assert await waiting == AGAIN


RUN = """
import asyncio, sys
from pathlib import Path
from actors.sampler.messages import FallAsleep, WakeUp
from runtime.system import ActorSpec, ActorSystem
from tests.actors.sampler import test_turns
from tests.actors.sampler.peers import Ledger

async def main():
    folder, python, model = map(Path, sys.argv[1:])
    async with ActorSystem(folder) as system:
        await system.spawn(ActorSpec(name="replay", factory=Ledger))
        await system.spawn(test_turns.sampler(python, model))
        played = test_turns.Played(system.ref("sampler/0"), model, python.parent)
        await played.wake("")
        await played.draw()
        await played.sleep("a")
        print("asleep", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_a_run_killed_while_its_engine_sleeps_leaves_no_engine_and_goes_on(
    tmp_path: Path, python: Path, model: Path
) -> None:
    words = [sys.executable, "-c", RUN, str(tmp_path / "run"), str(python), str(model)]
    run = await asyncio.to_thread(subprocess.Popen, words, stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    assert await asyncio.to_thread(run.stdout.readline) == "asleep\n"
    run.kill()
    await asyncio.to_thread(run.wait)
    run.stdout.close()
    await Played(None, model, python.parent).none_runs()  # type: ignore[arg-type]
    async with sampling(tmp_path / "again", python, model) as played:
        await played.sleep("b")
        await played.wake("b", AGAIN)
        assert await played.draw() == AGAIN
