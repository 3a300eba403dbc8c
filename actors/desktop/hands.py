"""Looks at a leased desktop and acts on it: the way of an episode, and of the library.

Invariant: no action is carried out that the grammar did not type. Every call of the guest has a deadline.
"""

from __future__ import annotations

import asyncio
from typing import Any

from actors.desktop.config import SeatConfig
from actors.desktop.pool.leased import LeasedDesktop
from actors.desktop.wire import is_jpeg, png_of
from actors.errors import AgentBrokeDesktop, DesktopFault, GuestRefused
from apis.actions.grammar import RefusedAnswer, parse
from apis.actions.gui import Action
from apis.observation import Observation, from_guest
from apis.plans.action import ActionPlan, Call, plan
from apis.plans.setup import setup
from apis.prompts.names import element_names, window_names
from apis.tasks.osworld import Task
from apis.tasksets import store
from runtime.errors import ConfigError, ProtocolError


class Hands:
    """What a policy does on one desktop."""

    def __init__(self, desktop: LeasedDesktop, config: SeatConfig) -> None:
        self._desktop = desktop
        self._config = config

    async def prepare(self, task: Task) -> None:
        """Set `task` up. Raises DesktopFault, AgentBrokeDesktop."""
        try:
            at, fixture = self._desktop, store.Fixtures(task).content
            calls = await asyncio.to_thread(setup, task, at.home, fixture, at.screen)  # it reads fixtures
            await self.carry_out(calls, self._config.setup_timeout_s)
        except (GuestRefused, ConfigError) as refused:
            raise DesktopFault("setup_failed", str(refused), "task") from refused

    async def observe(self) -> Observation:
        """What shows now. Raises DesktopFault, and AgentBrokeDesktop after the first action."""
        try:
            frame = await self._desktop.call("observe", {}, self._config.call_timeout_s)
            return from_guest(frame, self._desktop.screen)
        except (ProtocolError, GuestRefused) as error:
            raise self._unseen(error) from error

    async def picture(self) -> bytes:
        """The screen as PNG for a model. A picture of another size than the screen's is refused.

        Raises DesktopFault, and AgentBrokeDesktop after the first action.
        """
        try:
            picture = await self._desktop.call("screenshot", {"format": "png"}, self._config.call_timeout_s)
            return png_of(picture, self._desktop.screen)
        except (ProtocolError, GuestRefused) as error:
            raise self._unseen(error) from error

    def _unseen(self, error: Exception) -> DesktopFault | AgentBrokeDesktop:
        """The error of a failed look: the policy has broken the desktop once it has acted, else it is a fault."""
        if self._desktop.acted:
            return AgentBrokeDesktop("not_observed", str(error))
        return DesktopFault("not_observed", str(error), "seat")

    def parse(self, text: str, observation: Observation, cut: str = "") -> Action | RefusedAnswer:
        """The action that an answer to `observation` means; `cut` says why the answer is not whole."""
        return parse(
            text,
            observation.app,
            element_names(observation) if self._config.sight.tree else (),
            window_names(observation),
            self._config.format,
            space=self._config.action_space,
            cut=cut,
            screen=observation.screen,
            unit=self._config.sight.unit,
        )

    async def act(self, action: Action, observation: Observation) -> tuple[str, bool | None]:
        """What the policy reads of `action`, chosen while `observation` was shown, and the claim of `Agent.exit`.

        Raises AgentBrokeDesktop, DesktopFault.
        """
        todo: ActionPlan = plan(action, observation)
        self._desktop.acted = True
        try:
            answers = await self.carry_out(list(todo.calls), self._config.call_timeout_s)
        except GuestRefused as refused:
            return f"Failed: {refused.text}", todo.ends
        return todo.result if todo.answer is None else answers[todo.answer], todo.ends

    async def carry_out(self, calls: list[Call], timeout_s: float) -> list[Any]:
        """The guest's answers to `calls`, each within `timeout_s`; None for what was optional and refused, or left out.

        Raises like `LeasedDesktop.call`.
        """
        answers: list[Any] = []
        for place, call in enumerate(calls):
            if place < len(answers):
                continue  # left out with the one before it
            args: dict[str, Any] = dict(call.args)
            if call.method == "settle":
                args["timeout_ms"] = min(args["timeout_ms"], self._config.settle_ms)
            try:
                answers.append(await self._desktop.call(call.method, args, timeout_s))
            except GuestRefused:
                if call.optional is None:
                    raise
                answers += [None] * (1 + call.optional)
        return answers

    async def screenshot(self) -> bytes:
        """The screen as JPEG. Raises like `LeasedDesktop.call`, and GuestRefused where another thing was sent."""
        asked = {"format": "jpeg", "quality": 60}
        picture: object = await self._desktop.call("screenshot", asked, self._config.call_timeout_s)
        if not is_jpeg(picture):
            raise GuestRefused("screenshot", "what the guest sent is no JPEG of sane size")
        return picture
