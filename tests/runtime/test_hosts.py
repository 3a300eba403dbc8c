"""Frames are bounded, hosts run the same code and die with their parent, Ctrl-C stops in two steps."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from runtime import program
from runtime.control import connect_unix, listen_unix
from runtime.errors import ConfigError, HostLost, ProtocolError
from runtime.hosts.frames import MAX_FRAME_BYTES, FromMain, Link, PeersLost, StopHost
from runtime.logs.reader import read_logs
from runtime.program import TOGETHER_S
from runtime.system import ActorSystem, HostSpec, RestartPolicy

ROOT = Path(__file__).resolve().parents[2]


async def linked() -> tuple[Link, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    return await Link.of_socket(ours, FromMain), theirs


async def test_frames_arrive_as_sent():
    a, b = socket.socketpair()
    left, right = await Link.of_socket(a, FromMain), await Link.of_socket(b, FromMain)
    frames = [PeersLost(names=["x"] * n, reason="r") for n in range(50)]
    for frame in frames:
        await left.send(frame, 1.0)
    assert [await right.receive() for _ in frames] == frames
    await left.close()
    assert await right.receive() is None
    await right.close()
    with pytest.raises(HostLost, match="closed"):
        right.write(StopHost())


@pytest.mark.parametrize(
    "raw",
    [
        (MAX_FRAME_BYTES + 1).to_bytes(4, "big"),
        b"\x00\x00\x00\x01\xc1",
        b"\x00\x00\x00\x02" + msgspec.msgpack.encode([1]),
        (n := msgspec.msgpack.encode({"type": "Unknown"})) and len(n).to_bytes(4, "big") + n,
    ],
)
async def test_what_is_no_frame_is_refused(raw):
    link, theirs = await linked()
    await asyncio.get_running_loop().sock_sendall(theirs, raw)
    with pytest.raises(ProtocolError):
        await link.receive()
    await link.close()
    theirs.close()


async def test_half_a_frame_is_the_end():
    link, theirs = await linked()
    await asyncio.get_running_loop().sock_sendall(theirs, b"\x00\x00\x01\x00abc")
    theirs.close()
    assert await link.receive() is None
    await link.close()


async def test_a_peer_that_does_not_read_is_given_up():
    link, theirs = await linked()
    with pytest.raises(HostLost, match="did not read"):
        await link.send(PeersLost(names=["x" * (4 << 20)], reason=""), 0.1)
    await link.close()
    theirs.close()


def test_sockets_in_deep_folders(tmp_path):
    folder = tmp_path / ("d" * 120)
    folder.mkdir()
    server = listen_unix(folder / "s.sock")
    connect_unix(folder / "s.sock", 1.0).close()
    with pytest.raises(ConfigError, match="running process"):
        listen_unix(folder / "s.sock")
    server.close()
    listen_unix(folder / "s.sock").close()  # what a killed process left is taken over


def test_an_intruding_package_is_named(tmp_path):
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "__init__.py").touch()
    script = "from runtime.program import check_origin; check_origin()"
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"}
    done = subprocess.run([sys.executable, "-P", "-c", script], env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"package policy comes from {tmp_path / 'policy'}" in done.stderr


def test_the_build_follows_what_both_sides_share(tmp_path):
    for package in program.PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    before = program._build(tmp_path)
    (tmp_path / "apis" / "actions.py").write_text("x = 1\n")
    assert program._build(tmp_path) == before
    (tmp_path / "apis" / "messages.py").write_text("x = 1\n")
    assert program._build(tmp_path) != before
    assert Path(program.check_origin().root) == ROOT


async def test_a_child_of_another_build_is_refused(tmp_path, monkeypatch):
    real = program.check_origin()
    other = program.Origin(real.root, "0" * 16)
    monkeypatch.setattr("runtime.hosts.process.check_origin", lambda: other)
    async with ActorSystem(tmp_path) as system:
        system._host("one")
        async with asyncio.timeout(10):
            assert "runs other code" in await system.failed()


async def test_a_child_that_can_not_start_fails_the_system_and_its_output_is_logged(tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "msgspec.py").write_text("raise SystemExit('broken\\x1b installation')\n")
    hosts = [
        HostSpec(
            name="one",
            env={"PYTHONPATH": str(tmp_path / "bad")},
            restart=RestartPolicy(max_restarts=1, first_delay_s=0.01),
        )
    ]
    async with ActorSystem(tmp_path, hosts=hosts) as system:
        system._host("one")
        async with asyncio.timeout(10):
            assert "host one failed 2 times" in await system.failed()
    assert {line["line"] for line in read_logs(tmp_path, event="host_output")} == {"broken\\x1b installation"}


SCRIPT = """
import asyncio, sys
from pathlib import Path
from runtime.program import stop_event
from runtime.system import ActorSpec, ActorSystem, HostSpec, run
from tests.runtime.example_actors import Counter, Pid

async def main():
    hosts = [HostSpec(name="one")]
    with stop_event() as stop:
        async with ActorSystem(Path(sys.argv[1]), hosts=hosts) as system:
            await system.spawn(ActorSpec(name="a", factory=Counter, host="one"))
            print((await system.ref("a").ask(Pid(), timeout_s=5)).n, flush=True)
            await stop.wait()
            if "hang" in sys.argv:
                print("hanging", flush=True)
                await asyncio.sleep(60)
    print("clean", flush=True)

run(main())
"""


def start(tmp_path: Path, *args: str) -> tuple[subprocess.Popen[str], int]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    parent = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path), *args], stdout=subprocess.PIPE, text=True, env=env
    )
    assert parent.stdout is not None
    return parent, int(parent.stdout.readline())


def gone(pid: int) -> bool:
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
def test_a_killed_parent_takes_its_hosts_with_it(tmp_path):
    parent, child = start(tmp_path)
    assert os.getpgid(child) == child
    parent.kill()
    parent.communicate()
    assert gone(child)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_stops_cleanly_and_its_like_beside_it_too(tmp_path, number):
    parent, child = start(tmp_path)
    parent.send_signal(number)
    parent.send_signal(signal.SIGTERM)
    out, _ = parent.communicate(timeout=20)
    assert (out, parent.returncode) == ("clean\n", 0)
    assert gone(child)
    assert not (tmp_path / "control.sock").exists()


@pytest.mark.slow
def test_a_later_signal_stops_at_once(tmp_path):
    parent, child = start(tmp_path, "hang")
    parent.send_signal(signal.SIGINT)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "hanging\n"
    time.sleep(TOGETHER_S + 0.1)
    parent.send_signal(signal.SIGINT)
    parent.communicate(timeout=5)
    assert parent.returncode == 130
    assert gone(child)
