"""`computerrl play`: by hand, by a model, kept, and shown on a page."""

from __future__ import annotations

import functools
import getpass
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import aiohttp
import msgspec
import pytest

from actors.cluster import cli
from actors.cluster.config import models as folders
from actors.cluster.runs import recordings
from actors.desktop.config import SeatConfig
from actors.desktop.link import MAX_PICTURE
from actors.desktop.player import Play
from actors.desktop.pool.leased import DesktopControl, LeasedDesktop
from actors.errors import GuestRefused
from actors.front import command, library
from actors.front.library import TaskHandle
from actors.front.person import Person, PlayPage, read_line, typed
from actors.replay.demos import demo_files
from actors.replay.messages import Outcome
from apis.actions.grammar import parse as grammar
from apis.observation import Element, Observation, Window
from apis.prompts.compact import render_compact
from policy.tokenizer import Tokenizer
from runtime.errors import ConfigError
from tests.actors.replay.ledger_tools import payload

TASK = "file_manager/train/3"
SCREEN = Observation(
    (Window(1, "pcmanfm", "<b>Documents</b>", True),), (Element("icon", "a.txt", "", 10, 20, 80, 20, ("sen",)),)
)


def seen(step: int = 0, last: str | None = None) -> library.Seen:
    """A turn before a screen with one icon."""
    task = TaskHandle(TASK)
    prompt = render_compact(task.instruction, [], SCREEN, last)

    async def picture() -> bytes:
        return b"\xff\xd8 a picture"

    def parse(text: str) -> Any:
        return grammar(text, SCREEN.app, ["e1"], ["w1"])

    def ids(tokenizer: Tokenizer) -> list[int]:
        return tokenizer.prompt_ids(prompt)

    return library.Seen(task, step, prompt, SCREEN, last, (), "compact", picture, parse, ids)


def lines(*said: str) -> Any:
    """A terminal that gives these lines and ends."""
    left: Iterator[str] = iter(said)

    def read() -> str:
        try:
            return next(left)
        except StopIteration:
            raise EOFError from None

    return read


async def test_a_person_is_helped_and_refused_without_losing_the_turn(capsys: pytest.CaptureFixture[str]) -> None:
    person = Person(read=lines("", "?", "? scroll", "Agent.clik(e1)", "Agent.click(e9)", " Agent.click(e1) "))
    assert await person(seen()) == "e1 icon a.txt -> click\nAgent.click(coordinates=e1)"
    said = capsys.readouterr().out
    assert "Agent.click(coordinates: List" in said
    assert "direction: which way the wheel turns: one of 'up', 'down'" in said
    assert "did you mean Agent.click?" in said
    assert "e9" in said
    assert await Person(read=lines())(seen()) == "Agent.exit(success=False)"


def test_the_program_ends_while_a_thread_waits_for_a_line() -> None:
    """Of a pipe that stays open; only what it takes is loaded, to be quick."""
    code = f"import os, threading, time\n{inspect.getsource(typed)}\nprint(typed())\n"
    code += "threading.Thread(target=typed, daemon=True).start()\ntime.sleep(0.2)"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("kiwi \N{BANANA}\nleft".encode())
        process.stdin.flush()
        assert process.wait(30) == 0
        assert process.stdout.read().decode() == "kiwi \N{BANANA}\n"


async def test_a_look_without_a_picture_is_shown_and_the_end_of_input_ends_the_questions(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def refused() -> bytes:
        raise GuestRefused("failed", "no picture")

    monkeypatch.setattr(command, "read_line", functools.partial(read_line, lines("")))
    watched = command.WatchedPolicy(lambda _: "Agent.wait()", PlayPage("x", 9), by_model=True, wait=True)
    for step in range(4):
        assert await watched(msgspec.structs.replace(seen(step), screenshot=refused)) == "Agent.wait()"
    assert capsys.readouterr().out.count("Enter goes on: ") == 2


@pytest.mark.parametrize("sent", [b"\xff\xd8 a picture", "text", b"\x89PNG", b"\xff\xd8" + bytes(MAX_PICTURE)])
async def test_a_screenshot_is_a_jpeg_of_sane_size_or_refused(sent: object) -> None:
    class Desktop:
        """Sends this as its screenshot."""

        async def call(self, *_: object) -> object:
            return sent

    control = DesktopControl(cast("LeasedDesktop", Desktop()), SeatConfig())
    if sent == b"\xff\xd8 a picture":
        assert await control.screenshot() == sent
    else:
        with pytest.raises(GuestRefused, match="no JPEG of sane size"):
            await control.screenshot()


async def test_the_bundled_model_answers_within_its_context() -> None:
    policy = command.of_folder(folders.bundled(), max_tokens=24)
    first, again = await policy(seen()), await policy(seen())  # type: ignore[misc]
    assert first == again
    assert "icon a.txt" in str(first)
    long = msgspec.structs.replace(seen(), prompt_ids=lambda _: [5] * 100_000)
    assert "the prompt has 100000 tokens" in str(await policy(long))  # type: ignore[misc]


async def test_the_page_shows_the_look_as_data_to_this_machine_alone() -> None:
    page = PlayPage("Delete a.txt", 12)
    page.show(seen(last="Click Success"), b"\xff\xd8 a picture")
    # A browser keeps the cookie of an address only where it is told to.
    jar = aiohttp.CookieJar(unsafe=True)
    async with page.served(0) as printed, aiohttp.ClientSession(cookie_jar=jar) as browser:
        address = printed.partition("?")[0]

        async def get(path: str, **headers: str) -> tuple[int, bytes, str]:
            async with browser.get(address + path, headers=headers) as answer:
                policy = answer.headers.get("Content-Security-Policy", "")
                return answer.status, await answer.read(), policy

        assert (await get("state"))[0] == 401
        async with browser.get(printed) as opened:
            status, body, policy = opened.status, await opened.read(), opened.headers["Content-Security-Policy"]
        assert status == 200
        assert b"<script src" in body
        assert "default-src 'none'" in policy
        state = msgspec.json.decode((await get("state"))[1])
        assert state["elements"] == [["e1", 10, 20, 80, 20]]
        assert (state["turn"], state["last"], state["verdict"]) == (0, "Click Success", "")
        assert "<b>Documents</b>" in state["prompt"]
        assert (await get("screen.jpg"))[1] == b"\xff\xd8 a picture"
        assert (await get("state", Host="rebound.example:80"))[0] == 403
        assert (await get("page.py"))[0] == 404
        page.end("solved")
        assert msgspec.json.decode((await get("state"))[1])["verdict"] == "solved"
        port = int(address.rstrip("/").rpartition(":")[2])
        with pytest.raises(ConfigError, match=rf"--port {port}: can't be served"):
            async with PlayPage("x", 1).served(port):
                pass


def played(**changes: Any) -> Play:
    """A solved episode of one step."""
    tokenizer = Tokenizer.load(folders.bundled())
    response = "done\nAgent.exit(success=True)"
    ids = {"prompt_ids": tokenizer.prompt_ids("task"), "response_ids": tokenizer.response_ids(response)}
    step = payload(response=response, action='{"function":"exit","success":true}', observation="task", result="", **ids)
    solved = Play(
        task=TASK, route="", outcome=Outcome(success=True, reason="verified"), detail="", steps=[step], faults=[],
        wall_s=2.0, cpu_s=1.0, boot_cpu_s=1.0,
    )  # fmt: skip
    return msgspec.structs.replace(solved, **changes)


def test_an_episode_is_kept_as_a_demonstration_beside_others(tmp_path: Path) -> None:
    file = tmp_path / "mine.parquet"
    command.refuse_unkept(file, TASK, "compact", "both")
    assert command.keep(file, played(), by="person", form="compact", actions="both") == 1
    command.refuse_unkept(file, TASK, "compact", "both")
    assert command.keep(file, played(), by="person", form="compact", actions="both") == 2
    recordings.refuse_leaks(file, "demos.source")
    header, demos = demo_files.read(file)
    assert [(one.member, one.reason, len(one.steps)) for one in demos] == [("person", "verified", 1)] * 2
    assert (header.tasks[0].tries, header.tasks[0].wins) == (2, 2)
    with pytest.raises(ConfigError, match="actions is both, this episode has gui"):
        command.refuse_unkept(file, TASK, "compact", "gui")
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ConfigError, match=r"^--keep .*mine\.parquet"):
        command.refuse_unkept(file, TASK, "compact", "both")
    lost = played(outcome=Outcome(success=False, reason="agent_gave_up"))
    with pytest.raises(ConfigError, match="only a solved task"):
        command.keep(file, lost, by="person", form="compact", actions="both")


@pytest.mark.desktop
def test_a_task_is_played_by_hand_to_its_verdict_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    task = TaskHandle("text_editor/train/100")
    oracle = task.oracle(route="gui")

    class Hand(Person):
        """A person whose lines are the oracle's."""

        async def __call__(self, seen: library.Seen) -> str:
            self._read = lines(str(oracle(seen)).rpartition("\n")[2])
            return await super().__call__(seen)

    monkeypatch.setattr(command, "Person", Hand)
    monkeypatch.setenv("SSH_CONNECTION", "203.0.113.5 50000 192.0.2.7 22")
    file = tmp_path / "mine.parquet"
    assert cli.main(["play", task.id, "--keep", str(file)]) == 0
    said = capsys.readouterr().out
    assert f"task: {task.instruction}" in said
    port = said.partition("page: http://127.0.0.1:")[2].partition("/")[0]
    assert f"ssh -NL {port}:127.0.0.1:{port} {getpass.getuser()}@192.0.2.7" in said
    assert "verdict: solved (verified)" in said
    assert f"kept in {file}, which holds 1 demonstrations" in said
