"""What a task's set-up asks of the guest agent."""

from __future__ import annotations

from apis.observation import SCREEN
from apis.plans.action import Call
from apis.tasks.osworld import Task
from apis.tasksets.package import Lacking
from apis.tasksets.steps import Fixture, calls_of, carried, sound_server
from runtime.errors import ConfigError


def setup(task: Task, home: str, fixture: Fixture = carried, screen: tuple[int, int] = SCREEN) -> list[Call]:
    """The calls that prepare `task` on a desktop whose HOME is `home`, with a `screen` of so many pixels.

    Raises ConfigError for a step that needs what is not here: the task is at fault.
    """
    calls: list[Call] = sound_server(task)
    for place, step in enumerate(task.config):
        try:
            calls += calls_of(step, home, fixture, screen)
        except Lacking as lacking:
            raise ConfigError(f"task {task.id}: config.{place} needs {lacking.need}") from None
    return [*calls, Call("settle", {"timeout_ms": 3000, "quiet_ms": 200})]
