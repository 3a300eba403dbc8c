"""Nothing is with an engine while it is drained, and weights are judged by what they score."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.sampler.client import EngineClient
from actors.sampler.config import SamplersConfig, SamplerSettings
from actors.sampler.gate import Gate
from actors.sampler.latest import Latest
from actors.sampler.loader import Loader, check_digest, difference
from actors.sampler.messages import Canary
from actors.sampler.wire import ModelInfo
from policy.hf_folder import digest
from runtime.errors import ConfigError, EngineError
from runtime.message import Version
from tests.policy.tiny_models import write

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


async def test_a_gate_opens_again_when_a_drain_takes_too_long() -> None:
    gate = Gate()
    async with gate.through():
        with pytest.raises(TimeoutError):
            async with gate.closed(0.01):
                pass
        async with gate.through():
            assert gate.inside == 2


@given(st.lists(st.floats(-30, 0), max_size=8), st.lists(st.floats(-30, 0), max_size=8))
def test_a_difference_is_the_largest_one(found: list[float], expected: list[float]) -> None:
    off_by = difference(found, expected)
    if len(found) != len(expected):
        assert off_by == float("inf")
    else:
        assert off_by == max((abs(a - b) for a, b in zip(found, expected, strict=True)), default=0.0)
        assert difference([*found, float("nan")], [*expected, 0.0]) == float("inf")


class Server(EngineClient):
    """Answers as a server would that holds what it was last given."""

    def __init__(self, scores: dict[str, list[float]]) -> None:
        self.scores, self.held, self.calls = scores, "0.0", list[str]()

    async def model_info(self) -> ModelInfo:
        return ModelInfo(model_path="", weight_version=self.held)

    async def score(self, ids: list[int], timeout_s: float) -> list[float]:
        return self.scores[self.held]

    async def update_from_disk(self, location: str, version: str, timeout_s: float, *, flush: bool) -> None:
        self.calls.append(f"update {flush}")
        self.held = version

    async def pause(self, mode: str) -> None:
        self.calls.append(mode)

    async def resume(self) -> None:
        self.calls.append("resume")


def loader(**options: object) -> Loader:
    samplers = SamplersConfig(attach=["http://127.0.0.1:1"], **options)  # type: ignore[arg-type]
    settings = SamplerSettings(samplers=samplers, model="", attach="http://127.0.0.1:1")
    return Loader(settings, Gate())


@pytest.mark.parametrize(
    ("update", "calls"),
    [
        (None, ["update True"]),
        ("retract", ["retract", "update True", "resume"]),
        ("in_place", ["in_place", "update False", "resume"]),
    ],
)
async def test_what_sglang_is_told(update: str | None, calls: list[str]) -> None:
    server = Server({"0.1": [-1.0]})
    latest = Latest(version=ONE, location="", canary=Canary(ids=[1, 2], logprobs=[-1.0]))
    verdict = await loader(update=update).load(server, latest)
    assert server.calls == calls
    assert (verdict.version, verdict.off_by, verdict.sound) == (ONE, 0.0, True)


async def test_weights_that_score_otherwise_are_not_sound() -> None:
    server = Server({"0.1": [-1.01]})
    latest = Latest(version=ONE, location="", canary=Canary(ids=[1, 2], logprobs=[-1.0]))
    assert not (await loader().load(server, latest)).sound
    assert (await loader(canary_tolerance=0.1).load(server, latest)).sound
    assert (await loader().judge(server, Latest(version=TWO, location=""))).version == ONE
    server.held = "default"
    assert (await loader().judge(server, latest)).version is None


async def test_files_with_another_digest_are_refused(tmp_path) -> None:
    model = write(tmp_path / "model")
    await check_digest(Latest(version=ONE, location=str(model), digest=digest(model)))
    with pytest.raises(EngineError, match="has digest"):
        await check_digest(Latest(version=ONE, location=str(model), digest="00"))


def test_a_tolerance_is_above_nothing() -> None:
    with pytest.raises(ConfigError, match=r"samplers\.canary_tolerance"):
        SamplersConfig(canary_tolerance=0.0)
