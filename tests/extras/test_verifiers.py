"""Tasks on desktops by the package verifiers' own evaluation program. `make extras` installs what this needs."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verifiers", reason="verifiers is not installed here: .cache/extras-verifiers has it")

import computerrl_verifiers
import verifiers.v1 as vf
from aiohttp import web

from apis.tasks import registry as tasks
from tests.actors.desktop.endpoint_stand_in import StandIn, completion

TASKS = [f"text_editor/train/{number}" for number in range(4)]
KEY = "key-of-the-server"


def answered(text: str) -> web.Response:
    """With all that the protocol asks of an answer."""
    usage = {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3}
    return completion(text, created=1, model="org/m", usage=usage)


async def scripted(body: dict[str, Any], _: int) -> web.StreamResponse:
    """As a model that knows the first task, gives the second one up, waits at the third, and breaks at the fourth."""
    prompt = body["messages"][-1]["content"]
    asked = next(n for n, task in enumerate(TASKS) if prompt.startswith(f"task: {tasks.task(task).instruction}\n"))
    if asked == 3:
        return web.Response(status=500)
    if asked:
        return answered("Agent.exit(success=False)" if asked == 1 else "Agent.wait()")
    field = re.search(r"^(e\d+) text", prompt, re.MULTILINE)[1]
    wanted = f"{tasks.goal(TASKS[0]).wanted}\n"
    lines = (f"Agent.type({field}, text={wanted!r}, overwrite=True)", "Agent.hotkey(['ctrl', 's'])")
    done = [line for line in lines if line.partition("(")[0] in prompt]
    return answered((*lines, "Agent.exit(success=True)")[len(done)])


def lines(folder: Path) -> list[str]:
    return [line for file in folder.rglob("traces.jsonl") for line in file.read_text().splitlines()]


@pytest.mark.desktop
@pytest.mark.timeout(600)
async def test_its_evaluation_plays_tasks_and_their_verdicts_are_the_rewards(tmp_path: Path) -> None:
    command = [
        str(Path(sys.executable).with_name("vf-eval")), computerrl_verifiers.ID, "--env.taskset.suite", "text_editor",
        "--env.taskset.count", "4", "--env.agent.harness.form", "compact", "--env.agent.max-turns", "4",
        "--client.api-key-var", "STAND_IN", "--model", "org/m", "--no-push", "--no-rich", "--output-dir", str(tmp_path),
    ]  # fmt: skip
    env = os.environ | {"STAND_IN": KEY}
    async with StandIn(scripted) as server:
        process = await asyncio.create_subprocess_exec(
            *command, "--client.base-url", server.url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            env=env,
        )  # fmt: skip
        output, _ = await process.communicate()
    written = lines(tmp_path)
    assert len(written) == 4, output.decode()
    rollouts = [trace for line in written for trace in json.loads(line)["traces"]]
    solved, given_up, endless, broken = sorted(rollouts, key=lambda rollout: rollout["task"]["data"]["name"])
    assert [one["rewards"]["solved"]["score"] for one in (solved, given_up)] == [1.0, 0.0]
    assert [len(one["calls"]) for one in (solved, given_up)] == [3, 1]
    assert endless["stop_condition"] == "max_turns"
    assert broken["errors"]
    assert not endless["rewards"]
    assert not broken["rewards"]
    assert not any(one["errors"] for one in (solved, given_up, endless))
    assert set(server.keys) == {f"Bearer {KEY}"}


def test_a_program_loads_the_environment_by_name() -> None:
    env = computerrl_verifiers.load_environment(taskset={"id": computerrl_verifiers.ID, "suite": "text_editor"})
    assert isinstance(env, vf.Env)
    assert next(iter(env.taskset)).data.name == TASKS[0]
