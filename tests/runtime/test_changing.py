"""Actors and hosts join, leave and get other configs while a system lives, and other processes may ask for it."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from runtime.control import MAX_BODY_BYTES, SOCKET, CommandReply, Say, command, query_status
from runtime.errors import ActorFailed, ActorGone, ConfigError
from runtime.logs.reader import read_logs
from runtime.system import ActorSpec, ActorSystem, HostSpec
from tests.runtime.example_actors import Boom, CounterConfig, Pid, Total


def counter(start: int, host: str, name: str = "counter", **changes: bool) -> ActorSpec:
    config = CounterConfig(start=start, **changes)
    return ActorSpec(name=name, factory="tests.runtime.example_actors:Counter", config=config, host=host)


@pytest.fixture
async def system(tmp_path: Path) -> AsyncIterator[ActorSystem]:
    async with ActorSystem(tmp_path) as made:
        yield made


@pytest.mark.parametrize("host", ["main", "one"])
@pytest.mark.slow
async def test_an_actor_keeps_its_new_config_over_its_lives(system: ActorSystem, host: str) -> None:
    await system.spawn(counter(1, host))
    await system.configure(counter(2, host))
    ref = system.ref("counter")
    assert (await ref.ask(Total(), timeout_s=10)).n == 2
    with pytest.raises(Exception, match="a defect"):
        await ref.ask(Boom(), timeout_s=10)
    assert (await ref.ask_until(Total(), timeout_s=10, give_up_s=20)).n == 2
    with pytest.raises(ConfigError, match="no actor counter in host other"):
        await system.configure(counter(3, "other"))


@pytest.mark.slow
async def test_a_process_ends_with_its_last_actor_and_its_name_is_free(system: ActorSystem) -> None:
    await system.spawn(counter(1, "one"), counter(2, "one", "second"))
    pid = (await system.ref("second").ask(Pid(), timeout_s=10)).n
    await system.remove(["counter"])
    assert (await system.ref("second").ask(Total(), timeout_s=10)).n == 2
    with pytest.raises(ActorGone):
        await system.ref("counter").ask(Total(), timeout_s=10)
    await system.remove(["second"])
    assert not os.path.exists(f"/proc/{pid}")  # noqa: ASYNC240
    assert system.names() == []
    await system.spawn(counter(3, "one"), hosts=[HostSpec(name="one", env={"WORD": "w"})])
    assert (await system.ref("counter").ask(Total(), timeout_s=10)).n == 3
    assert (await system.ref("counter").ask(Pid(), timeout_s=10)).n != pid


@pytest.mark.parametrize("host", ["main", "one"])
@pytest.mark.slow
async def test_what_can_not_join_ends_no_system(system: ActorSystem, host: str) -> None:
    await system.spawn(counter(1, "main", "first"))
    with pytest.raises(ActorFailed, match="bad setting"):
        await system.join(counter(0, host, bad_config=True), counter(2, host, "second"))
    await system.remove(["counter", "second"])
    assert system.names() == ["first"]
    failed = asyncio.ensure_future(system.failed())
    await system.join(counter(2, host))
    assert (await system.ref("counter").ask(Total(), timeout_s=10)).n == 2
    assert not failed.done()
    with pytest.raises(ActorFailed, match="bad setting"):  # what a system can't do without
        await system.spawn(counter(0, host, "second", bad_config=True))
    assert "bad setting" in await failed


async def test_a_command_says_refuses_and_outlives_its_client(system: ActorSystem, tmp_path: Path) -> None:
    done = asyncio.Event()

    async def carry_out(body: bytes, say: Say) -> None:
        say(f"{len(body)} bytes")
        if body == b"bad":
            raise ConfigError("that is bad")
        if body == b"worse":
            raise OSError(28, "No space left")
        done.set()

    system.on_command("do", carry_out)
    heard: list[Any] = []
    await asyncio.to_thread(command, tmp_path, "do", b"good", heard.append)
    assert heard == ["4 bytes"]
    assert done.is_set()
    with pytest.raises(ConfigError, match="that is bad"):
        await asyncio.to_thread(command, tmp_path, "do", b"bad", heard.append)
    with pytest.raises(ConfigError, match=r"do failed, perhaps in part: OSError: .*No space left"):
        await asyncio.to_thread(command, tmp_path, "do", b"worse", heard.append)
    (said,) = read_logs(tmp_path, event="command_failed")
    assert (said["name"], "carry_out" in "".join(said["traceback"])) == ("do", True)
    with pytest.raises(ActorGone, match="does not know other"):
        await asyncio.to_thread(command, tmp_path, "other", b"", heard.append)


async def test_a_command_that_is_too_large_is_refused_by_both_sides(system: ActorSystem, tmp_path: Path) -> None:
    system.on_command("do", lambda body, say: asyncio.sleep(0))
    with pytest.raises(ConfigError, match=r"do is asked with 4\.1 MiB, and a live run takes at most 4 MiB"):
        await asyncio.to_thread(command, tmp_path, "do", bytes(4_300_000), print)
    reader, writer = await asyncio.open_unix_connection(tmp_path / SOCKET)
    writer.write(b"do\n" + (MAX_BODY_BYTES + 1).to_bytes(4))
    async with asyncio.timeout(60):
        said = msgspec.json.decode(await reader.readline(), type=CommandReply)
    assert (said.refused, "at most 4 MiB" in said.text) == (True, True)
    writer.close()
    await asyncio.to_thread(command, tmp_path, "do", bytes(MAX_BODY_BYTES), print)


async def test_a_status_that_fails_or_is_none_is_no_answer(system: ActorSystem, tmp_path: Path) -> None:
    async def fails(_: bytes, say: Say) -> None:
        raise ConfigError("no status")

    async def strange(_: bytes, say: Say) -> None:
        say("{}")

    for instead in (fails, strange):
        system.on_command("status", instead)
        with pytest.raises(ActorGone, match="did not answer"):
            await asyncio.to_thread(query_status, tmp_path)


async def test_a_client_whose_line_has_no_end_is_dropped(system: ActorSystem, tmp_path: Path) -> None:
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context))
    reader, writer = await asyncio.open_unix_connection(tmp_path / SOCKET)
    writer.write(b"x" * (1 << 17))
    async with asyncio.timeout(60):
        with suppress(ConnectionError):  # what it sent was not all read
            assert await reader.read() == b""
    writer.close()
    await asyncio.to_thread(query_status, tmp_path)  # the next one is served
    gc.collect()  # the loop hears of a task's error when the task is gone
    assert failures == []
