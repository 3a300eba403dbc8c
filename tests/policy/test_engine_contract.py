"""What the embedded engine adds to the contract that `tests/sglang/test_contract.py` checks, and its refusals."""

from __future__ import annotations

import asyncio
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
    async with asyncio.timeout(60):
        while not condition(await server.load()):  # noqa: ASYNC110 - another process has no event to wait for
            await asyncio.sleep(0.005)


async def test_a_seed_gives_the_same_answer_again(fresh):
    params = {"temperature": 1.0, "max_new_tokens": 6}
    drawn = [
        (await fresh.generate(input_ids=ids(0, 5), sampling_params=params | {"sampling_seed": seed}))["output_ids"]
        for seed in (5, 6, 5)
    ]
    assert drawn[0] == drawn[2] != drawn[1]


async def test_weights_of_another_digest_are_not_installed(fresh, models):
    body = {"model_path": str(models[1]), "weight_version": "0.1", "digest": "00"}
    status, answer = await fresh.post("/update_weights_from_disk", body)
    assert (status, answer["success"]) == (400, False)
    assert (await fresh.get("/model_info"))[1]["weight_version"] == "0.0"


async def test_an_unknown_pause_mode_is_refused(fresh):
    assert (await fresh.post("/pause_generation", {"mode": "later"}))[0] == 400


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"input_ids": [VOCAB]}, "vocabulary"),
        ({"input_ids": [-1]}, "vocabulary"),
        ({"input_ids": [1], "text": "<1>"}, "text"),
        ({"input_ids": [1], "sampling_params": {"temperature": "hot"}}, "float"),
        ({"input_ids": [1], "sampling_params": {"top_p": 0}}, "top_p must be in (0, 1]"),
        ({"input_ids": [1], "sampling_params": {"top_k": 2}}, "top_k other than -1"),
        ({"input_ids": [1], "sampling_params": {"stop": ["a"]}}, "stop"),
        ({"input_ids": [1], "sampling_params": {"watermark": True}}, "watermark is not supported"),
        ({"input_ids": [1], "sampling_params": {"n": 2}}, "n other than 1"),
        ({"input_ids": [[1], [2]]}, "int"),
        ({"input_ids": [1], "top_logprobs_num": 2}, "top_logprobs_num"),
        ({"input_ids": [1], "session_params": {"id": "a"}}, "session_params"),
        ({"input_ids": [1], "video_data": ["x"]}, "video_data"),
        ({"input_ids": [1], "return_logprob": True, "logprob_start_len": 2}, "logprob_start_len"),
    ],
)
async def test_bad_requests_are_refused_with_a_reason(server, body, text):
    status, answer = await server.post("/generate", body)
    assert status == 400
    assert text in json.dumps(answer)


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
    await until(fresh, lambda load: load["num_running_reqs"] >= 1)
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
