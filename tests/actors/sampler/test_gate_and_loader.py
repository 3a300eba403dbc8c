"""Nothing is with an engine while it is drained, and weights are judged by what they score."""

from __future__ import annotations

import asyncio
import contextlib
import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import EngineGone
from actors.learner.config import GroupSettings
from actors.learner.messages import Broadcast, Broadcasting, BroadcastPart, Ticket
from actors.sampler.client import EngineClient, ModelInfo
from actors.sampler.config import SamplersConfig, SamplerSettings, WeightSyncConfig
from actors.sampler.health import Gate
from actors.sampler.loader import Asking, CanaryDifference, Loader, WeightsVerdict, check_digest, difference
from actors.sampler.messages import Canary, Weights
from policy.errors import EngineBusy, EngineError
from policy.tensorfiles import digest
from runtime.messaging.message import Version
from tests.policy.tiny_models import write

SAME = CanaryDifference(0.0, 0.0, 0.0)
ONE, TWO = Version(lineage=0, step=1), Version(lineage=0, step=2)


async def test_a_closed_gate_waits_for_those_inside_and_keeps_others_out() -> None:
    gate, order = Gate(), []
    leave = asyncio.Event()

    async def request(name: str) -> None:
        async with gate.through():
            order.append(name)
            await leave.wait()

    async def drain() -> None:
        async with gate.closed(20.0):
            assert gate.inside == 0
            order.append("drained")

    first = asyncio.create_task(request("first"))
    await asyncio.sleep(0)
    draining = asyncio.create_task(drain())
    await asyncio.sleep(0)
    second = asyncio.create_task(request("second"))
    await asyncio.sleep(0)
    assert order == ["first"]
    leave.set()
    await asyncio.gather(first, draining, second)
    assert order == ["first", "drained", "second"]


async def test_who_was_let_in_finds_a_gate_that_was_closed_again() -> None:
    """Two loads, one right after the other: those woken by the first's end must not slip into the second."""
    gate, inside = Gate(), []

    async def request() -> None:
        async with gate.through():
            inside.append(gate)

    async with gate.closed(5.0):
        waiting = asyncio.create_task(request())
        await asyncio.sleep(0)
    async with gate.closed(5.0):
        for _ in range(5):
            await asyncio.sleep(0)
        assert (inside, gate.inside) == ([], 0)
    await waiting
    assert inside == [gate]


async def test_a_gate_opens_again_when_a_drain_takes_too_long() -> None:
    gate = Gate()
    async with gate.through():
        with pytest.raises(TimeoutError):
            async with gate.closed(0.01):
                pass
        async with gate.through():
            assert gate.inside == 2


@given(st.lists(st.floats(-30, 0), max_size=8), st.lists(st.floats(-30, 0), max_size=8))
def test_a_difference_has_a_mean_a_percentile_and_a_largest(found: list[float], expected: list[float]) -> None:
    off_by, never = difference(found, expected), CanaryDifference(math.inf, math.inf, math.inf)
    if len(found) != len(expected):
        assert off_by == never
    else:
        pairs = [abs(a - b) for a, b in zip(found, expected, strict=True)]
        assert off_by.largest == off_by.p99 == max(pairs, default=0.0)
        assert off_by.mean == pytest.approx(sum(pairs) / max(1, len(pairs)))
        assert difference([*found, float("nan")], [*expected, 0.0]) == never


def test_one_token_is_reported_and_not_judged() -> None:
    off_by = difference([-10.0] * 199 + [-14.0], [-10.01] * 199 + [-10.0])
    assert (off_by.largest, off_by.p99) == (4.0, pytest.approx(0.01))
    assert off_by.within(0.03)
    assert not difference([-10.0] * 190 + [-10.2] * 10, [-10.0] * 200).within(0.03), "a tail of many is judged"
    assert not difference([-10.0] * 200, [-10.04] * 200).within(0.03)


# Measured beside each other on a CPU, 31 arbitrary tokens of SmolLM2-135M: bfloat16 twice with two kinds of attention,
# and bfloat16 beside float32.
@pytest.mark.parametrize("off_by", [CanaryDifference(0.065, 0.171, 0.171), CanaryDifference(0.1, 0.369, 0.369)])
def test_sound_programs_in_bfloat16_are_believed_and_others_are_not(off_by: CanaryDifference) -> None:
    one, in_bf16 = loader(), Canary(ids=[1, 2], logprobs=[-1.0], dtype="bfloat16")
    assert off_by.within(one.tolerance(in_bf16))
    assert not off_by.within(one.tolerance(LATEST.canary or in_bf16)), "float32 is not so far off"
    one.measured = off_by.mean
    assert off_by.within(one.tolerance(in_bf16))
    assert not CanaryDifference(2.0, 6.0, 9.0).within(one.tolerance(in_bf16))
    one.measured = 1e-6
    assert not off_by.within(one.tolerance(in_bf16)), "the first load was far closer"
    assert CanaryDifference(0.02, 0.1, 0.2).within(one.tolerance(in_bf16))
    assert loader(canary_tolerance=0.5).tolerance(in_bf16) == 0.5


class Server(EngineClient):
    """Answers as a server would that holds what it was last given."""

    refusals = 0

    def __init__(self, scores: dict[str, list[float]]) -> None:
        self.scores, self.held, self.calls = scores, "0.0", list[str]()

    async def model_info(self) -> ModelInfo:
        return ModelInfo(model_path="", weight_version=self.held)

    async def score(self, ids: list[int], timeout_s: float) -> list[float]:
        return self.scores[self.held]

    async def update(self, location: str, version: str, timeout_s: float, **how: str | bool) -> None:
        self.calls.append(f"update {how['flush_cache']}")
        if self.refusals:
            self.refusals -= 1
            raise EngineError("not flushed")
        self.held = version

    async def load_adapter(self, location: str, version: str, timeout_s: float) -> None:
        self.calls.append(f"adapter {location}")
        if self.refusals:
            raise EngineError("no room")

    async def adapters(self) -> list[str]:
        return ["0.1"] * any(call.startswith("adapter") for call in self.calls)

    async def pause(self, mode: str) -> None:
        self.calls.append(mode)

    async def resume(self) -> None:
        self.calls.append("resume")


def loader(in_flight: str | None = None, **options: float) -> Loader:
    sync = WeightSyncConfig(in_flight=in_flight)  # type: ignore[arg-type]
    samplers = SamplersConfig(attach=["http://127.0.0.1:1"], **options)  # type: ignore[arg-type]
    settings = SamplerSettings(samplers=samplers, weight_sync=sync, model="", attach="http://127.0.0.1:1")
    return Loader(settings, Gate())


@pytest.mark.parametrize(
    ("in_flight", "calls"),
    [
        (None, ["update True"]),
        ("retract", ["retract", "update True", "resume"]),
        ("in_place", ["in_place", "update False", "resume"]),
    ],
)
async def test_what_sglang_is_told(in_flight: str | None, calls: list[str]) -> None:
    server = Server({"0.1": [-1.0]})
    latest = Weights(version=ONE, location="", canary=Canary(ids=[1, 2], logprobs=[-1.0]))
    verdict = await loader(in_flight).load(server, latest)
    assert server.calls == calls
    assert (verdict.version, verdict.off_by, verdict.sound) == (ONE, SAME, True)


@pytest.mark.parametrize("refusals", [0, 1])
async def test_no_load_of_an_adapter_waits_for_its_judgement_afterwards(refusals: int) -> None:
    server = Server({"0.0": [-1.0], "0.1": [-1.0]})
    server.refusals = refusals
    made = loader()
    made._settings = msgspec.structs.replace(made._settings, adapter_rank=4)
    latest = Weights(version=ONE, location="", adapter="adapters/0.1")
    with contextlib.suppress(EngineError):
        verdict = await made.load(server, latest)
        assert (verdict.way, verdict.version) == ("adapter", ONE)
    assert server.calls == ["adapter adapters/0.1"]
    assert made.judged.is_set()


@pytest.mark.parametrize(("rank", "where"), [(0, "whole"), (4, "base")])
async def test_an_embedded_engine_loads_a_folder_or_an_adapter_over_its_first_one(rank: int, where: str) -> None:
    loaded = list[tuple[str, object]]()

    class Embedded(Server):
        async def update(self, location: str, version: str, timeout_s: float, **how: str | bool) -> None:
            loaded.append((location, how.get("adapter_path")))
            self.held = version

    latest = Weights(version=ONE, location="whole", adapter="adapters/0.1")
    one = Loader(SamplerSettings(samplers=SamplersConfig(), model="base", adapter_rank=rank), Gate())
    assert (await one.load(Embedded({"0.1": [-1.0]}), latest)).version == ONE
    assert loaded == [(where, "adapters/0.1" if rank else None)]


async def test_a_cache_that_could_not_be_flushed_is_flushed_again() -> None:
    server = Server({"0.1": [-1.0]})
    server.refusals = 1
    assert (await loader().load(server, LATEST)).version == ONE
    assert server.calls == ["update True"] * 2
    server.refusals = 2
    with pytest.raises(EngineError, match="not flushed"):
        await loader().load(server, LATEST)


async def test_weights_that_score_otherwise_are_not_sound() -> None:
    server = Server({"0.1": [-1.01]})
    latest = Weights(version=ONE, location="", canary=Canary(ids=[1, 2], logprobs=[-1.0]))
    assert not (await loader().load(server, latest)).sound
    assert (await loader(canary_tolerance=0.1).load(server, latest)).sound
    other = Weights(version=TWO, location="")
    assert await loader().judge(server, other) == WeightsVerdict(ONE, None, sound=True), "not yet what was asked for"
    server.held = "default"
    assert (await loader().judge(server, latest)).version is None


async def test_weights_that_were_changed_while_they_were_scored_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server({"0.1": [-1.0], "0.2": [-9.0]})
    server.held = "0.1"
    score = server.score

    async def late(ids: list[int], timeout_s: float) -> list[float]:
        server.held = str(TWO)  # loaded by another task, meanwhile
        return await score(ids, timeout_s)

    monkeypatch.setattr(server, "score", late)
    told = Weights(version=ONE, location="", canary=Canary(ids=[1, 2], logprobs=[-1.0]))
    assert await loader().judge(server, told) == WeightsVerdict(TWO, None, sound=True)


async def test_a_full_line_says_nothing_of_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    server, tries = Server({"0.1": [-1.0]}), [EngineBusy("full"), EngineBusy("full")]
    server.held = "0.1"
    score = server.score

    async def busy(ids: list[int], timeout_s: float) -> list[float]:
        if tries:
            raise tries.pop()
        return await score(ids, timeout_s)

    monkeypatch.setattr(server, "score", busy)
    monkeypatch.setattr("actors.sampler.loader._BUSY_S", 0.0)
    verdict = await loader().judge(server, LATEST)
    assert (verdict.sound, verdict.off_by, tries) == (True, SAME, [])

    async def always_busy(ids: list[int], timeout_s: float) -> list[float]:
        raise EngineBusy("full")

    monkeypatch.setattr(server, "score", always_busy)
    with pytest.raises(EngineGone, match="was not scored within"):
        await loader(load_timeout_s=0.05).judge(server, LATEST)


async def test_files_with_another_digest_are_refused(tmp_path) -> None:
    model = write(tmp_path / "model")
    await check_digest(model, digest(model))
    wrong = Weights(version=ONE, location=str(model), digest="00")
    for load in (
        check_digest(model, wrong.digest),
        loader().load(Server({}), wrong),
        loader().load(Member(), wrong, no_place),
    ):
        with pytest.raises(EngineError, match="has digest"):
            await load
    (tmp_path / "odd" / "model.safetensors").mkdir(parents=True)
    with pytest.raises(EngineError, match="can't read"):
        await check_digest(tmp_path / "odd", "00")


PARTS = [BroadcastPart(names=[name], dtypes=["float32"], shapes=[[size]]) for name, size in (("a", 1), ("b", 2))]
REQUEST = Broadcast(version=ONE, group="g", ranks=1, settings=GroupSettings())
TICKET = Ticket(rank=1, request=REQUEST, sender=Broadcasting(port=1, parts=PARTS))
PATHS = {
    "join": "/init_weights_update_group",
    "begin": "/begin_weight_update",
    "update": "/update_weights_from_distributed",
    "end": "/end_weight_update",
    "leave": "/destroy_weights_update_group",
}


class Member(Server):
    """A server that takes weights from a group, but for the calls that are to fail."""

    def __init__(self, fails: dict[str, list[Exception]] | None = None) -> None:
        super().__init__({"0.1": [-1.0]})
        self.fails = fails or {}

    async def control(self, path: str, body: dict[str, object], timeout_s: float) -> None:
        (name,) = [short for short, long in PATHS.items() if long == path]
        self.calls.append(name)
        if self.fails.get(name):
            raise self.fails[name].pop(0)
        if name == "update" and "weight_version" in body:
            self.held = str(body["weight_version"])


WHOLE = ["join", "begin", "update", "update", "end", "leave"]


async def place() -> Ticket | None:
    return TICKET


async def no_place() -> Ticket | None:
    return None


LATEST = Weights(version=ONE, location="", canary=Canary(ids=[1, 2], logprobs=[-1.0]))


@pytest.mark.parametrize("in_flight", [None, "in_place"])
async def test_weights_come_from_a_group(in_flight: str | None) -> None:
    server, one = Member(), loader(in_flight)
    verdict = await one.load(server, LATEST, place)
    assert server.calls == (WHOLE if in_flight is None else ["in_place", *WHOLE, "resume"])
    assert (verdict.way, verdict.missed, verdict.sound, one.mixed) == ("collective", "", True, False)


@pytest.mark.parametrize(
    ("fails", "calls"),
    [
        ({"join": [EngineError("late")]}, ["join"]),
        ({"update": [EngineError("lost")]}, ["join", "begin", "update", "end", "leave"]),
        ({"end": [EngineError("not open")]}, ["join", "begin", "update", "update", "end", "leave"]),
        ({"begin": [EngineError("open")] * 2, "end": [EngineError("no")]}, ["join", "begin", "end", "leave"]),
    ],
)
async def test_what_a_group_does_not_bring_comes_from_disk(fails: dict[str, list[Exception]], calls: list[str]) -> None:
    server, one = Member(fails), loader()
    verdict = await one.load(server, LATEST, place)
    assert server.calls == [*calls, "update True"]
    assert (verdict.way, verdict.sound, one.mixed, server.held) == ("disk", True, False, "0.1")
    assert verdict.missed


async def test_a_session_that_was_left_open_is_ended_first() -> None:
    server = Member({"begin": [EngineError("a session is open")]})
    assert (await loader().load(server, LATEST, place)).way == "collective"
    assert server.calls == ["join", "begin", "end", "begin", *WHOLE[2:]]


@pytest.mark.parametrize("in_flight", [None, "in_place"])
@pytest.mark.parametrize(
    ("ask", "late", "writes"),
    [(place, False, False), (no_place, False, True), (None, False, True), (place, True, True)],
)
async def test_weights_are_written_only_for_who_reads_them_from_disk(
    in_flight: str | None, ask: Asking | None, late: bool, writes: bool
) -> None:
    server, asked = Member({"join": [EngineError("late")]} if late else {}), list[str]()

    async def written(latest: Weights) -> Weights:
        asked.append(",".join(server.calls))
        return msgspec.structs.replace(latest, location="written")

    verdict = await loader(in_flight).load(server, LATEST, ask, written)
    assert verdict.way == ("disk" if writes else "collective")
    assert bool(asked) == bool(writes)
    if not late:
        assert set(asked[:1]) <= {""}, "the engine draws until the folder is there"


async def test_an_engine_that_broke_in_the_middle_may_hold_parts_of_two_versions() -> None:
    one = loader()
    with pytest.raises(EngineGone):
        await one.load(Member({"update": [EngineGone("silent")]}), LATEST, place)
    assert one.mixed
    assert one.judged.is_set()
    await one.judge(Member(), LATEST)
    assert one.mixed, "it still names the older version"
    await one.load(Member(), LATEST)
    assert not one.mixed
