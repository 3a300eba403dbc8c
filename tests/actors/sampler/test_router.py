"""The router: which sampler a request goes to, what an engine's end costs, and a router on another machine."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cluster.config import deploy_files, models
from actors.cluster.runs import compose
from actors.desktop.answers import Prompt, SampledAnswers
from actors.errors import DesktopFault, EngineGone, SamplerTimeout
from actors.replay.messages import Lane, Phase, PhaseRef, Reservation, Sampling, VersionSpan
from actors.sampler import router as routing
from actors.sampler.messages import Generate, Generated, Refused
from actors.sampler.router import HIT, MOVED, NEW, SLACK_TOKENS, DispatchSettings, PassedOn, Router
from apis.observation import Observation
from policy.errors import EngineBusy
from policy.tokenizer import Tokenizer
from runtime.actor import Actor, handles
from runtime.errors import ProtocolError
from runtime.logs.reader import read_logs
from runtime.messaging.message import Version, decode, encode, reply_type
from runtime.system import ActorSpec, ActorSystem, PlacerSpec
from tests.heard import until
from tests.runtime.example_actors import seen

ENGINES = ["a", "b", "c"]
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.sampled_from(["", "x", "y", "z"]), st.integers(1, 5000)),
        st.tuples(st.just("end"), st.integers(0, 50), st.booleans()),
        st.tuples(st.just("pass"), st.floats(0.0, 20.0), st.none()),
    ),
    max_size=60,
)


@given(ACTS)
def test_accounts_hold_what_is_outstanding_and_nothing_goes_to_an_engine_that_is_down(acts) -> None:
    router, now, sent = Router(ENGINES), 0.0, []
    for kind, first, second in acts:
        if kind == "pass":
            now += first
        elif kind == "ask":
            before = {name: engine.outstanding for name, engine in router.engines.items()}
            choice = router.choose(first, second, now)
            up = [name for name, engine in router.engines.items() if engine.down_until <= now]
            assert (choice is None) == (not up)
            if choice is None:
                assert router.next_up_s(now) > 0
                continue
            assert choice.name in up
            least = min(before[name] for name in up)
            assert before[choice.name] == least or choice.affinity == HIT
            assert before[choice.name] <= least + SLACK_TOKENS
            sent.append((choice.name, second))
        elif sent:
            name, tokens = sent.pop(first % len(sent))
            router.ended(name, tokens)
            if second:
                router.answered(name)
            else:
                router.failed(name, now)
        for name, engine in router.engines.items():
            assert engine.outstanding == sum(tokens for other, tokens in sent if other == name)


def test_an_episode_returns_to_its_engine_until_that_is_down_or_far_busier() -> None:
    router = Router(ENGINES)
    first = router.choose("x", 50, 0.0)
    assert first is not None
    assert first.affinity == NEW
    again = router.choose("x", 50, 0.0)
    assert again is not None
    assert (again.name, again.affinity) == (first.name, HIT)
    router.failed(first.name, 0.0)
    moved = router.choose("x", 50, 0.1)
    assert moved is not None
    assert moved.affinity == MOVED
    assert moved.name != first.name
    for _ in range(3):
        router.choose("", SLACK_TOKENS, 0.1, without=[name for name in ENGINES if name != moved.name])
    away = router.choose("x", 1, 0.1)
    assert away is not None
    assert (away.name != moved.name, away.affinity) == (True, MOVED)


def test_pauses_grow_until_it_answers() -> None:
    router = Router(["a"])
    pauses, now = [], 10.0
    for _ in range(7):
        for _ in range(6):  # all the requests that were on their way
            router.failed("a", now)
        pauses.append(router.next_up_s(now))
        now += pauses[-1]
    assert pauses == [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]
    router.failed("a", now)
    router.answered("a")
    assert router.next_up_s(now) == 0.0


NAMES = ["sampler/0", "sampler/1"]
HELD = Version(lineage=0, step=1)


class Sampler(Actor):
    """A stand-in: gone, busy, refusing or answering, as it is told."""

    does: dict[str, str] = {}
    asked: list[str] = []
    came: asyncio.Event
    held: asyncio.Event

    @handles(Generate, concurrent=True)
    async def generate(self, msg: Generate) -> Generated | Refused:
        """Do it."""
        Sampler.asked.append(self.ctx.name)
        match self.does.get(self.ctx.name, ""):
            case "gone":
                raise EngineGone("it was killed")
            case "busy":
                raise EngineBusy("it holds other weights")
            case "hold":
                Sampler.came.set()
                await Sampler.held.wait()
            case "refuse":
                return Refused(reason="too long")
        span = VersionSpan(version=HELD, start=0, end=1)
        return Generated(output_ids=[1], logprobs=[-1.0], spans=[span], finish="stop", cached_tokens=0)


def router(*samplers: str, timeout_s: float = 20.0) -> ActorSpec:
    settings = DispatchSettings(samplers=list(samplers), generate_timeout_s=timeout_s)
    return ActorSpec(name="router", factory="actors.sampler.router:DispatchActor", config=settings)


def step(number: int) -> Generate:
    """What is asked for a step of one episode."""
    sampling = Sampling(temperature=1.0, max_new_tokens=4)
    return Generate(rid=f"e.{number}", prompt_ids=[1], sampling=sampling, affinity="e")


@asynccontextmanager
async def routed(folder: Path, does: dict[str, str], timeout_s: float = 20.0) -> AsyncIterator[ActorSystem]:
    """Two samplers that do as they are told, and a router before them."""
    Sampler.does, Sampler.asked = does, []
    Sampler.came, Sampler.held = asyncio.Event(), asyncio.Event()
    async with ActorSystem(folder) as system:
        samplers = [ActorSpec(name=name, factory=Sampler) for name in NAMES]
        await system.spawn(*samplers, router(*NAMES, timeout_s=timeout_s))
        yield system


async def ask(folder: Path, does: dict[str, str], count: int = 1, timeout_s: float = 20.0) -> list[str]:
    """Who was asked for `count` steps of one episode."""
    async with routed(folder, does, timeout_s) as system:
        for number in range(count):
            reply = await system.ref("router").ask(step(number), timeout_s=30)
            assert isinstance(reply, Refused) == (does.get(Sampler.asked[-1]) == "refuse")
    return Sampler.asked


async def test_an_episode_stays_with_its_engine(tmp_path: Path) -> None:
    assert len(set(await ask(tmp_path, {}, count=4))) == 1


@pytest.mark.parametrize("fault", ["gone", "busy"])
async def test_a_failing_engine_costs_a_try_elsewhere(tmp_path: Path, fault: str) -> None:
    assert await ask(tmp_path, {"sampler/0": fault}, count=2) == ["sampler/0", "sampler/1", "sampler/1"]
    moved = [line["sampler"] for line in read_logs(tmp_path) if line["event"] == "request_moved"]
    assert moved == (["sampler/0"] if fault == "gone" else [])


async def test_the_tokens_that_each_sampler_drew_are_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "_REPORT_S", 0.02)
    async with routed(tmp_path, {}) as system:
        for number in range(3):
            await system.ref("router").ask(step(number), timeout_s=30)
        await until(lambda: sum(sum(line["drawn"].values()) for line in read_logs(tmp_path, event="routed")) == 3)


@pytest.mark.parametrize("fault", ["gone", "busy"])
async def test_no_engine_at_all_ends_at_the_deadline(tmp_path: Path, fault: str) -> None:
    with pytest.raises(SamplerTimeout):
        await ask(tmp_path, dict.fromkeys(NAMES, fault), timeout_s=0.6)


async def test_a_sampler_that_leaves_has_answered_first_and_is_asked_no_more(tmp_path: Path) -> None:
    async with routed(tmp_path, {"sampler/0": "hold"}) as system:
        first = asyncio.ensure_future(system.ref("router").ask(step(0), timeout_s=30))
        await Sampler.came.wait()
        leaving = asyncio.ensure_future(system.configure(router(NAMES[1])))
        await seen(system, "router", doing="sampler/1: 0 tokens")
        await system.ref("router").ask(step(1), timeout_s=30)  # its episode began at the one that leaves
        assert not leaving.done()
        Sampler.held.set()
        await first
        await leaving
        await system.remove(NAMES[:1])
        await system.ref("router").ask(step(2), timeout_s=30)
    assert Sampler.asked == ["sampler/0", "sampler/1", "sampler/1"]
    assert not [line for line in read_logs(tmp_path) if line["event"] == "request_moved"]


@pytest.mark.parametrize("tokens", [0, 15, 16, 65_535, 65_536])
def test_a_request_passes_with_its_prompt_and_the_prompt_is_counted(tokens: int) -> None:
    sent = Generate(
        rid="7.1", prompt_ids=list(range(tokens)), sampling=Sampling(temperature=0.5, max_new_tokens=4),
        pin=Version(lineage=1, step=2), affinity="7", seed=3,
    )  # fmt: skip
    seen = decode(encode(sent), PassedOn)
    assert seen.prompt_tokens == tokens
    on = decode(encode(msgspec.structs.replace(seen, elsewhere=True)), Generate)
    assert on == msgspec.structs.replace(sent, elsewhere=True)


def test_it_is_the_same_message_but_for_the_type_of_the_prompt() -> None:
    def told(kind: type) -> list[tuple[str, object, object]]:
        fields = msgspec.structs.fields(kind)
        return [(field.name, None if field.name == "prompt_ids" else field.type, field.default) for field in fields]

    assert told(PassedOn) == told(Generate)
    assert PassedOn.__struct_config__.tag == Generate.__struct_config__.tag
    assert reply_type(PassedOn) == reply_type(Generate)


@pytest.mark.parametrize("wrong", ["text", 5, None, {"a": 1}, b"\xdd\x00\x00\x00\x01\x05"])
def test_what_is_no_list_is_refused(wrong: object) -> None:
    body = {"type": "Generate", "rid": "7.1", "prompt_ids": wrong}
    body["sampling"] = {"temperature": 1.0, "max_new_tokens": 4}
    seen = decode(msgspec.msgpack.encode(body), PassedOn)
    with pytest.raises(ProtocolError, match="prompt_ids"):
        _ = seen.prompt_tokens


PLACERS = Path(__file__).resolve().parents[2] / "runtime"  # of a placer that places hosts on this machine


def away(*samplers: str) -> ActorSpec:
    """A router in a process of its own."""
    return msgspec.structs.replace(router(*samplers, timeout_s=30.0), host="router")


@pytest.mark.slow
async def test_a_lost_router_is_a_fault_and_comes_back_as_it_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(PLACERS))
    deploy = deploy_files.load("smoke", ["cluster.engine=ray", "samplers.router_place={desktops: 1}"])[0]
    hosts = compose.placed(deploy)["samplers.router_place"]
    tokenizer = Tokenizer.load(str(models.locate("")))
    Sampler.does, Sampler.asked = {}, []
    Sampler.came, Sampler.held = asyncio.Event(), asyncio.Event()
    async with ActorSystem(tmp_path, hosts=hosts, placer=PlacerSpec(module="local_placer")) as system:

        async def answer(token: int, step: int) -> None:
            """As a seat asks."""
            work = Reservation(
                token=token, lane=Lane.TRAIN, task="t", group="1", slot=0, seed=7, max_turns=8, pin=None,
                sampling=Sampling(temperature=1.0, max_new_tokens=8), phase=PhaseRef(phase=Phase.RL, index=1),
            )  # fmt: skip
            seat = SampledAnswers([system.ref("router", "desktop/0")], tokenizer, work, "g", 35.0)
            await seat.answer(step, Prompt(user="x"), Observation(windows=(), elements=()), [], None)

        await system.spawn(*(ActorSpec(name=name, factory=Sampler) for name in NAMES), away(*NAMES))
        await answer(1, 0)
        (pid,) = [one.pid for one in await system.statuses() if one.name == "router"]
        Sampler.does = dict.fromkeys(NAMES, "hold")
        held = asyncio.ensure_future(answer(2, 0))
        await Sampler.came.wait()
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            with pytest.raises(
                DesktopFault, match=r"sampler_unavailable: router is gone: host router was lost"
            ) as lost:
                await held
        assert lost.value.culprit == "sampler", "no desktop and no task pays for it"
        Sampler.held.set()
        Sampler.does = {}
        await system.configure(away(NAMES[1]))  # while it is gone: its next life begins so
        Sampler.asked.clear()
        await answer(3, 0)
        assert Sampler.asked == NAMES[1:]
    lives = [line["restarts"] for line in read_logs(tmp_path, event="host_started")]
    assert lives == [0, 1]
    assert not msgspec.to_builtins(list(read_logs(tmp_path, event="system_failed")))
