"""Desktops by the OpenEnv protocol, beside its own client and validator. `make extras` installs what this needs."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("openenv", reason="openenv is not installed: make extras")

import aiohttp
from openenv.cli._validation import validate_running_environment
from openenv.core import GenericEnvClient

from apis.tasks import registry as tasks
from runtime.http import bearer
from tests.extras.served import served, session

TASK = "text_editor/train/3"
pytestmark = [pytest.mark.desktop, pytest.mark.timeout(300)]
NO_CLIENT = r"(?i)capacity|sessions"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a server of two desktops, with screenshots."""
    with served("text_editor", "--count", "8", "--desktops", "2", "--screenshots") as found:
        yield found


def play(env: Any, task: str) -> Any:
    """The task by the program's own oracle, which reads nothing but prompts."""
    wanted = f"{tasks.goal(task).wanted}\n"
    result = env.reset(task=task)
    field = re.search(r"^(e\d+) text", result.observation["prompt"], re.MULTILINE)[1]
    for text in (
        f"Agent.type({field}, text={wanted!r}, overwrite=True)",
        "Agent.hotkey(['ctrl', 's'])",
        "Agent.exit(success=True)",
    ):
        assert not result.done
        result = env.step({"text": text})
    return result


def test_its_validator_finds_nothing_amiss(address: str) -> None:
    report = validate_running_environment(address, timeout_s=20)
    assert report["passed"], report


def test_two_sessions_play_and_are_judged_and_a_third_is_refused(address: str) -> None:
    with session(address) as one, session(address) as two:
        first = one.reset(seed=3).observation
        assert first["task"] == TASK
        assert first["prompt"].startswith(f"task: {first['instruction']}\n")
        assert first["screenshot"].startswith("/9j/")  # a JPEG in base64
        with pytest.raises(RuntimeError, match=NO_CLIENT), session(address) as three:
            three.reset()
        solved = play(two, "text_editor/train/4")
        assert (solved.done, solved.reward) == (True, 1.0)
        assert solved.observation["verdict"].startswith("verified: ")
        refused = one.step({"text": "nonsense"})
        assert (refused.done, refused.reward) == (False, None)
        assert "is not a call" in refused.observation["last"]
        given_up = one.step({"text": "Agent.exit(success=False)"})
        assert (given_up.done, given_up.reward) == (True, 0.0)
        assert one.state()["step_count"] == 2
        with pytest.raises(RuntimeError, match="reset first"):
            one.step({"text": "Agent.wait()"})
        with pytest.raises(RuntimeError, match="task calc_cell/train/0 is not served here"):
            one.reset(task="calc_cell/train/0")


def test_a_client_that_left_gives_its_desktop_back(address: str) -> None:
    for _ in range(3):  # one more than there are desktops
        with session(address) as env:
            assert not env.reset(task=TASK).done


async def test_a_program_without_the_token_and_a_page_of_a_browser_are_refused(address: str) -> None:
    shown, _, host = address.removeprefix("http://token:").partition("@")
    async with aiohttp.ClientSession() as browser:
        for refused, headers in (
            (401, {}),
            (403, bearer(shown) | {"Origin": "https://evil.example"}),
            (403, bearer(shown) | {"Host": "rebound.example"}),
        ):
            async with browser.get(f"http://{host}/health", headers=headers) as answer:
                assert answer.status == refused
            with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
                await browser.ws_connect(f"http://{host}/ws", headers=headers)
    with GenericEnvClient(base_url=f"http://{host}", headers=bearer(shown)).sync() as env:
        assert not env.reset(task=TASK).done


def test_strangers_and_endless_requests_shut_no_session_out(address: str) -> None:
    at = urlsplit(address)
    shown = f"Host: {at.hostname}\r\nAuthorization: Bearer {at.password}\r\n"

    def asked(text: str) -> bytes:
        with contextlib.closing(socket.create_connection((at.hostname, at.port), timeout=20)) as stream:
            with contextlib.suppress(ConnectionError):
                stream.sendall(text.encode())
            return stream.recv(12)

    silent = [socket.create_connection((at.hostname, at.port)) for _ in range(400)]
    try:
        assert asked(f"GET /health HTTP/1.1\r\n{shown}\r\n") == b"HTTP/1.1 200"
        for more in ("X: y\r\n" * 10_000, f"X: {'y' * 1_000_000}\r\n"):
            assert asked(f"GET /health HTTP/1.1\r\n{shown}{more}\r\n") in (b"HTTP/1.1 400", b"HTTP/1.1 431")
        body = f"Content-Type: application/json\r\nContent-Length: {100 << 20}\r\n"
        assert asked(f"POST /reset HTTP/1.1\r\n{shown}{body}\r\n") == b"HTTP/1.1 413"
        with session(address) as env:
            assert not env.reset(task=TASK).done
    finally:
        for stream in silent:
            stream.close()
