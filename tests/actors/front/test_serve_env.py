"""`computerrl serve-env`: turns that are answered from outside, who is served, and what is refused."""

from __future__ import annotations

import asyncio
import re
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from actors.cluster import cli
from actors.errors import DesktopFault
from actors.front import serving
from actors.front.library import EpisodeByTurns

PLAYED: Any = SimpleNamespace(success=True)


def turn(number: int) -> Any:
    return SimpleNamespace(step=number)


async def test_turns_are_given_and_answered_in_order_until_the_end() -> None:
    said = []

    async def episode(policy: Any) -> Any:
        said.extend([await policy(turn(0)), await policy(turn(1))])
        return PLAYED

    play = EpisodeByTurns(episode)
    assert (await play.look()).step == 0
    assert (await play.answer("a")).step == 1
    assert await play.answer("b") is PLAYED
    assert said == ["a", "b"]


@pytest.mark.parametrize("turns", [0, 1])
async def test_what_breaks_an_episode_is_raised_at_the_next_turn(turns: int) -> None:
    async def episode(policy: Any) -> Any:
        for number in range(turns):
            await policy(turn(number))
        raise DesktopFault("boot_failed", "no desktop", "host")

    play = EpisodeByTurns(episode)
    for _ in range(turns):
        await play.look()
        play._answers.put_nowait("x")
    with pytest.raises(DesktopFault, match="no desktop"):
        await play.look()


async def test_an_episode_without_an_answer_is_given_up_and_one_that_is_ended_is_cancelled() -> None:
    ended = asyncio.Event()

    async def episode(policy: Any) -> Any:
        try:
            await policy(turn(0))
        finally:
            ended.set()

    slow = EpisodeByTurns(episode, answer_s=0.01)
    await slow.look()
    with pytest.raises(TimeoutError):
        await slow.look()
    ended.clear()
    left = EpisodeByTurns(episode)
    await left.look()
    left.end()
    await asyncio.wait_for(ended.wait(), 60)


def test_a_package_that_is_not_there_or_can_not_be_imported_is_named_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "find_spec", lambda name: None)
    assert cli.main(["serve-env", "file_manager"]) == 2
    assert re.search(r"needs the package openenv: \S+ -m pip install 'computerrl\[openenv\]'", capsys.readouterr().err)
    monkeypatch.setattr(serving, "find_spec", lambda name: True)
    monkeypatch.setitem(sys.modules, "openenv", None)  # as where a package that it needs has another version
    assert cli.main(["serve-env", "file_manager", "--port", "0"]) == 2
    assert "serve-env: the package openenv can't be imported: " in capsys.readouterr().err
