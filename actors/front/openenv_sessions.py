"""Desktops of `computerrl serve-env` as OpenEnv sessions, which TRL's asynchronous GRPO drives.

This module needs `openenv`.
"""

from __future__ import annotations

from typing import Any

from openenv.core import GenericEnvClient
from openenv.core.env_server.mcp_types import Tool
from openenv.core.harness import (
    HarnessAdapter,
    HarnessRolloutResult,
    HarnessRunLimits,
    ModelStep,
    ResourceSession,
    ResourceSessionFactory,
    StepEnvSessionAdapter,
    ToolTraceEntry,
)

ANSWER = "answer"  # the only tool: what the model says
MESSAGE_S = 300.0  # for a desktop to boot, or an action to be carried out
_TOOL = Tool(
    name=ANSWER,
    description="Take the next action on the desktop",
    input_schema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
)


def messages(observation: dict[str, Any]) -> list[dict[str, Any]]:
    """What a model reads at a turn. The prompt holds the episode so far, so that no earlier message is needed."""
    system = [{"role": "system", "content": observation["system"]}] if observation["system"] else []
    return [*system, {"role": "user", "content": observation["prompt"]}]


class DesktopSessions(ResourceSessionFactory):  # type: ignore[misc,type-arg,unused-ignore]
    """Sessions at the address with the token that `serve-env` prints; they can be pickled."""

    def __init__(self, address: str) -> None:
        self._address = address

    def create(self, task: Any, seed: int | None = None, episode_id: str | None = None) -> ResourceSession:
        """A session whose episode has begun. `task` is an id, or messages whose last one is an id."""
        client = GenericEnvClient(base_url=self._address, message_timeout_s=MESSAGE_S).sync()
        client.connect()
        return StepEnvSessionAdapter(
            client,
            seed=seed,
            episode_id=episode_id,
            tool_specs=[_TOOL],
            action_builder=lambda _, arguments: {"text": arguments["text"]},
            initial_messages_builder=lambda result, _: messages(result.observation),
            reset_kwargs={"task": task if isinstance(task, str) else task[-1]["content"]},
        )


class AnswerTurns(HarnessAdapter):  # type: ignore[misc,unused-ignore]
    """Gives each text of the model to the desktop, whatever it says, until the episode ends or turns run out.

    An episode that has not ended by then has no reward: let `--max-turns` of the server be the smaller limit.
    """

    def run_white_box(
        self, model_step: ModelStep, session: ResourceSession, limits: HarnessRunLimits | None = None
    ) -> HarnessRolloutResult:
        limits = limits or HarnessRunLimits()
        result, seen = HarnessRolloutResult(), session.initial_messages()
        for _ in range(limits.max_turns):
            step = model_step(seen, [], dict(limits.sampling))
            arguments = {"text": step.response.content}
            done = session.call_tool(ANSWER, arguments)
            result.tool_trace.append(ToolTraceEntry(ANSWER, arguments, done))
            result.messages += [*seen, {"role": "assistant", "content": step.response.content}]
            if done.done:
                result.done = True
                break
            seen = messages(done.data["observation"])
        return result

    def run_black_box(self, session: ResourceSession, limits: HarnessRunLimits | None = None) -> HarnessRolloutResult:
        raise NotImplementedError("the trainer's model answers: run_white_box")
