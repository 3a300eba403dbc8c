"""`computerrl eval URL`: what is refused before a desktop boots, and episodes of a scripted endpoint that sees."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from actors.cluster import cli
from actors.cluster.config.schema import Deploy
from actors.cluster.evaluate import settings
from actors.desktop.config import EndpointConfig
from apis.tasks.osworld import HOME, data_url
from apis.tasksets import store
from runtime.errors import ConfigError
from runtime.program import program
from tests.actors.desktop.endpoint_stand_in import StandIn, always, completion

URL = "http://127.0.0.1:1/v1"
WORDS = ("--model-name", "m", "--tasks", "file_manager", "--instances", "1")


def arguments(*words: str) -> Any:
    return cli.build_parser().parse_args(["eval", *words])


def test_a_models_url_and_flags_become_a_deploy_file() -> None:
    words = ("--screen", "1920x1080", "--count", "3", "--max-turns", "50", "--max-tokens", "9", "--api-key-env", "K")
    args = arguments(URL, *WORDS, *words, "--decoding", "t=0.6", "--set", "model.endpoint.top_p=0.9")
    deploy = settings.deploy_of(args, settings.named(args))
    endpoint = deploy.model.endpoint
    assert endpoint is not None
    assert (endpoint.url, endpoint.model, endpoint.key_env, endpoint.top_p) == (URL, "m", "K", 0.9)
    assert (deploy.desktops.screen, deploy.desktops.count, deploy.tasks.max_turns) == ("1920x1080", 3, 50)
    assert (deploy.sampling.eval_temperature, deploy.sampling.max_new_tokens, deploy.prompt.format) == (
        0.6, 9, "published",
    )  # fmt: skip
    assert deploy.replay.lease_s >= 50 * 60, "so many answers of a slow model need a longer lease"
    assert settings.named(args).name == f"m at {URL}"


@pytest.mark.parametrize(
    ("status", "model", "picture", "said"),
    [
        (401, "org/m", False, "it wants a key: --api-key-env"),
        (404, "org/n", False, "--model-name org/n: it serves no such model, did you mean org/m[?]"),
        (404, "org/m", False, "mostly ends in /v1"),
        (400, "org/m", True, "leave --observation out"),
        (200, "org/m", False, "mostly ends in /v1"),
    ],
)
async def test_a_refusal_of_the_server_says_what_to_do(status: int, model: str, picture: bool, said: str) -> None:
    async with StandIn(always(lambda: web.Response(status=status, text="<html>no</html>"))) as server:
        config = EndpointConfig(url=server.url, model=model, first_backoff_s=0.0)
        with pytest.raises(ConfigError, match=said):
            await asyncio.to_thread(settings.refuse_unanswering, config, picture=picture)


@pytest.mark.parametrize("key", Deploy().places)
def test_machines_of_a_file_are_changed_before_they_are_refused(tmp_path: Path, key: str) -> None:
    file = tmp_path / "far.yaml"
    section, _, place = key.partition(".")
    file.write_text(f"extends: local\n{section}: {{{place}: {{desktops: 1}}}}\n")
    words = (URL, "--model-name", "m", "--like", str(file))
    with pytest.raises(ConfigError, match=f"far.yaml: {key} asks for machines"):
        settings.deploy_of(arguments(*words), settings.named(arguments(*words)))
    for mended, engine in ((f"{key}={{}}", "none"), ("cluster.engine=ray", "ray")):
        args = arguments(*words, "--set", mended)
        assert settings.deploy_of(args, settings.named(args)).cluster.engine == engine


def test_a_model_elsewhere_is_not_trained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    far = "model.endpoint={url: 'https://example.org/v1', model: m}"
    assert cli.main(["run", "smoke", "--dry-run", "--set", far]) == 2
    assert capsys.readouterr().err.endswith(f"can't be trained: evaluate it with  {program()} eval URL\n")


def test_what_the_model_sees_is_chosen_by_flags(tmp_path: Path) -> None:
    template = tmp_path / "mine.yaml"
    template.write_text("system: Do {{task}}\n")
    args = arguments(URL, *WORDS, "--observation", "picture", "--prompt", str(template))
    deploy = settings.deploy_of(args, settings.named(args))
    sight = deploy.prompt.sight
    assert (sight.observed, sight.unit, sight.template.system) == ("picture", "thousandths", "Do {{task}}")
    args = arguments(URL, *WORDS, "--observation", "both", "--coordinates", "pixels")
    assert settings.deploy_of(args, settings.named(args)).prompt.sight.unit == "pixels"
    template.write_text("sytem: Do\n")
    args = arguments(URL, *WORDS, "--prompt", str(template))
    with pytest.raises(ConfigError, match=r"--prompt .*mine.yaml.*sytem.*system"):
        settings.deploy_of(args, settings.named(args))


def task_file(folder: Path, name: str, evaluator: dict[str, Any]) -> None:
    """A task whose command, which no guard looks into, makes the text right from the start, or an infeasible one."""
    files = [{"url": data_url(b"new"), "path": f"{HOME}/made.txt"}]
    command = ["cp", f"{HOME}/made.txt", f"{HOME}/notes.txt"]
    config = [
        {"type": "download", "parameters": {"files": files}}, {"type": "execute", "parameters": {"command": command}},
    ]  # fmt: skip
    task = {"id": name, "instruction": f"Do {name}", "config": config, "evaluator": evaluator}
    (folder / f"{name}.json").write_text(json.dumps(task))


async def test_a_scripted_endpoint_that_sees_the_screen_is_evaluated_on_task_files(
    tmp_path: Path, state_dir: str
) -> None:
    async def script(body: dict[str, Any], number: int) -> web.StreamResponse:
        if number == 2:
            return web.Response(status=429, headers={"Retry-After": "0"})
        turns = [one for one in body["messages"] if one["role"] == "assistant"]
        return completion(f"<answer>{'Agent.wait()' if turns else 'Agent.click(coordinate=[990, 926])'}</answer>")

    tasks = tmp_path / "files" / "notes"
    tasks.mkdir(parents=True)
    kept = {"type": "vm_file", "path": f"{HOME}/notes.txt", "dest": "notes.txt"}
    rule = {"type": "rule", "rules": {"expected": ["new"]}}
    task_file(tasks, "kept", {"func": "file_contains", "result": kept, "expected": rule})
    task_file(tasks, "never", {"func": "infeasible"})
    async with StandIn(script) as server:
        words = ["eval", server.url, "--model", "org/m", "--tasks", str(tasks.parent), "--screen", "1920x1080"]
        words += ["--count", "1", "--max-turns", "2", "--observation", "picture", "--name", "far", "--json"]
        words += ["--set", f"desktops.provider.state_dir={state_dir}"]
        words += ["--runs", str(tmp_path / "runs"), "--set", "model.endpoint.first_backoff_s=0.0"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "actors.cluster.cli", *words, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE, env={**os.environ, store.PLACE: str(tmp_path / "store")},
        )  # fmt: skip
        async with asyncio.timeout(120):
            out, err = await process.communicate()
    assert process.returncode == 0, err.decode()[-2000:]
    document = json.loads(out)
    assert (document["screen"], document["summary"]["episodes"], document["summary"]["faults"]) == ("1920x1080", 2, 0)
    scores = {one["name"]: (one["feasible"]["successes"], one["infeasible"]["successes"]) for one in document["scores"]}
    assert (scores["strict"], scores["osworld"], scores["published"]) == ((0, 0), (1, 0), (0, 1))
    assert len(server.bodies) == 6, "asked whether it answers, refused once, then two answers each"
    image, _text = server.bodies[-1]["messages"][-1]["content"]
    head = base64.b64decode(image["image_url"]["url"].partition(",")[2])[:24]
    assert (head[1:4], struct.unpack(">II", head[16:])) == (b"PNG", (1920, 1080))
    assert "outside the screen" not in json.dumps(server.bodies[-1]["messages"][-1])
