"""SGLang's HTTP contract as samplers use it: the same checks on the embedded engine and on the real server."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.policy.engine_tools import CONTEXT, VOCAB, Server, reference_logits, reference_logprobs

pytestmark = pytest.mark.engine  # a server of this module's own
GREEDY = {"temperature": 0.0, "max_new_tokens": 8}
LONG = {"temperature": 1.0, "max_new_tokens": 3000, "ignore_eos": True}
WAIT_S = 60.0  # for something that happens in a fraction of a second on an idle machine


@pytest.fixture
async def fresh(server: Server, models: list[Path]) -> Server:
    """The server with the first weights, an empty cache, and going on."""
    await server.post("/continue_generation", {})
    await server.post("/abort_request", {"abort_all": True})
    await server.post("/update_weights_from_disk", {"model_path": str(models[0]), "weight_version": "0.0"})
    return server


def ids(first: int, count: int) -> list[int]:
    return [(first + 7 * i) % VOCAB for i in range(count)]


class Streamed:
    """A long request whose tokens are counted as they come."""

    def __init__(self, server: Server, rid: str, prompt: list[int]) -> None:
        self._server = server
        self._body = {"rid": rid, "input_ids": prompt, "sampling_params": LONG, "return_logprob": True, "stream": True}
        self._more = asyncio.Event()
        self.last: dict[str, Any] = {"output_ids": []}
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> dict[str, Any]:
        timeout = aiohttp.ClientTimeout(total=WAIT_S)
        async with self._server.session(read_bufsize=1 << 24, timeout=timeout) as session:
            async with session.post(self._server.url + "/generate", json=self._body) as answer:
                async for line in answer.content:
                    if line.startswith(b"data: {"):
                        self.last = json.loads(line.removeprefix(b"data: "))
                        self._more.set()
        self._more.set()
        return self.last

    async def drawn(self, count: int) -> None:
        """Return once `count` more tokens have been drawn."""
        wanted = len(self.last["output_ids"]) + count
        async with asyncio.timeout(WAIT_S):
            while len(self.last["output_ids"]) < wanted:
                assert not self._task.done(), self.last
                self._more.clear()
                await self._more.wait()

    @property
    def ended(self) -> bool:
        """Whether its last part has come."""
        return self._task.done()

    async def end(self) -> dict[str, Any]:
        """The whole answer."""
        return await self._task


def logprobs_of(answer: dict[str, Any]) -> list[float]:
    triples = answer["meta_info"]["output_token_logprobs"]
    assert [token for _, token, _ in triples] == answer["output_ids"]
    return [logprob for logprob, _, _ in triples]


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.slow
async def test_logprobs_are_those_of_transformers(fresh: Server, models: list[Path], temperature: float) -> None:
    params = {"temperature": temperature, "max_new_tokens": 24}
    answer = await fresh.generate(input_ids=ids(3, 20), sampling_params=params, return_logprob=True)
    expected = reference_logprobs(models[0], ids(3, 20), answer["output_ids"], temperature)
    assert logprobs_of(answer) == pytest.approx(expected, abs=1e-4)
    meta = answer["meta_info"]
    assert meta["weight_versions"] == [{"version": "0.0", "start": 0, "end": 24}]
    assert meta["finish_reason"] == {"type": "length", "length": 24}
    assert (meta["prompt_tokens"], meta["completion_tokens"], meta["weight_version"]) == (20, 24, "0.0")


async def test_prompt_scores_are_unscaled(fresh: Server, models: list[Path]) -> None:
    prompt = ids(5, 12)
    logprobs = reference_logits(models[0], prompt).log_softmax(-1)
    for start in (0, 3):
        answer = await fresh.generate(
            input_ids=prompt,
            sampling_params={"temperature": 0.7, "max_new_tokens": 0},
            return_logprob=True,
            logprob_start_len=start,
        )
        assert answer["output_ids"] == answer["meta_info"]["output_token_logprobs"] == []
        found = answer["meta_info"]["input_token_logprobs"]
        assert [token for _, token, _ in found] == prompt[start:]
        assert found[0][0] is None
        expected = [float(logprobs[i, prompt[i + 1]]) for i in range(start, 11)]
        assert [logprob for logprob, _, _ in found[1:]] == pytest.approx(expected, abs=1e-4)


async def test_requests_at_once_are_answered_as_each_alone(fresh: Server) -> None:
    prompts = [ids(i, 9 + i) for i in range(6)]
    alone = [await fresh.generate(input_ids=prompt, sampling_params=GREEDY) for prompt in prompts]
    together = await fresh.each(prompts, sampling_params=GREEDY)
    assert [one["output_ids"] for one in together] == [one["output_ids"] for one in alone]


async def test_a_shared_prefix_is_cached(fresh: Server) -> None:
    await fresh.post("/flush_cache", {})
    first = await fresh.generate(input_ids=[*ids(1, 40), 3], sampling_params=GREEDY)
    second = await fresh.generate(input_ids=[*ids(1, 40), 4, 5], sampling_params=GREEDY)
    assert first["meta_info"]["cached_tokens"] == 0
    assert second["meta_info"]["cached_tokens"] == 40


async def test_stop_tokens_end_a_response_and_stay_in_it(fresh: Server) -> None:
    plain = await fresh.generate(input_ids=ids(2, 6), sampling_params=GREEDY)
    stop = plain["output_ids"][4]
    cut = plain["output_ids"][: plain["output_ids"].index(stop) + 1]
    params = GREEDY | {"stop_token_ids": [stop]}
    found = await fresh.generate(input_ids=ids(2, 6), sampling_params=params)
    assert found["output_ids"] == cut
    assert found["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    ignoring = await fresh.generate(input_ids=ids(2, 6), sampling_params=params | {"ignore_eos": True})
    assert ignoring["output_ids"] == plain["output_ids"]


@pytest.mark.parametrize("mode", ["retract", "in_place"])
async def test_weights_change_in_the_middle_of_a_request(fresh: Server, models: list[Path], mode: str) -> None:
    prompt = ids(1, 9)
    request = Streamed(fresh, f"long-{mode}", prompt)
    await request.drawn(5)
    assert (await fresh.post("/pause_generation", {"mode": mode}))[0] == 200
    update = {"model_path": str(models[1]), "weight_version": "0.1", "flush_cache": mode == "retract"}
    status, answer = await fresh.post("/update_weights_from_disk", update)
    assert (status, answer["success"]) == (200, True)
    assert (await fresh.post("/continue_generation", {}))[0] == 200
    await request.drawn(40)  # beyond what was drawn before the pause and was still under way
    await fresh.post("/abort_request", {"rid": f"long-{mode}"})
    found = await request.end()
    meta, total = found["meta_info"], len(found["output_ids"])
    cut = meta["weight_versions"][0]["end"]
    assert 0 < cut < total
    assert meta["weight_versions"] == [
        {"version": "0.0", "start": 0, "end": cut},
        {"version": "0.1", "start": cut, "end": total},
    ]
    assert meta["num_retractions"] == (mode == "retract")
    logprobs = logprobs_of(found)
    old = reference_logprobs(models[0], prompt, found["output_ids"], 1.0)
    assert logprobs[:cut] == pytest.approx(old[:cut], abs=1e-4)
    if mode == "retract":
        new = reference_logprobs(models[1], prompt, found["output_ids"], 1.0)
        assert logprobs[cut:] == pytest.approx(new[cut:], abs=1e-4)
    await fresh.post("/flush_cache", {})
    later = await fresh.generate(input_ids=prompt, sampling_params=GREEDY, return_logprob=True)
    expected = reference_logprobs(models[1], prompt, later["output_ids"], 0.0)
    assert logprobs_of(later) == pytest.approx(expected, abs=1e-4)


async def test_a_failed_update_keeps_the_old_weights(fresh: Server, tmp_path: Path) -> None:
    before = await fresh.generate(input_ids=ids(1, 9), sampling_params=GREEDY)
    body = {"model_path": str(tmp_path / "nowhere"), "weight_version": "0.1"}
    status, answer = await fresh.post("/update_weights_from_disk", body)
    assert (status, answer["success"]) == (400, False)
    assert (await fresh.get("/model_info"))[1]["weight_version"] == "0.0"
    assert (await fresh.generate(input_ids=ids(1, 9), sampling_params=GREEDY))["output_ids"] == before["output_ids"]


async def test_abort_keeps_what_was_drawn(fresh: Server) -> None:
    first, second = (Streamed(fresh, rid, ids(i, 5)) for i, rid in enumerate(("one", "two")))
    await first.drawn(3)
    await second.drawn(3)
    for rid in ("one", "unknown"):
        assert (await fresh.post("/abort_request", {"rid": rid}))[0] == 200
    found = await first.end()
    reason = found["meta_info"]["finish_reason"]
    assert (reason["type"], reason["message"]) == ("abort", "Aborted")
    assert 0 < len(found["output_ids"]) < LONG["max_new_tokens"]
    await second.drawn(3)
    await fresh.post("/abort_request", {"abort_all": True})
    assert (await second.end())["meta_info"]["finish_reason"]["type"] == "abort"


@pytest.mark.parametrize("mode", ["abort", "retract", "in_place"])
async def test_pause_modes(fresh: Server, mode: str) -> None:
    request = Streamed(fresh, f"paused-{mode}", ids(0, 5))
    await request.drawn(3)
    status, answer = await fresh.post("/pause_generation", {"mode": mode})
    assert (status, answer["status"]) == (200, "ok")
    late = asyncio.create_task(fresh.generate(input_ids=[1], sampling_params=GREEDY))
    if mode == "abort":
        assert (await request.end())["meta_info"]["finish_reason"]["type"] == "abort"
    else:
        assert (await fresh.post("/flush_cache", {}))[0] == (400 if mode == "in_place" else 200)
        assert not request.ended
    assert not late.done()
    await fresh.post("/continue_generation", {})
    assert (await late)["meta_info"]["finish_reason"]["type"] == "length"
    if mode != "abort":
        await request.drawn(20)
        await fresh.post("/abort_request", {"rid": f"paused-{mode}"})
        meta = (await request.end())["meta_info"]
        assert (meta["finish_reason"]["type"], meta["num_retractions"]) == ("abort", mode == "retract")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"input_ids": []}, "empty"),
        ({"input_ids": [1] * CONTEXT}, f"context length ({CONTEXT} tokens)"),
        ({"input_ids": [1] * 4090, "sampling_params": {"max_new_tokens": 7}}, "maximum context length"),
        ({}, "input_ids"),
        ({"input_ids": "1 2"}, "input_ids"),
        ({"input_ids": [1], "sampling_params": {"colour": 1}}, "unknown field `colour`"),
        ({"input_ids": [1], "sampling_params": {"temperature": -1}}, "temperature"),
    ],
)
async def test_bad_requests_are_refused_with_a_reason(fresh: Server, body: dict[str, Any], text: str) -> None:
    status, answer = await fresh.post("/generate", body)
    assert status == 400
    if text != "input_ids":  # whose wrong type each words in its own way
        assert text in json.dumps(answer)
    assert (await fresh.generate(input_ids=[1], sampling_params=GREEDY))["output_ids"]


async def test_unknown_keys_beside_the_parameters_pass(fresh: Server) -> None:
    assert await fresh.generate(input_ids=[1], sampling_params=GREEDY, routing_key="x", something_else=3)
