"""`computerrl eval URL`: what is refused before a desktop boots, and one episode from a scripted endpoint."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from actors.cluster import cli
from actors.cluster.evaluate import served, settings

sys.path.insert(0, str(Path(__file__).parents[1] / "desktop"))
from endpoint_stand_in import StandIn, completion

URL = "http://127.0.0.1:1/v1"
WORDS = ("--model", "m", "--tasks", "file_manager", "--instances", "1")


def arguments(*words: str) -> Any:
    return cli.build_parser().parse_args(["eval", *words])


def test_a_models_url_and_flags_become_a_deploy_file() -> None:
    words = ("--screen", "1920x1080", "--count", "3", "--max-turns", "50", "--max-tokens", "9", "--api-key-env", "K")
    args = arguments(URL, *WORDS, *words, "--decoding", "t=0.6", "--set", "model.endpoint.top_p=0.9")
    deploy = settings.deploy_of(args, served.named(args))
    endpoint = deploy.model.endpoint
    assert endpoint is not None
    assert (endpoint.url, endpoint.model, endpoint.key_env, endpoint.top_p) == (URL, "m", "K", 0.9)
    assert (deploy.desktops.screen, deploy.desktops.count, deploy.tasks.max_turns) == ("1920x1080", 3, 50)
    assert (deploy.sampling.eval_temperature, deploy.sampling.max_new_tokens, deploy.prompt.format) == (
        0.6, 9, "published",
    )  # fmt: skip
    assert deploy.replay.lease_s >= 50 * 60, "so many answers of a slow model need a longer lease"
    assert served.named(args).name == f"m at {URL}"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((URL, "--tasks", "file_manager"), "--model NAME"),
        ((URL, *WORDS, "--engine", "sglang"), "--engine: it goes with a run"),
        (("base", *WORDS), "--model: it goes with a server's URL"),
        ((URL, *WORDS), r"connection failed .*\(endpoint_silent\)"),
        ((URL, *WORDS, "--api-key-env", "NOT_SET_AT_ALL"), "NOT_SET_AT_ALL, which is not set"),
        ((URL, *WORDS, "--screen", "1920"), "WIDTHxHEIGHT"),
        ((URL, *WORDS, "--screen", "20x30"), "from 800x600"),
        (("http://me:secret@host/v1", *WORDS), "user name or password"),
    ],
)
def test_what_can_not_be_evaluated_is_refused_in_a_line(
    words: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["eval", *words, "--runs", str(tmp_path / "runs")]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1
    assert re.search(said, error), error
    assert "secret" not in error
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())


def test_a_model_elsewhere_is_not_trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    far = "model.endpoint={url: 'https://example.org/v1', model: m}"
    assert cli.main(["run", "smoke", "--dry-run", "--set", far]) == 2
    assert "evaluate it with computerrl eval URL" in capsys.readouterr().err


async def test_a_scripted_endpoint_is_evaluated_on_a_screen_of_its_own(tmp_path: Path, state_dir: str) -> None:
    async def script(body: dict[str, Any], number: int) -> web.StreamResponse:
        if number == 2:
            return web.Response(status=429, headers={"Retry-After": "0"})
        turns = [one for one in body["messages"] if one["role"] == "assistant"]
        said = "Agent.exit(success=True)" if turns else "Agent.click(coordinate=[1900, 1000])"
        return completion(f"<think>so</think>\n```python\n{said}\n```")

    async with StandIn(script) as server:
        words = ["eval", server.url, *WORDS, "--screen", "1920x1080", "--count", "1", "--name", "far", "--json"]
        words += ["--runs", str(tmp_path), "--set", f"desktops.provider.state_dir={state_dir}"]
        words += ["--set", "model.endpoint.first_backoff_s=0.0"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "actors.cluster.cli", *words, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        async with asyncio.timeout(120):
            out, err = await process.communicate()
    assert process.returncode == 0, err.decode()[-2000:]
    document = json.loads(out)
    whole = document["summary"]["whole"]["all"]
    assert (document["screen"], whole["n"], document["summary"]["faults"]) == ("1920x1080", 1, 0)
    assert len(server.bodies) == 4, "asked whether it answers, refused once, then two answers"
    assert "outside the screen" not in json.dumps(server.bodies[-1]["messages"][-1])
