"""Asking the editor's window over its socket, with a stand-in for the window."""

from __future__ import annotations

import contextlib
import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

Answer = Callable[[dict[str, Any]], bytes]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def link(run: Path) -> Any:
    from apis.guest.code import link as code_link

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
    assert link.ask("state", time.monotonic() + 60, path="/a") == {"got": {"method": "state", "path": "/a"}}
    with pytest.raises(link.Refused, match="VS Code says: no such thing"):
        link.ask("other", time.monotonic() + 60)
    assert link.ready(1)


def test_no_window_is_said_at_once(link: Any) -> None:
    began = time.monotonic()
    with pytest.raises(link.Refused, match="VS Code is not open: open it first"):
        link.ask("state", began + 60)
    assert not link.ready(60)
    assert time.monotonic() - began < 60


def test_a_window_that_loads_is_waited_for_until_the_deadline(link: Any, run: Path) -> None:
    with (run / "code.lock").open("w") as lock:
        assert link.hold(lock)
        assert link.running()
        with pytest.raises(link.Late, match="still loading"):
            link.ask("state", time.monotonic() + 0.5)
    assert not link.running()


def test_one_alone_holds_the_lock_and_is_not_hindered_by_who_asks_for_it(
    link: Any, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "code.lock").touch()
    held = []

    @contextlib.contextmanager
    def looked_at(place: Path) -> Iterator[IO[str]]:
        with open(place) as asking:
            yield asking
            with open(place, "w") as first, open(place, "w") as second:  # while whoever asks has not gone
                held.append((link.hold(first), link.hold(second)))

    monkeypatch.setattr(link.Path, "open", looked_at)
    assert not link.running()
    assert held == [(True, False)]


def test_a_server_that_says_nothing_is_ended_in_time(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from apis.guest.code import link as code_open

    monkeypatch.setattr(code_open, "SERVER_S", 0.2)
    began = time.monotonic()
    with subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE, text=True) as silent:
        assert not code_open._listening(silent)
    assert time.monotonic() - began < 55


def test_code_lists_extensions_and_opens_no_window_for_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from apis.guest.code import link as code_open

    assert (code_open.main(["--list-extensions"]), capsys.readouterr().out) == (0, "")
    place = run / ".vscode" / "extensions" / "a.b-1"
    place.mkdir(parents=True)
    (place / "package.json").write_text("{}")
    row = {"identifier": {"id": "A.b"}, "version": "1", "relativeLocation": "a.b-1"}
    (place.parent / "extensions.json").write_text(json.dumps([row]))
    assert (code_open.main(["--list-extensions"]), capsys.readouterr().out) == (0, "a.b\n")
    (place.parent / "extensions.json").write_text("{")
    assert code_open.main(["--list-extensions"]) == 1


@pytest.mark.parametrize(("hangs_s", "said"), [(60.0, "has not shown it yet"), (0.0, "does not answer")])
def test_a_question_that_the_deadline_cuts_short_is_no_window_that_hangs(
    link: Any, window: Callable[[Answer], None], monkeypatch: pytest.MonkeyPatch, hangs_s: float, said: str
) -> None:
    monkeypatch.setattr(link, "HANGS_S", hangs_s)
    answers = iter([_line(value={"folders": []})])

    def answer(_: dict[str, Any]) -> bytes:
        if (found := next(answers, None)) is None:
            time.sleep(1.2)  # beyond the deadline
        return found or b""

    window(answer)
    with pytest.raises(link.Late, match=said):
        link.wait(lambda state: bool(state["folders"]), time.monotonic() + 1)


@pytest.mark.parametrize("said", [b"", b"{}", b"not json\n", b"x" * (2 << 20)])
def test_what_is_no_answer_is_no_window(said: bytes, link: Any, window: Callable[[Answer], None]) -> None:
    window(lambda asked: said)
    with pytest.raises(link.Refused, match="VS Code is not open"):
        link.ask("state", time.monotonic() + 60)
