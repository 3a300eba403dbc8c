"""A sampler actor with a real SGLang server: weights, pins, bad requests, a killed server."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from actors.errors import Deferred
from actors.replay.messages import Sampling
from actors.sampler.config import SamplersConfig, SamplerSettings, SglangConfig, WeightSyncConfig
from actors.sampler.messages import FallAsleep, Generate, Generated, Pin, Refused, Unpin, WakeUp, Weights
from policy.tensorfiles import digest
from runtime.messaging.message import Version
from runtime.messaging.refs import Ref
from runtime.supervision import RestartPolicy
from runtime.system import ActorSpec, ActorSystem
from tests.actors.sampler.peers import Ledger
from tests.actors.sampler.test_sampler_actor import PROMPT, events, scores
from tests.actors.sampler.test_sampler_actor import check as check_at
from tests.policy.adapted import adapted
from tests.policy.engine_tools import CONTEXT, VOCAB

pytestmark = pytest.mark.real_sglang
BASE, FIRST, SECOND = (Version(lineage=0, step=step) for step in range(3))
WAIT_S = 240.0
TARGETS = ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]


@asynccontextmanager
async def sampling(
    folder: Path, model: Path, in_flight: str | None = None, *, turns: bool = False, **more: Any
) -> AsyncIterator[Ref]:
    """A run with one sampler and a server of its own."""
    samplers = SamplersConfig(
        engine=SglangConfig(),
        turns=turns,
        max_running_requests=8,
        cache_tokens=16_384,
        generate_timeout_s=WAIT_S,
    )
    config = SamplerSettings(
        samplers=samplers,
        weight_sync=WeightSyncConfig(in_flight=in_flight),  # type: ignore[arg-type]
        model=str(model),
        hung_after_s=60.0,
        restart=RestartPolicy(first_delay_s=0.01),
        **more,
    )
    async with ActorSystem(folder, log_level="debug") as system:
        await system.spawn(ActorSpec(name="replay", factory=Ledger))
        factory = "actors.sampler.actor:SamplerActor"
        never = RestartPolicy(max_restarts=0)
        await system.spawn(ActorSpec(name="sampler/0", factory=factory, config=config, restart=never))
        yield system.ref("sampler/0")


def weights(version: Version, model: Path, *, scored_by: Path | None = None) -> Weights:
    return Weights(version=version, digest=digest(model), location=str(model), canary=scores(scored_by or model))


async def ask(ref: Ref, rid: str, tokens: int = 6, pin: Version | None = None, prompt: list[int] = PROMPT) -> Generated:
    request = Generate(rid=rid, prompt_ids=prompt, sampling=Sampling(temperature=1.0, max_new_tokens=tokens), pin=pin)
    found: Generated = await ref.ask(request, timeout_s=WAIT_S)
    return found


def check(model: Path, found: Generated, version: Version) -> None:
    check_at(model, found, version, 1.0)


def tree(pid: int) -> list[psutil.Process]:
    root = psutil.Process(pid)
    return [root, *root.children(recursive=True)]


async def test_a_real_server_behind_a_sampler(
    tmp_path: Path, models: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    # One key in 64 begins with a dash.
    monkeypatch.setattr("actors.sampler.engine.secrets.token_urlsafe", lambda size: "-" + "k" * size)
    async with sampling(tmp_path, models[0]) as ref:
        await Ledger.hears(BASE, WAIT_S)
        check(models[0], await ask(ref, "a"), BASE)

        # Nothing that would kill the server reaches it.
        for prompt in ([], [VOCAB], [-1], [1] * CONTEXT):
            assert isinstance(await ask(ref, "b", prompt=prompt), Refused)

        # Newer weights wait for what is being drawn, and nothing is aborted.
        long = asyncio.create_task(ask(ref, "c", tokens=300))
        await ref.tell(weights(FIRST, models[1]))
        await Ledger.hears(FIRST, WAIT_S)
        check(models[1], await ask(ref, "d"), FIRST)
        assert len((await long).output_ids) == 300
        assert len((await long).spans) == 1

        # A pinned version is served until it is let go.
        await ref.ask(Pin(version=BASE, location=str(models[0])), timeout_s=WAIT_S)
        await ref.tell(weights(SECOND, models[2]))
        check(models[0], await ask(ref, "e", pin=BASE), BASE)
        await ref.ask(Unpin(version=BASE), timeout_s=WAIT_S)
        await Ledger.hears(SECOND, WAIT_S)
        with pytest.raises(Deferred):
            await ask(ref, "late", pin=BASE)

        # A server that is killed in the middle of a request comes back with the newest weights, and answers it.
        (ready,) = events(tmp_path, "sampler_ready")
        killed = tree(int(str(ready["pid"])))
        broken = asyncio.create_task(ask(ref, "f", tokens=1500))
        while not (await ask(ref, "g")).output_ids:
            pass
        os.kill(killed[0].pid, signal.SIGKILL)
        assert {span.version for span in (await broken).spans} == {SECOND}
        check(models[2], await ask(ref, "h"), SECOND)
        assert await asyncio.to_thread(psutil.wait_procs, killed, 30) is not None
        (back,) = events(tmp_path, "engine_restarted")
        now = tree(int(str(back["pid"])))

    _, alive = await asyncio.to_thread(psutil.wait_procs, [*killed, *now], 30)
    assert not alive
    assert [line["version"] for line in events(tmp_path, "weights_loaded")] == ["0.1", "0.0", "0.2"]
    assert all(line["off_by"] is None or line["off_by"] < 1e-4 for line in events(tmp_path, "weights_loaded"))  # type: ignore[operator]
    assert not events(tmp_path, "weights_suspect")


@pytest.mark.parametrize("update", ["retract", "in_place"])
async def test_weights_change_under_a_request(tmp_path: Path, models: list[Path], update: str) -> None:
    newer = weights(FIRST, models[1])
    async with sampling(tmp_path, models[0], in_flight=update) as ref:
        await Ledger.hears(BASE, WAIT_S)
        long = asyncio.create_task(ask(ref, "a", tokens=2000))
        await ask(ref, "b", tokens=5)
        await ref.tell(newer)
        await Ledger.hears(FIRST, WAIT_S)
        check(models[1], await ask(ref, "c"), FIRST)
        spans = (await long).spans
        assert [span.version for span in spans] == [BASE, FIRST]


@pytest.mark.parametrize("lora", [False, pytest.param(True, marks=pytest.mark.proof)])
async def test_a_real_server_and_a_learner_take_turns(tmp_path: Path, models: list[Path], lora: bool) -> None:
    """On a CPU nothing is saved; the server still ends where its memory is released while it has requests."""
    steps = list(adapted(models[0], tmp_path / "adapted", 2))
    more: dict[str, Any] = {"adapter_rank": 4, "adapter_targets": TARGETS} if lora else {}
    async with sampling(tmp_path / "run", models[0], turns=True, **more) as ref:
        await ref.ask(WakeUp(turn=""), timeout_s=WAIT_S)
        check(models[0], await ask(ref, "a"), BASE)
        for version, (merged, adapter, digest_) in zip((FIRST, SECOND), steps, strict=True):
            drawn = [asyncio.create_task(ask(ref, f"{version} {n}", tokens=200)) for n in range(4)]
            await asyncio.sleep(0)
            await ref.ask(FallAsleep(turn=str(version)), timeout_s=WAIT_S)
            assert [len((await one).spans) for one in drawn] == [1] * 4
            waiting = asyncio.create_task(ask(ref, f"waits for {version}"))
            peft = {"adapter": str(adapter), "adapter_digest": digest_} if lora else {}
            newer = msgspec.structs.replace(weights(version, merged), **peft)
            await ref.tell(newer)
            await ref.ask(WakeUp(turn=str(version)), timeout_s=WAIT_S)
            check(merged, await waiting, version)
    turned = [line["card"] for line in events(tmp_path / "run", "engine_turn")]
    assert turned == ["paused", "asleep", "paused", "awake"] * 2
    assert not events(tmp_path / "run", "engine_died")
    assert not events(tmp_path / "run", "weights_suspect")


async def test_adapters_answer_as_merged_weights_do(tmp_path: Path, models: list[Path]) -> None:
    steps = list(adapted(models[0], tmp_path / "adapted", 2))
    async with sampling(tmp_path, models[0], adapter_rank=4, adapter_targets=TARGETS) as ref:
        await Ledger.hears(BASE, WAIT_S)
        check(models[0], await ask(ref, "a"), BASE)
        long = asyncio.create_task(ask(ref, "long", tokens=300))
        for version, (merged, adapter, digest_) in zip((FIRST, SECOND), steps, strict=True):
            scored = scores(merged)
            await ref.tell(
                Weights(version=version, location="", adapter=str(adapter), adapter_digest=digest_, canary=scored)
            )
            await Ledger.hears(version, WAIT_S)
            check(merged, await ask(ref, f"to {version}", tokens=24), version)
        assert {span.version for span in (await long).spans} <= {BASE, FIRST}  # it went on with what it began with

        # A round's version, whose adapter lies next to its weights; and back.
        await ref.ask(Pin(version=FIRST, location=str(steps[0][0])), timeout_s=WAIT_S)
        check(steps[0][0], await ask(ref, "pinned", pin=FIRST), FIRST)
        await ref.ask(Unpin(version=FIRST), timeout_s=WAIT_S)
        await Ledger.hears(SECOND, WAIT_S)

        # A server that is killed begins with the first weights again, and the newest adapter.
        (ready,) = events(tmp_path, "sampler_ready")
        os.kill(int(str(ready["pid"])), signal.SIGKILL)
        check(steps[1][0], await ask(ref, "after"), SECOND)
    loaded = [line for line in events(tmp_path, "weights_loaded") if line["way"] == "adapter"]
    assert len(loaded) >= 2
    assert all(line["off_by"] is None or line["off_by"] < 1e-4 for line in loaded)  # type: ignore[operator]
    assert not events(tmp_path, "weights_suspect")
