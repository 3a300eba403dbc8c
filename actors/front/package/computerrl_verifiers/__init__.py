"""Tasks on desktops as an environment of the package `verifiers`: `vf-eval computerrl-verifiers`.

An episode is `computerrl.play`; every answer comes through the endpoint that verifiers hands out, which records it. The
reward is 1 for solved and 0 for not. What the infrastructure broke is an error of the rollout, never a reward.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from contextvars import ContextVar
from typing import Any, Literal

import verifiers.v1 as vf
from pydantic import Field
from verifiers.v1.runtimes import ProgramResult, SubprocessConfig

from actors.cluster.config import deploy_files
from actors.cluster.evaluate.settings import URL_TOKENS
from actors.desktop.config import EndpointConfig
from actors.desktop.player import MAX_STEPS
from actors.desktop.pool.pool import DesktopPool
from actors.errors import DesktopFault
from actors.front.command import of_endpoint
from actors.front.library import DesktopSettings, TaskHandle, opened, play
from apis.actions.spaces import ActionSpace
from apis.prompts import Form
from runtime.errors import ProtocolError

ID = "computerrl-verifiers"
ANSWER_S = 600.0
REWARD = "solved"
_POOL: ContextVar[DesktopPool | None] = ContextVar("pool", default=None)  # of the environment whose episode runs

__all__ = ["DesktopEnv", "DesktopHarness", "DesktopTaskset"]


class DesktopTask(vf.Task[vf.TaskData]):
    """A task of ours; its name is FAMILY/SPLIT/NUMBER, or SET/DOMAIN/ID of a task set."""


class DesktopTasksetConfig(vf.TasksetConfig):
    """Which tasks, as `computerrl serve-env` takes them."""

    suite: str = "desktop"
    split: Literal["train", "held-out"] = "train"
    first: int = Field(0, ge=0)
    count: int = Field(20, ge=1)  # of each family


class DesktopTaskset(vf.Taskset[DesktopTask, DesktopTasksetConfig]):
    """The tasks of a suite, a family, a task set or a file."""

    def load(self) -> Iterator[DesktopTask]:
        asked = self.config
        for task in TaskHandle.listed(asked.suite, asked.split, first=asked.first, count=asked.count):
            yield DesktopTask(vf.TaskData(name=task.id, id=task.id, prompt=task.instruction), asked.task)


class DesktopHarnessConfig(vf.HarnessConfig):
    """How an episode is played."""

    id: str = ID
    max_turns: int = Field(MAX_STEPS, ge=1)
    form: Form = "published"
    actions: ActionSpace = "both"


class DesktopHarness(vf.Harness[DesktopHarnessConfig]):
    """Plays the task of a rollout on a desktop of its environment."""

    EXECUTES_CODE = False  # in the runtime: the desktops have their own sandboxes
    NEEDS_CONTAINER = False

    async def launch(  # noqa: PLR0917 - verifiers calls it so
        self,
        ctx: Any,
        trace: Any,
        runtime: Any,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> ProgramResult:
        """Play it. Raises DesktopFault, and ProtocolError outside of DesktopEnv."""
        pool = _POOL.get()
        if pool is None:
            raise ProtocolError(f"the harness {ID} goes with the environment {ID}")
        task = TaskHandle(data.name or "")
        server = EndpointConfig(url=endpoint, model=ctx.model, timeout_s=ANSWER_S, retries=0)
        asked = {"form": self.config.form, "actions": self.config.actions}
        try:
            async with of_endpoint(server, secret, task.instruction, max_tokens=URL_TOKENS, **asked) as policy:
                played = await play(task, policy, max_turns=self.config.max_turns, desktops=pool, **asked)
        except DesktopFault:
            if trace.stop_condition is None:
                raise
            return ProgramResult(0, "", "")  # verifiers has ended it, by a limit of its own
        trace.record_reward(REWARD, float(played.success))
        return ProgramResult(0, played.detail, "")


class DesktopEnvConfig(vf.EnvConfig):
    """The desktops, as `computerrl serve-env` takes them."""

    agent: vf.AgentConfig = vf.AgentConfig(harness=DesktopHarnessConfig(), runtime=SubprocessConfig())
    desktops: int = Field(1, ge=1)
    screen: str = "1280x720"
    set: list[str] = []  # KEY=VALUE below desktops.provider


class DesktopEnv(vf.Env[DesktopEnvConfig]):
    """One agent plays each task on a fresh desktop; a rollout waits while all desktops are taken."""

    async def start(self) -> None:
        """Open the desktops. Raises ConfigError on a machine without them."""
        asked = self.config
        settings = DesktopSettings(
            count=asked.desktops, screen=asked.screen, provider=deploy_files.provider_set(asked.set)
        )
        self._free = asyncio.Semaphore(asked.desktops)
        self._opened = AsyncExitStack()
        self._pool = await self._opened.enter_async_context(opened(settings))

    async def stop(self) -> None:
        if hasattr(self, "_opened"):
            await self._opened.aclose()

    async def run(self, task: vf.Task, agents: vf.Agents) -> None:
        async with self._free:
            _POOL.set(self._pool)
            await agents.agent.run(task)


def load_environment(**settings: Any) -> vf.Env:
    """The environment with the fields of DesktopEnvConfig, for programs that load it by name."""
    return vf.load_environment(DesktopEnvConfig.model_validate({"taskset": {"id": ID}, **settings}))
