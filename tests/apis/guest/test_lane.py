"""One thread per application: deadlines, refusals while it is stuck, and errors as one line."""

from __future__ import annotations

import threading
from typing import Any

import pytest


@pytest.fixture
def lane(monkeypatch: pytest.MonkeyPatch) -> Any:
    from apis.guest.application import Lane

    return Lane("VLC")


def _fail() -> None:
    raise ValueError("no such thing")


def test_a_call_has_its_value_or_its_error(lane: Any) -> None:
    assert lane.free
    assert lane.call("play", lambda: "playing", 5.0) == "playing"
    with pytest.raises(Exception, match=r"^play: ValueError: no such thing$"):
        lane.call("play", _fail, 5.0)
    assert lane.call("play", threading.current_thread, 5.0).daemon
    assert lane.free


def test_while_a_call_is_stuck_later_ones_are_refused(lane: Any) -> None:
    gate = threading.Event()
    with pytest.raises(Exception, match=r"^play: VLC did not answer within 0\.05 s"):
        lane.call("play", gate.wait, 0.05)
    assert not lane.free
    done: list[str] = []
    with pytest.raises(Exception, match=r"^VLC has been busy with play for "):
        lane.call("pause", lambda: done.append("pause"), 0.05)
    gate.set()
    assert lane.call("next", lambda: "moved", 5.0) == "moved"
    assert done == []
