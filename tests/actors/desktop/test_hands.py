"""What is optional in a plan may be refused, and falls away with what belongs to it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from actors.desktop.config import SeatConfig
from actors.desktop.pool.leased import DesktopControl, LeasedDesktop
from actors.errors import DesktopFault, GuestRefused
from apis.observation import SCREEN
from apis.tasks.osworld import (
    ActivateWindow,
    CloseWindow,
    Evaluator,
    Sleep,
    SleepParameters,
    Task,
    WindowParameters,
    opened,
)

WINDOW = WindowParameters(window_name="gone")


class Windowless:
    """A desktop on which no window of the wanted name ever comes."""

    home, screen = "/home/agent", SCREEN

    def __init__(self, refuses: str) -> None:
        self.asked: list[str] = []
        self._refuses = refuses

    async def call(self, method: str, args: dict[str, Any], timeout_s: float) -> str:
        self.asked.append(method)
        if method == self._refuses:
            raise GuestRefused("no_window", "there is no such window")
        return "done"


async def prepared(*config: Any, refuses: str = "raise_window") -> list[str]:
    desktop = Windowless(refuses)
    task = Task(id="a", instruction="Do it", config=[*config], evaluator=Evaluator(func="infeasible"))
    await DesktopControl(cast("LeasedDesktop", desktop), SeatConfig()).prepare(task)
    return desktop.asked


async def test_a_window_that_does_not_come_is_no_fault_of_set_up() -> None:
    raised = ActivateWindow(parameters=WINDOW)
    sleep = Sleep(parameters=SleepParameters(seconds=1))
    assert await prepared(raised, sleep) == ["raise_window", "settle", "settle", "settle"]


async def test_no_keys_are_pressed_for_a_window_that_is_not_there_to_be_closed() -> None:
    closed = CloseWindow(parameters=WINDOW)
    assert "hotkey" not in await prepared(closed)
    assert "hotkey" in await prepared(closed, refuses="")


async def test_a_program_that_does_not_open_is_a_fault_of_set_up() -> None:
    with pytest.raises(DesktopFault, match="no_window"):
        await prepared(opened("/home/user/a.odt"), refuses="open_window")
