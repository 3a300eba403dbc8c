"""Asking the editor's window over its socket, with a stand-in for the window."""

from __future__ import annotations

import contextlib
import fcntl
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import apis.guest

Answer = Callable[[dict[str, Any]], bytes]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "guest", apis.guest)
    return tmp_path


@pytest.fixture
def link(run: Path) -> Any:
    from apis.guest import code_link

    return code_link


@pytest.fixture
def window(run: Path) -> Iterator[Callable[[Answer], None]]:
    """Answers every request, one per connection, until the test ends."""
    with socket.socket(socket.AF_UNIX) as listener:

        def serve(answer: Answer) -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with contextlib.suppress(BrokenPipeError), connection, connection.makefile("rb") as heard:
                    connection.sendall(answer(json.loads(heard.readline())))

        def start(answer: Answer) -> None:
            listener.bind(str(run / "code.sock"))
            listener.listen()
            threading.Thread(target=serve, args=(answer,), daemon=True).start()

        yield start
        listener.shutdown(socket.SHUT_RDWR)


def _line(**said: Any) -> bytes:
    return json.dumps(said).encode() + b"\n"


def test_an_answer_is_the_value_and_an_error_a_refusal(link: Any, window: Callable[[Answer], None]) -> None:
    window(lambda asked: _line(value={"got": asked}) if asked["method"] == "state" else _line(error="no such thing"))
    assert link.ask("state", time.monotonic() + 5, path="/a") == {"got": {"method": "state", "path": "/a"}}
    with pytest.raises(link.Refused, match="VS Code says: no such thing"):
        link.ask("other", time.monotonic() + 5)
    assert link.ready(1)


def test_no_window_is_said_at_once(link: Any) -> None:
    began = time.monotonic()
    with pytest.raises(link.Refused, match="VS Code is not open: open it first"):
        link.ask("state", began + 30)
    assert not link.ready(30)
    assert time.monotonic() - began < 5


def test_a_window_that_loads_is_waited_for_until_the_deadline(link: Any, run: Path) -> None:
    with (run / "code.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert link.running()
        with pytest.raises(link.Late, match="still loading"):
            link.ask("state", time.monotonic() + 0.5)
    assert not link.running()


def test_a_state_that_does_not_come_is_late(link: Any, window: Callable[[Answer], None]) -> None:
    window(lambda asked: _line(value={"folders": []}))
    with pytest.raises(link.Late, match="has not shown it yet"):
        link.wait(lambda state: bool(state["folders"]), time.monotonic() + 0.5)


@pytest.mark.parametrize("said", [b"", b"{}", b"not json\n", b"x" * (2 << 20)])
def test_what_is_no_answer_is_no_window(said: bytes, link: Any, window: Callable[[Answer], None]) -> None:
    window(lambda asked: said)
    with pytest.raises(link.Refused, match="VS Code is not open"):
        link.ask("state", time.monotonic() + 5)
