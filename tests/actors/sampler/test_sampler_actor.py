"""The sampler actor with a real engine: generation, weights, pins, and an engine that is killed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from actors.errors import Deferred, EngineGone, SamplerError
from actors.replay.messages import Sampling
from actors.sampler import client
from actors.sampler.config import SamplersConfig, SamplerSettings
from actors.sampler.loader import Loader
from actors.sampler.messages import Canary, Generate, Generated, Pin, Refused, Unpin, Weights
from policy.tensorfiles import digest
from runtime.actor import Actor
from runtime.logs.reader import read_logs
from runtime.messaging.message import Version
from runtime.supervision import RestartPolicy
from runtime.system import ActorSpec, ActorSystem
from tests.actors.sampler.peers import GroupOwner, Ledger
from tests.heard import logged
from tests.policy.adapted import adapted
from tests.policy.engine_tools import (
    CONTEXT,
    VOCAB,
    engine_server,
    reference_logits,
    reference_logprobs,
    write_model,
)

pytestmark = pytest.mark.engine

GREEDY = Sampling(temperature=0.0, max_new_tokens=6)
BASE, FIRST, SECOND = (Version(lineage=0, step=step) for step in range(3))
PROMPT = [(3 + 7 * i) % VOCAB for i in range(24)]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return [write_model(folder / str(i), seed=i) for i in range(3)]


@pytest.fixture(scope="module")
def server(models):
    """An engine that samplers are attached to; it has the second model at first."""
    with engine_server(models[1]) as found, pytest.MonkeyPatch.context() as patched:
        patched.setenv("ATTACHED_KEY", found.token)
        yield found


def settings(models, **more) -> SamplerSettings:
    quick = RestartPolicy(max_restarts=3, first_delay_s=0.01)
    samplers = SamplersConfig(generate_timeout_s=60.0, api_key_env="ATTACHED_KEY" if "attach" in more else "")
    return SamplerSettings(samplers=samplers, model=str(models[0]), restart=quick, **more)


@asynccontextmanager
async def sampling(folder: Path, config: SamplerSettings, group_owner: type[Actor] | None = None):
    """A run with one sampler; yields its ref."""
    async with ActorSystem(folder, log_level="debug") as system:
        await system.spawn(ActorSpec(name="replay", factory=Ledger))
        if group_owner is not None:
            await system.spawn(ActorSpec(name="learner", factory=group_owner))
        never = RestartPolicy(max_restarts=0)
        factory = "actors.sampler.actor:SamplerActor"
        await system.spawn(ActorSpec(name="sampler/0", factory=factory, config=config, restart=never))
        yield system.ref("sampler/0")
        status = {one.name: one for one in await system.statuses()}["sampler/0"]
        assert status.restarts == 0


async def ask(ref, rid: str, prompt=PROMPT, sampling=GREEDY, pin=None, seed=None) -> Generated | Refused:
    return await ref.ask(Generate(rid=rid, prompt_ids=prompt, sampling=sampling, pin=pin, seed=seed), timeout_s=60)


def check(model: Path, found: Generated, version: Version, temperature: float = 0.0) -> None:
    assert [(span.version, span.start, span.end) for span in found.spans] == [(version, 0, len(found.output_ids))]
    assert found.logprobs == pytest.approx(reference_logprobs(model, PROMPT, found.output_ids, temperature), abs=1e-4)


def events(folder: Path, name: str) -> list[dict]:
    return [line for line in read_logs(folder) if line["event"] == name]


async def test_generate_weights_and_pins(tmp_path, models):
    async with sampling(tmp_path, settings(models)) as ref:
        await Ledger.hears(BASE)
        check(models[0], await ask(ref, "a"), BASE)
        warm = Sampling(temperature=0.8, max_new_tokens=9)
        tempered = await ask(ref, "b", sampling=warm)
        check(models[0], tempered, BASE, 0.8)
        assert tempered.cached_tokens == 16, "the second request finds the first one's prefix"
        assert await ask(ref, "b", sampling=warm) == tempered, "a repeat gets the first answer"
        drawn = [await ask(ref, f"s{seed}{i}", sampling=warm, seed=seed) for seed in (5, 2**63 - 1) for i in "ab"]
        assert drawn[0].output_ids == drawn[1].output_ids, "a seed repeats a draw"
        assert drawn[2].output_ids == drawn[3].output_ids != drawn[0].output_ids

        for prompt in ([], [VOCAB], [1] * CONTEXT):
            assert isinstance(await ask(ref, "c", prompt=prompt), Refused)

        await ref.ask(Pin(version=BASE, location=str(models[0])), timeout_s=20)
        for version, model in ((SECOND, models[2]), (FIRST, models[1])):
            await ref.tell(Weights(version=version, digest="", location=str(model)))
        await Ledger.hears(SECOND)
        check(models[2], await ask(ref, "d"), SECOND)
        check(models[0], await ask(ref, "e", pin=BASE), BASE)
        await ref.ask(Unpin(version=BASE), timeout_s=20)
        with pytest.raises(SamplerError, match="not resident"):
            await ask(ref, "f", pin=BASE)

        third = Version(lineage=0, step=3)
        await ref.tell(Weights(version=third, digest="00", location=str(models[1])))
        await logged(tmp_path, "weights_refused")
        check(models[2], await ask(ref, "g"), SECOND)

        late = tmp_path / "late"  # not there yet, and told again later
        fourth = Weights(version=Version(lineage=0, step=4), digest="", location=str(late))
        await ref.tell(fourth)
        await logged(tmp_path, "weights_refused", 2)
        shutil.copytree(models[1], late)
        await ref.tell(fourth)
        await Ledger.hears(fourth.version)
        check(models[1], await ask(ref, "h"), fourth.version)
    assert [line["version"] for line in events(tmp_path, "weights_loaded")] == ["0.2", "0.4"]
    spans = events(tmp_path, "generate")
    assert all(line["t0"] <= line["t1"] for line in spans)
    assert len(spans) == 10


async def test_adapters_answer_as_merged_weights_do(tmp_path, models):
    steps = list(adapted(models[0], tmp_path / "adapted", 2))
    async with sampling(tmp_path, settings(models, adapter_rank=4), group_owner=GroupOwner) as ref:
        await Ledger.hears(BASE)
        for version, (merged, adapter, digest_) in zip((FIRST, SECOND), steps, strict=True):
            told = Weights(
                version=version, location=str(tmp_path / "none"), adapter=str(adapter), adapter_digest=digest_,
                canary=scores(merged), group_owner="learner",
            )  # fmt: skip
            await ref.tell(told)
            await Ledger.hears(version)
            check(merged, await ask(ref, str(version)), version)
        third = Version(lineage=0, step=3)
        torn = Weights(version=third, location="", adapter=str(steps[0][1]), adapter_digest="00")
        await ref.tell(torn)
        await logged(tmp_path, "weights_refused")
        check(steps[1][0], await ask(ref, "after"), SECOND)
    assert [line["way"] for line in events(tmp_path, "weights_loaded")] == ["adapter"] * 2
    assert all(line["off_by"] < 1e-4 for line in events(tmp_path, "weights_loaded"))


async def test_a_killed_engine_comes_back_with_the_current_weights(tmp_path, models):
    config = settings(models)
    async with sampling(tmp_path, config) as ref:
        await ref.ask(Pin(version=BASE, location=str(models[0])), timeout_s=20)
        await ref.tell(Weights(version=FIRST, digest="", location=str(models[1])))
        await Ledger.hears(FIRST)
        (ready,) = events(tmp_path, "sampler_ready")
        long = Sampling(temperature=0.0, max_new_tokens=1500)
        request = asyncio.create_task(ask(ref, "a", sampling=long))
        sibling = asyncio.create_task(ask(ref, "b"))
        await sibling
        os.kill(ready["pid"], signal.SIGKILL)
        found = await request
        check(models[1], await sibling, FIRST)
        assert {span.version for span in found.spans} == {FIRST}
        check(models[0], await ask(ref, "c", pin=BASE), BASE)
    (died,) = events(tmp_path, "engine_died")
    (back,) = events(tmp_path, "engine_restarted")
    assert died["exit_code"] == -signal.SIGKILL
    assert (back["version"], back["restarts"]) == ("0.1", 1)
    assert back["pid"] != ready["pid"]
    assert {line["rid"] for line in events(tmp_path, "generate_retried")} == {"a"}
    with pytest.raises(ProcessLookupError):
        os.kill(back["pid"], 0)
    assert not list((tmp_path / "sockets").iterdir())

    # A sampler that starts again hears of pins a little later: what asks for them waits.
    async with sampling(tmp_path, config) as ref:
        waiting = asyncio.create_task(ask(ref, "d", pin=FIRST))
        check(models[0], await ask(ref, "e", pin=BASE), BASE)
        await ref.ask(Pin(version=FIRST, location=str(models[1])), timeout_s=20)
        check(models[1], await waiting, FIRST)


@pytest.mark.proof
async def test_weights_that_were_never_written_are_written_for_an_engine_that_needs_them(tmp_path, models):
    GroupOwner.asked.clear()
    GroupOwner.model = models[1]
    location = tmp_path / "weights" / str(FIRST)

    async def kill_when_gone(number: int) -> None:
        ready = [*events(tmp_path, "sampler_ready"), *events(tmp_path, "engine_restarted")]
        shutil.rmtree(location)
        os.kill(ready[number]["pid"], signal.SIGKILL)
        await logged(tmp_path, "engine_restarted", number + 1)

    async with sampling(tmp_path, settings(models), group_owner=GroupOwner) as ref:
        await ref.tell(Weights(version=FIRST, digest="", location=str(location), group_owner="learner"))
        await Ledger.hears(FIRST)
        check(models[1], await ask(ref, "a"), FIRST)
        await kill_when_gone(0)
        check(models[1], await ask(ref, "b"), FIRST)
        assert GroupOwner.asked == [FIRST, FIRST]
        GroupOwner.model = None
        await kill_when_gone(1)
        check(models[0], await ask(ref, "c"), BASE)  # as from a file that is torn: newer ones are told of soon
    assert {(line["version"], line["served"]) for line in events(tmp_path, "weights_refused")} == {("0.1", "None")}


@pytest.mark.proof
async def test_a_stopped_engine_is_named_replaced_and_its_requests_answered(tmp_path, models, monkeypatch):
    monkeypatch.setattr("actors.sampler.actor.PROBE_TIMEOUT_S", 1.0)
    async with sampling(tmp_path, settings(models, hung_after_s=3.0)) as ref:
        (ready,) = events(tmp_path, "sampler_ready")
        check(models[0], await ask(ref, "a"), BASE)
        os.kill(ready["pid"], signal.SIGSTOP)
        check(models[0], await ask(ref, "b"), BASE)
    (silent,) = events(tmp_path, "engine_silent")
    assert (silent["rid"], silent["waited_s"], silent["pid"]) == ("b", 3.0, ready["pid"])
    (died,) = events(tmp_path, "engine_died")
    assert died["exit_code"] == -signal.SIGKILL
    assert "no answer to b for 3 s; then: /generate: no answer within 1 s" in died["cause"]
    (back,) = events(tmp_path, "engine_restarted")
    assert back["pid"] != ready["pid"]


async def test_a_folder_that_can_not_be_served_stops_the_run(tmp_path, models):
    broken = write_model(tmp_path / "broken")
    (broken / "model.safetensors").unlink()
    async with ActorSystem(tmp_path / "run") as system:
        config = SamplerSettings(samplers=SamplersConfig(), model=str(broken), replay="")
        with pytest.raises(Exception, match=r"no \*\.safetensors file"):
            await system.spawn(ActorSpec(name="sampler/0", factory="actors.sampler.actor:SamplerActor", config=config))


async def test_an_attached_server(tmp_path, models, server):
    config = settings(models, attach=server.url)
    async with sampling(tmp_path, config) as ref:
        check(models[0], await ask(ref, "a"), BASE)
        await ref.tell(Weights(version=FIRST, digest=digest(models[1]), location=str(models[1])))
        await Ledger.hears(FIRST)
        check(models[1], await ask(ref, "b"), FIRST)
        await ref.ask(Pin(version=BASE, location=str(models[0])), timeout_s=20)
        await ref.tell(Weights(version=SECOND, digest="", location=str(models[2])))
        check(models[0], await ask(ref, "c", pin=BASE), BASE)
        check(models[0], await ask(ref, "d"), BASE)
        await ref.ask(Unpin(version=BASE), timeout_s=20)
        await Ledger.hears(SECOND)
        check(models[2], await ask(ref, "e"), SECOND)
        with pytest.raises(Deferred, match=r"the round on 0\.0 is deferred"):
            await ask(ref, "f", pin=BASE)
        waiting = asyncio.create_task(ask(ref, "g", pin=FIRST))  # handed out before its pin was told
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await ref.ask(Unpin(version=FIRST), timeout_s=20)
        with pytest.raises(Deferred):
            await waiting
        await ref.ask(Pin(version=BASE, location=str(models[0])), timeout_s=20)
        check(models[0], await ask(ref, "h", pin=BASE), BASE)
    (ready,) = events(tmp_path, "sampler_ready")
    assert (ready["engine"], ready["version"]) == ("attach", "0.0")


async def test_an_attached_server_that_stands_still_or_starts_again_is_met_again(tmp_path, models, server):
    """A load that broke off leaves SGLang paused, and nothing but this sampler would ever set it going."""
    async with sampling(tmp_path, settings(models, attach=server.url)) as ref:
        check(models[0], await ask(ref, "a"), BASE)
    async with server.session() as session:
        async with session.post(f"{server.url}/pause_generation", json={"mode": "retract"}) as answer:
            assert answer.status == 200
    async with asyncio.timeout(60), sampling(tmp_path, settings(models, attach=server.url)) as ref:
        check(models[0], await ask(ref, "b"), BASE)


async def test_no_engine_ends_for_a_load_that_breaks_an_answer_from_other_weights_or_a_slow_one(
    tmp_path, models, monkeypatch
):
    """The load is said and tried again; what older or newer weights than the pinned ones said is no answer."""
    load, read = Loader.load, client.read_generated
    calls, drawn = 0, BASE

    async def breaks_twice(self, client, latest, ask=None, written=None):
        nonlocal calls
        calls += 1
        if calls in (1, 2):
            raise EngineGone("out of memory")
        return await load(self, client, latest, ask, written)

    def strange(answer):
        found = read(answer)
        return msgspec.structs.replace(
            found, spans=[msgspec.structs.replace(span, version=drawn) for span in found.spans]
        )

    async with sampling(tmp_path, settings(models, hung_after_s=0.05)) as ref:
        check(models[0], await ask(ref, "a"), BASE)
        monkeypatch.setattr(Loader, "load", breaks_twice)
        await ref.tell(Weights(version=FIRST, digest="", location=str(models[1])))
        await Ledger.hears(FIRST)
        check(models[1], await ask(ref, "b"), FIRST)
        for number in range(20):  # until a look at the engine falls into one
            await ask(ref, f"slow {number}", sampling=Sampling(temperature=0.0, max_new_tokens=400))
            if silent := [line["rid"] for line in events(tmp_path, "engine_silent") if "slow" in line["rid"]]:
                break
        await ref.ask(Pin(version=FIRST, location=str(models[1])), timeout_s=20)
        check(models[1], await ask(ref, "c", pin=FIRST), FIRST)
        monkeypatch.setattr(client, "read_generated", strange)
        for drawn in (BASE, SECOND):
            with pytest.raises(SamplerError, match=r"not from 0\.1 alone"):
                await ask(ref, str(drawn), pin=FIRST)
    broken = events(tmp_path, "weights_not_loaded")
    assert [(line["attempt"], line["cause"]) for line in broken] == [(1, "out of memory"), (2, "out of memory")]
    assert silent
    assert not events(tmp_path, "engine_died")


def scores(model: Path) -> Canary:
    ids = PROMPT[:12]
    logprobs = reference_logits(model, ids).log_softmax(-1)
    return Canary(ids=ids, logprobs=[float(logprobs[i, ids[i + 1]]) for i in range(11)])


async def test_weights_that_score_otherwise_are_never_served(tmp_path, models):
    config = settings(models)
    async with sampling(tmp_path, config) as ref:
        await Ledger.hears(BASE)
        await ref.tell(Weights(version=FIRST, digest="", location=str(models[1]), canary=scores(models[1])))
        await Ledger.hears(FIRST)
        await ref.tell(Weights(version=SECOND, digest="", location=str(models[2]), canary=scores(models[0])))
        await logged(tmp_path, "weights_suspect", 2)
        third = Version(lineage=0, step=3)
        await ref.tell(Weights(version=third, digest="", location=str(models[2]), canary=scores(models[2])))
        check(models[2], await ask(ref, "a"), third)
        await Ledger.hears(third)
    assert {line["version"] for line in events(tmp_path, "weights_suspect")} == {"0.2"}
    (first,) = (line for line in events(tmp_path, "weights_loaded") if line["version"] == "0.1")
    assert first["off_by"] < 1e-4
    assert "its weights are off by" in events(tmp_path, "engine_died")[0]["cause"]
