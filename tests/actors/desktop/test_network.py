"""What desktops reach of the network: names that are allowed, at public addresses, within bounds; and the tape."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from actors.cluster.config.schema import SeatsConfig
from actors.desktop import network as module
from actors.desktop.config import NetworkConfig, SshConfig
from actors.desktop.network import NETWORK_REFUSED, Network, PublicAddresses, Taken, public
from runtime.errors import ConfigError
from tests.heard import Heard

TUNNEL = b"CONNECT a.example.org:443 HTTP/1.1\r\n\r\nhello"
Ask = Callable[[bytes], Any]


@pytest.mark.parametrize(
    ("address", "may"),
    [
        ("93.184.215.14", True), ("2606:2800:21f::1", True), ("10.1.2.3", False), ("172.16.0.1", False),
        ("192.168.1.1", False), ("127.0.0.1", False), ("169.254.169.254", False), ("100.100.100.200", False),
        ("0.0.0.0", False), ("224.0.0.1", False), ("255.255.255.255", False), ("168.63.129.16", False),
        ("::1", False), ("fe80::1%2", False), ("fd00:ec2::254", False), ("::ffff:10.0.0.1", False),
        ("64:ff9b::a00:1", False), ("2002:a00:1::", False), ("ff02::1", False),
    ],
)  # fmt: skip
def test_an_address_that_is_not_public_is_never_connected_to(address: str, may: bool) -> None:
    assert public(address) is may


@pytest.mark.parametrize(
    ("name", "may"),
    [("a.org", True), ("b.a.org", False), ("x.b.org", True), ("y.x.b.org", True), ("b.org", False), ("xb.org", False)],
)
def test_a_star_is_for_names_below(name: str, may: bool) -> None:
    assert NetworkConfig(allow=["a.org", "*.b.org"]).allows(name) is may


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"allow": []}, "desktops.network.allow is empty"),
        ({"allow": ["http://a.org"]}, "'http://a.org' is no name"),
        ({"allow": ["10.0.0.1"]}, "'10.0.0.1' is no name"),
        ({"allow": ["*.a.org", "a*"]}, "'a*' is no name"),
        ({"allow": ["a.org"], "mode": "record"}, "desktops.network.tape names a folder"),
        ({"allow": ["a.org"], "tape": "t"}, "desktops.network.tape names a folder"),
    ],
)
def test_settings_that_could_not_be_meant_are_refused(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as error:
        NetworkConfig(**settings)
    assert says in str(error.value)


def test_it_goes_with_desktops_of_this_machine_that_nobody_remembers() -> None:
    network = NetworkConfig(allow=["a.org"])
    for more in ({"memo": "on"}, {"provider": SshConfig(machines=[]), "warm_pool": 0}):
        with pytest.raises(ConfigError, match=r"desktops\.network goes with"):
            SeatsConfig(network=network, **more)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """What name servers answer, one after the other, and the last one from then on."""
    known: dict[str, list[str]] = {}

    def found(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        answers = known[host]
        address = answers.pop(0) if len(answers) > 1 else answers[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(module.socket, "getaddrinfo", found)
    return known


async def test_no_second_answer_of_a_name_server_counts(names: dict[str, list[str]]) -> None:
    names["turns.org"] = ["93.184.215.14", "10.0.0.1"]
    (row,) = await PublicAddresses().resolve("turns.org", 80)
    assert (row["host"], names["turns.org"]) == ("93.184.215.14", ["10.0.0.1"])  # asked once, and connected to this
    with pytest.raises(OSError, match="no public address"):
        await PublicAddresses().resolve("turns.org", 80)


@pytest.fixture
async def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Heard, Ask]]:
    """A proxy whose world answers at a port of this machine, and what asks it for one thing."""
    heard = Heard()

    async def far(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"hey")
        writer.close()

    server = await asyncio.start_server(far, "127.0.0.1", 0)
    monkeypatch.setattr(module, "public", lambda _: True)
    monkeypatch.setattr(module, "PORTS", dict.fromkeys(("http", "https"), server.sockets[0].getsockname()[1]))
    network = Network(NetworkConfig(allow=["localhost.localdomain", "*.example.org"]), heard)
    monkeypatch.setattr(module.socket, "getaddrinfo", lambda *_, **__: [(socket.AF_INET, 1, 6, "", ("127.0.0.1", 1))])
    place = str(tmp_path / "door")
    own = await asyncio.start_unix_server(partial(network._connected, Taken()), place, limit=module.HEAD_BYTES)

    async def ask(request: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(place)
        writer.write(request.replace(b":443", b":%d" % module.PORTS["https"]))
        async with asyncio.timeout(60):
            try:
                return await reader.read()
            except ConnectionResetError:
                return b""
            finally:
                writer.close()

    yield heard, ask
    own.close()
    server.close()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (TUNNEL, b"200"),
        (b"CONNECT a.example.org:22 HTTP/1.1\r\n\r\n", b"403"),
        (b"CONNECT evil.org:443 HTTP/1.1\r\n\r\n", b"403"),
        (b"GET http://a.example.org@evil.org/ HTTP/1.1\r\n\r\n", b"403"),
        (b"GET http://127.0.0.1/ HTTP/1.1\r\n\r\n", b"403"),
        (b"GET http://2130706433/ HTTP/1.1\r\n\r\n", b"403"),
        (b"GET ftp://a.example.org/ HTTP/1.1\r\n\r\n", b"403"),
        (b"GET / HTTP/1.1\r\nHost: a.example.org\r\n\r\n", b"403"),
        (b"GET http://a.example.org/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b""),
        (b"POST http://a.example.org/ HTTP/1.1\r\nContent-Length: -5\r\n\r\n", b""),
        (b"POST http://a.example.org/ HTTP/1.1\r\nContent-Length: 999999999999\r\n\r\n", b""),
        (b"GET http://[::1 HTTP/1.1\r\n\r\n", b""),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", b""),
        (b"GET http://a.example.org/ HTTP/1.1\r\nX: " + b"y" * 70_000 + b"\r\n\r\n", b""),
        (b"\xff" * 70_000, b""),
    ],
)
async def test_what_a_desktop_asks_is_read_with_care(door: tuple[Heard, Ask], request_: bytes, status: bytes) -> None:
    answer = await door[1](request_)
    assert answer.split(b" ")[1:2] == ([status] if status else []), answer


async def test_a_refused_name_is_told_once(door: tuple[Heard, Ask]) -> None:
    heard, ask = door
    for _ in range(3):
        assert b"desktops.network.allow does not name it" in await ask(b"GET http://b.org/ HTTP/1.1\r\n\r\n")
    (event,) = heard.of(NETWORK_REFUSED)
    assert event == {"host": "b.org", "why": "desktops.network.allow does not name it"}


async def test_a_desktop_has_its_share_of_connections_and_bytes(
    door: tuple[Heard, Ask], monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = door[1]
    monkeypatch.setattr(module, "CONNECTIONS", 0)
    assert await ask(TUNNEL) == b""
    monkeypatch.setattr(module, "CONNECTIONS", 1)
    assert (await ask(TUNNEL)).endswith(b"\r\n\r\nhey")
    monkeypatch.setattr(module, "DESKTOP_BYTES", 6)
    assert b"hey" not in await ask(TUNNEL)


WORLD = pytest.mark.skipif(
    os.geteuid() != 0 or not all(shutil.which(name) for name in ("certutil", "unshare", "chromium")),
    reason="it needs root, libnss3-tools and Chromium",
)


@WORLD
@pytest.mark.desktop
@pytest.mark.proof
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", ["sandbox", "container"])
def test_a_desktop_sees_pages_live_and_from_the_tape(kind: str) -> None:
    """Programs and Chromium on real desktops, in namespaces whose one public address is ours."""
    if kind == "container" and not shutil.which("podman"):
        pytest.skip("make containers")
    folder = Path("/tmp") / f"world-{os.getpid()}"  # short: sockets lie below it
    folder.mkdir()
    world = [sys.executable, "-m", "tests.actors.desktop.network_world", str(folder), kind]
    try:
        line = ["unshare", "--net", "--mount", *world]
        done = subprocess.run(line, capture_output=True, text=True, timeout=390, check=False)
    finally:
        shutil.rmtree(folder)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout)
    live, record, replay = (found[mode] for mode in ("live", "record", "replay"))
    assert [line.split(" ")[0] for line in live["said"]] == [
        "200",
        "200",
        "403",
        "403",
        "403",
        "URLError",
        *["403"] * 3,
    ]
    assert {one.partition(":")[0] for one in live["refused"]} == {
        "10.1.2.3", "inside.example.org", "meta.example.org", "nowhere.example.org", "other.org", "pages.example.org",
    }  # fmt: skip
    assert [title[:5] for title in record["titles"]] == ["page1", "page2"]
    assert replay["titles"] == record["titles"]  # the number in each says which request made it
    assert replay["said"][:2] == record["said"][:2]
    assert replay["said"][3].startswith("403")
    assert found["asked in replay"] == []
