"""SGLang's HTTP contract, checked against a URL, and the two extensions of the embedded engine."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import select
import subprocess
import sys

import aiohttp
import pytest

from tests.policy.engine_tools import (
    CONTEXT,
    ROOT,
    VOCAB,
    engine_server,
    reference_logits,
    reference_logprobs,
    write_model,
)

GREEDY = {"temperature": 0.0, "max_new_tokens": 8}
LONG = {"temperature": 1.0, "max_new_tokens": 4000, "ignore_eos": True}

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return [write_model(folder / str(i), seed=i) for i in range(3)]


@pytest.fixture(scope="module")
def server(models):
    with engine_server(models[0], "--max-queued-requests", "40", "--max-running-requests", "8") as server:
        yield server


@pytest.fixture
async def fresh(server, models):
    """The server with the first weights, an empty cache, and going on."""
    await server.post("/continue_generation", {})
    await server.post("/abort_request", {"abort_all": True})
    await server.post("/update_weights_from_disk", {"model_path": str(models[0]), "weight_version": "0.0"})
    await server.post("/flush_cache", {})
    return server


def ids(first: int, count: int) -> list[int]:
    return [(first + 7 * i) % VOCAB for i in range(count)]


async def until(server, condition) -> None:
    """Return once `condition` holds of the engine's load."""
    async with asyncio.timeout(20):
        while not condition(await server.load()):  # noqa: ASYNC110 - another process has no event to wait for
            await asyncio.sleep(0.005)


async def running(server, count: int) -> None:
    """Return once `count` requests have been let into the batch."""
    await until(server, lambda load: load["num_running_reqs"] >= count)


async def drawn(server, count: int) -> None:
    """Return once `count` more tokens have been drawn."""
    before = (await server.load())["figures"]["generated_tokens"]
    await until(server, lambda load: load["figures"]["generated_tokens"] >= before + count)


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
async def test_logprobs_equal_transformers(fresh, models, temperature):
    params = {"temperature": temperature, "max_new_tokens": 24}
    answer = await fresh.generate(input_ids=ids(3, 20), sampling_params=params, return_logprob=True)
    meta, output = answer["meta_info"], answer["output_ids"]
    assert [token for _, token, _ in meta["output_token_logprobs"]] == output
    expected = reference_logprobs(models[0], ids(3, 20), output, temperature)
    assert [logprob for logprob, _, _ in meta["output_token_logprobs"]] == pytest.approx(expected, abs=1e-4)
    assert meta["weight_versions"] == [{"version": "0.0", "start": 0, "end": 24}]
    assert meta["finish_reason"] == {"type": "length", "length": 24}
    assert (meta["prompt_tokens"], meta["completion_tokens"], meta["weight_version"]) == (20, 24, "0.0")
    assert answer["text"].replace(" ", "") == "".join(f"<{i}>" for i in output)


async def test_prompt_scores_are_unscaled(fresh, models):
    prompt = ids(5, 12)
    params = {"temperature": 0.7, "max_new_tokens": 0}
    logprobs = reference_logits(models[0], prompt).log_softmax(-1)

    async def scored(start: int):
        body = {"input_ids": prompt, "sampling_params": params, "return_logprob": True, "logprob_start_len": start}
        answer = await fresh.generate(**body)
        assert answer["output_ids"] == answer["meta_info"]["output_token_logprobs"] == []
        return answer["meta_info"]["input_token_logprobs"]

    for start in (0, 3):
        found = await scored(start)
        assert [token for _, token, _ in found] == prompt[start:]
        assert found[0][0] is None
        expected = [float(logprobs[i, prompt[i + 1]]) for i in range(start, 11)]
        assert [logprob for logprob, _, _ in found[1:]] == pytest.approx(expected, abs=1e-4)
    assert await scored(12) == await scored(-1) == []


async def test_a_seed_gives_the_same_answer_again(fresh):
    params = {"temperature": 1.0, "max_new_tokens": 6}
    drawn = [
        (await fresh.generate(input_ids=ids(0, 5), sampling_params=params | {"sampling_seed": seed}))["output_ids"]
        for seed in (5, 6, 5)
    ]
    assert drawn[0] == drawn[2] != drawn[1]


async def test_stop_tokens_end_a_response_and_stay_in_it(fresh):
    plain = await fresh.generate(input_ids=ids(2, 6), sampling_params={"temperature": 1.0, "sampling_seed": 3})
    stop = plain["output_ids"][4]
    cut = plain["output_ids"][: plain["output_ids"].index(stop) + 1]
    params = {"temperature": 1.0, "sampling_seed": 3, "stop_token_ids": [stop]}
    found = await fresh.generate(input_ids=ids(2, 6), sampling_params=params)
    assert found["output_ids"] == cut
    assert found["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    assert not found["text"].endswith(f"<{stop}>") or cut.count(stop) > 1
    ignoring = await fresh.generate(input_ids=ids(2, 6), sampling_params=params | {"ignore_eos": True})
    assert ignoring["output_ids"] == plain["output_ids"]


async def test_a_stream_is_cumulative(fresh):
    body = {"input_ids": ids(4, 7), "sampling_params": GREEDY, "stream": True, "return_logprob": True}
    async with fresh.session() as session, session.post(fresh.url + "/generate", json=body) as answer:
        lines = [line for line in (await answer.text()).split("\n\n") if line]
    assert lines[-1] == "data: [DONE]"
    parts = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    assert [one["meta_info"]["finish_reason"] for one in parts[:-1]] == [None] * (len(parts) - 1)
    for before, after in itertools.pairwise(parts):
        assert after["output_ids"][: len(before["output_ids"])] == before["output_ids"]
    whole = await fresh.generate(input_ids=ids(4, 7), sampling_params=GREEDY)
    assert parts[-1]["output_ids"] == whole["output_ids"]


@pytest.mark.parametrize("retract", [False, True])
async def test_weights_change_in_the_middle_of_a_request(fresh, models, retract):
    body = {"input_ids": ids(1, 9), "sampling_params": LONG, "return_logprob": True}
    request = asyncio.create_task(fresh.generate(rid="long", **body))
    await drawn(fresh, 5)
    update = {"model_path": str(models[1]), "weight_version": "0.1", "retract_running": retract}
    status, answer = await fresh.post("/update_weights_from_disk", update)
    assert (status, answer["success"]) == (200, True)
    await drawn(fresh, 5)
    await fresh.post("/abort_request", {"rid": "long"})
    meta = (found := await request)["meta_info"]
    cut, total = meta["weight_versions"][0]["end"], len(found["output_ids"])
    assert 0 < cut < total
    assert meta["weight_versions"] == [
        {"version": "0.0", "start": 0, "end": cut},
        {"version": "0.1", "start": cut, "end": total},
    ]
    assert meta["weight_version"] == "0.1"
    logprobs = [logprob for logprob, _, _ in meta["output_token_logprobs"]]
    old = reference_logprobs(models[0], ids(1, 9), found["output_ids"], 1.0)
    assert logprobs[:cut] == pytest.approx(old[:cut], abs=1e-4)
    assert meta["num_retractions"] == retract
    if retract:
        new = reference_logprobs(models[1], ids(1, 9), found["output_ids"], 1.0)
        assert logprobs[cut:] == pytest.approx(new[cut:], abs=1e-4)
    later = await fresh.generate(input_ids=ids(1, 9), sampling_params=GREEDY, return_logprob=True)
    expected = reference_logprobs(models[1], ids(1, 9), later["output_ids"], 0.0)
    found_now = [logprob for logprob, _, _ in later["meta_info"]["output_token_logprobs"]]
    assert found_now == pytest.approx(expected, abs=1e-4)


async def test_a_failed_update_keeps_the_old_weights(fresh, models, tmp_path):
    before = await fresh.generate(input_ids=ids(1, 9), sampling_params=GREEDY)
    for body in (
        {"model_path": str(tmp_path / "nowhere"), "weight_version": "0.1"},
        {"model_path": str(models[1]), "weight_version": "0.1", "digest": "00"},
    ):
        status, answer = await fresh.post("/update_weights_from_disk", body)
        assert (status, answer["success"]) == (400, False)
    status, info = await fresh.get("/model_info")
    assert info["weight_version"] == "0.0"
    assert (await fresh.generate(input_ids=ids(1, 9), sampling_params=GREEDY))["output_ids"] == before["output_ids"]


async def test_a_pinned_version_is_sampled_beside_the_current(fresh, models):
    status, _ = await fresh.post("/pin_weights", {"weight_version": "0.2", "model_path": str(models[2])})
    assert status == 200
    body = {"input_ids": ids(1, 9), "sampling_params": GREEDY, "return_logprob": True}
    pinned, current = await asyncio.gather(fresh.generate(**body, weight_version="0.2"), fresh.generate(**body))
    for answer, model, version in ((pinned, models[2], "0.2"), (current, models[0], "0.0")):
        meta = answer["meta_info"]
        assert meta["weight_versions"] == [{"version": version, "start": 0, "end": 8}]
        expected = reference_logprobs(model, ids(1, 9), answer["output_ids"], 0.0)
        assert [logprob for logprob, _, _ in meta["output_token_logprobs"]] == pytest.approx(expected, abs=1e-4)
    await fresh.post("/unpin_weights", {"weight_version": "0.2"})
    status, answer = await fresh.post("/generate", body | {"weight_version": "0.2"})
    assert status == 400
    assert "not resident" in answer["error"]["message"]


async def test_abort_keeps_what_was_drawn(fresh):
    requests = [
        asyncio.create_task(fresh.generate(rid=rid, input_ids=ids(i, 5), sampling_params=LONG))
        for i, rid in enumerate(("r1", "r10"))
    ]
    await running(fresh, 2)
    await drawn(fresh, 4)
    for rid in ("r1", "unknown"):
        assert await fresh.post("/abort_request", {"rid": rid}) == (200, "")
    found = await requests[0]
    reason = found["meta_info"]["finish_reason"]
    assert reason == {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
    assert 0 < len(found["output_ids"]) < 4000
    assert (await fresh.load())["num_running_reqs"] == 1, "another id that begins alike goes on"
    await fresh.post("/abort_request", {"abort_all": True})
    assert (await requests[1])["meta_info"]["finish_reason"]["type"] == "abort"


@pytest.mark.parametrize("mode", ["abort", "retract", "in_place"])
async def test_pause_modes(fresh, mode):
    request = asyncio.create_task(fresh.generate(rid="long", input_ids=ids(0, 5), sampling_params=LONG))
    await drawn(fresh, 3)
    status, answer = await fresh.post("/pause_generation", {"mode": mode})
    assert (status, answer["status"]) == (200, "ok")
    late = asyncio.create_task(fresh.generate(input_ids=[1], sampling_params=GREEDY))
    await until(fresh, lambda load: load["num_waiting_reqs"] >= 1)
    passes = (await fresh.load())["figures"]["passes"]
    done, _ = await asyncio.wait({request, late}, timeout=0.1)
    assert done == ({request} if mode == "abort" else set())
    assert (await fresh.load())["figures"]["passes"] == passes
    assert (await fresh.post("/flush_cache", {}))[0] == (400 if mode == "in_place" else 200)
    await fresh.post("/continue_generation", {})
    assert (await late)["meta_info"]["finish_reason"]["type"] == "length"
    await fresh.post("/abort_request", {"rid": "long"})
    meta = (await request)["meta_info"]
    assert meta["finish_reason"]["type"] == "abort"
    assert meta["num_retractions"] == (mode == "retract")
    assert meta["completion_tokens"] >= 3


async def test_an_unknown_pause_mode_is_refused(fresh):
    assert (await fresh.post("/pause_generation", {"mode": "later"}))[0] == 400


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"input_ids": [VOCAB]}, "vocabulary"),
        ({"input_ids": [-1]}, "vocabulary"),
        ({"input_ids": []}, "empty"),
        ({"input_ids": [1] * CONTEXT}, f"longer than the model's context length ({CONTEXT} tokens)"),
        ({"input_ids": [1] * 4090, "sampling_params": {"max_new_tokens": 7}}, "maximum context length"),
        ({"input_ids": [1], "text": "<1>"}, "text"),
        ({}, "input_ids"),
        ({"input_ids": "1 2"}, "array"),
        ({"input_ids": [1], "sampling_params": {"colour": 1}}, "unknown field `colour`"),
        ({"input_ids": [1], "sampling_params": {"temperature": "hot"}}, "float"),
        ({"input_ids": [1], "sampling_params": {"temperature": -1}}, "temperature"),
        ({"input_ids": [1], "sampling_params": {"top_p": 0}}, "top_p must be in (0, 1]"),
        ({"input_ids": [1], "sampling_params": {"top_k": -2}}, "top_k must be"),
        ({"input_ids": [1], "sampling_params": {"stop": ["a"]}}, "stop"),
        ({"input_ids": [1], "sampling_params": {"watermark": True}}, "watermark is not supported"),
        ({"input_ids": [1], "sampling_params": {"n": 2}}, "n other than 1"),
        ({"input_ids": [[1], [2]]}, "int"),
        ({"input_ids": [1], "top_logprobs_num": 2}, "top_logprobs_num"),
        ({"input_ids": [1], "return_logprob": True, "logprob_start_len": 2}, "logprob_start_len"),
    ],
)
async def test_bad_requests_are_refused_with_a_reason(server, body, text):
    status, answer = await server.post("/generate", body)
    assert status == 400
    assert text in json.dumps(answer)
    if text.startswith("unknown field"):
        assert answer["error"].startswith("unknown field `colour`, expected one of `max_new_tokens`")


async def test_neutral_values_and_unknown_keys_pass(fresh):
    neutral = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "frequency_penalty": 0, "stop": []}
    params = GREEDY | neutral
    assert await fresh.generate(input_ids=[1], sampling_params=params, routing_key="x", priority=3)


async def test_a_full_line_is_refused(fresh):
    await fresh.post("/pause_generation", {"mode": "in_place"})  # nothing leaves the line
    waiting = [asyncio.create_task(fresh.generate(input_ids=[1], sampling_params=GREEDY)) for _ in range(40)]
    await until(fresh, lambda load: load["num_waiting_reqs"] == 40)
    status, answer = await fresh.post("/generate", {"input_ids": [1], "sampling_params": GREEDY})
    assert status == 503
    assert answer["error"]["message"] == "The request queue is full."
    await fresh.post("/continue_generation", {})
    assert len(await asyncio.gather(*waiting)) == 40


async def test_a_client_that_leaves_takes_its_request_along(fresh):
    before = (await fresh.load())["figures"]
    request = asyncio.create_task(fresh.generate(input_ids=ids(0, 5), sampling_params=LONG))
    await running(fresh, 1)
    request.cancel()
    await asyncio.wait({request})
    await until(fresh, lambda load: load["num_running_reqs"] == 0)
    after = (await fresh.load())["figures"]
    assert (after["aborted"], after["finished"]) == (before["aborted"] + 1, before["finished"])


async def test_what_it_says_about_itself(fresh):
    assert (await fresh.get("/health"))[0] == 200
    _, cards = await fresh.get("/v1/models")
    assert cards["data"][0]["max_model_len"] == CONTEXT
    assert (await fresh.get("/get_weight_version"))[0] == 404


async def test_an_engine_answers_nobody_without_its_token(fresh):
    body = {"model_path": "/elsewhere", "mode": "abort", "messages": []}
    routes = [("GET", "/model_info"), ("GET", "/health"), ("GET", "/v1/models")]
    routes += [("POST", path) for path in ("/pause_generation", "/update_weights_from_disk", "/v1/chat/completions")]
    async with aiohttp.ClientSession() as stranger:
        for method, path in routes:
            async with stranger.request(method, fresh.url + path, json=body) as answer:
                assert answer.status == 401
    async with fresh.session() as program:
        page = {"Origin": "https://evil.example"}
        async with program.post(f"{fresh.url}/pause_generation", json=body, headers=page) as answer:
            assert answer.status == 403
        async with program.post(f"{fresh.url}/pause_generation", data=body | {"messages": ""}) as answer:
            assert answer.status == 415
    assert (await fresh.generate(input_ids=[1], sampling_params={"max_new_tokens": 1}))["output_ids"]


def test_the_engine_dies_with_its_parent(models, tmp_path):
    """The parent is killed without a chance to clean up."""
    parent = (
        "import os, socket, subprocess, sys, time\n"
        "door = socket.create_server(('127.0.0.1', 0))\n"
        "own = ['--fd', str(door.fileno()), '--die-with-parent', str(os.getpid())]\n"
        "print(subprocess.Popen([*sys.argv[1:], *own], pass_fds=[door.fileno()]).pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    engine = [sys.executable, "-P", "-m", "policy.engine", "--model-path", str(models[0]), "--weight-version", "0.0"]
    argv, env = [sys.executable, "-c", parent, *engine], os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        started = os.pidfd_open(int(process.stdout.readline()))
        process.kill()
        readable, _, _ = select.select([started], [], [], 60)
        os.close(started)
    assert readable, "the engine outlives its parent"
