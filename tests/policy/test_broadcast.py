"""The sender's group with peers that join as SGLang's engines do, its parts, and memory that is shared."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from actors.learner.messages import Broadcasting
from policy import broadcast
from policy.broadcast import SendingGroup, handles, split
from policy.errors import LearnerError

PEER = """
import os, sys, torch, torch.distributed as dist
from torch.distributed.distributed_c10d import (
    Backend, PrefixStore, _new_process_group_helper, _world, default_pg_timeout, rendezvous)
print("ready", flush=True)
port, rank, size, name, count, then = sys.stdin.readline().split()
try:
    store, rank, size = next(rendezvous(f"tcp://127.0.0.1:{port}", int(rank), int(size), timeout=default_pg_timeout))
    store.set_timeout(default_pg_timeout)
    group, _ = _new_process_group_helper(
        size, rank, [], Backend("gloo"), PrefixStore(name, store), group_name=name, timeout=default_pg_timeout)
    _world.pg_group_ranks[group] = {i: i for i in range(size)}
    if then == "die":
        os._exit(0)
    got = torch.empty(int(count), dtype=torch.uint8)
    dist.broadcast(got, src=0, group=group, async_op=True).wait()
    print(int(got.long().sum()), flush=True)
    if then == "once":
        os._exit(0)
    dist.destroy_process_group(group)
except Exception as error:
    print("refused", flush=True)
"""
TENSORS = {"a": torch.arange(5, dtype=torch.uint8), "b": torch.ones(2, 3, dtype=torch.uint8)}
Peers = Callable[[int], list[subprocess.Popen[str]]]


def begin() -> subprocess.Popen[str]:
    """An engine that waits to be told of a group once it has said that it is ready."""
    command = [sys.executable, "-W", "ignore", "-c", PEER]
    quiet = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, text=True, **quiet)  # type: ignore[call-overload, no-any-return]


@pytest.fixture
def peers() -> Iterator[Peers]:
    """Starts engines that wait to be told of a group."""
    started: list[subprocess.Popen[str]] = []

    def start(count: int) -> list[subprocess.Popen[str]]:
        started.extend(begin() for _ in range(count))
        assert [said(peer) for peer in started] == ["ready"] * count
        return started

    yield start
    for peer in started:
        peer.kill()
        peer.communicate()


def said(peer: subprocess.Popen[str]) -> str:
    assert peer.stdout is not None
    return peer.stdout.readline().strip()


def tell(peer: subprocess.Popen[str], group: SendingGroup | Broadcasting, *words: object) -> None:
    assert peer.stdin is not None
    peer.stdin.write(" ".join(map(str, [group.port, *words])) + "\n")
    peer.stdin.flush()


@pytest.mark.engine
def test_engines_get_what_is_sent_and_are_let_go_when_one_is_lost(peers: Peers) -> None:
    engines = peers(2)
    group = SendingGroup("whole", 2, address="127.0.0.1", backend="gloo", timeout_s=30.0)
    for rank, peer in enumerate(engines, 1):
        tell(peer, group, rank, 3, "whole", "11", "stay")
    group.join()
    group.send(list(TENSORS.values()), timeout_s=30.0)
    assert [said(peer) for peer in engines] == ["16"] * 2
    group.close()
    group.close()
    with pytest.raises(LearnerError, match="closed"):
        group.join()


@pytest.mark.proof
def test_engines_are_let_go_when_one_does_not_come(peers: Peers) -> None:
    engines = peers(1)
    group = SendingGroup("missing", 2, address="127.0.0.1", backend="gloo", timeout_s=2.0)
    tell(engines[0], group, 1, 3, "missing", "1", "stay")
    with pytest.raises(LearnerError, match="not all engines joined missing"):
        group.join()
    group.close()
    assert said(engines[0]) == "refused"


@pytest.mark.slow
def test_an_engine_that_dies_within_a_broadcast_costs_the_broadcast_alone(peers: Peers) -> None:
    large = [torch.ones(64 << 20, dtype=torch.uint8)]  # more than sockets hold
    engines = peers(2)
    group = SendingGroup("half", 1, address="127.0.0.1", backend="gloo", timeout_s=30.0)
    tell(engines[0], group, 1, 2, "half", "5", "once")
    group.join()
    group.send([TENSORS["a"]])
    with pytest.raises(LearnerError, match="not taken by all of half"):
        group.send(large, timeout_s=10.0)
    group.close()
    assert said(engines[0]) == "10"
    again = SendingGroup("again", 1, address="127.0.0.1", backend="gloo", timeout_s=30.0)
    tell(engines[1], again, 1, 2, "again", "11", "stay")
    again.join()
    again.send(list(TENSORS.values()))
    assert said(engines[1]) == "16"
    again.close()
    assert "TORCH_NCCL_BLOCKING_WAIT" not in os.environ


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(LearnerError, match=r"203\.0\.113\.1"):
        SendingGroup("far", 1, address="203.0.113.1", backend="gloo", timeout_s=1.0)


@given(st.lists(st.lists(st.integers(0, 6), max_size=3), max_size=8), st.integers(1, 200))
def test_parts_hold_everything_in_order(shapes: list[list[int]], limit: int) -> None:
    parts = split({str(i): torch.empty(shape, dtype=torch.bfloat16) for i, shape in enumerate(shapes)}, limit)
    assert [shape for part in parts for shape in part.shapes] == shapes
    assert [name for part in parts for name in part.names] == [str(i) for i in range(len(shapes))]
    assert {dtype for part in parts for dtype in part.dtypes} <= {"bfloat16"}
    for part in parts:
        size = sum(2 * torch.Size(shape).numel() for shape in part.shapes)
        assert part.names
        filled = [shape for shape in part.shapes if torch.Size(shape).numel()]
        assert size <= limit or len(filled) == 1


READER = """
import base64, pickle, sys
import torch
for line in sys.stdin:
    for name, tensor in pickle.loads(base64.b64decode(line)):
        print(name, str(tensor.dtype), list(tensor.shape), float(tensor.double().sum()))
"""


@pytest.mark.slow
def test_another_process_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "PART_BYTES", 64)
    weights = {
        "a": torch.arange(1000, dtype=torch.float32),
        "b": torch.full((2, 3), 0.5, dtype=torch.bfloat16),
        "c": torch.arange(12.0).view(3, 4)[:, 1:3],
    }
    before = {name: tensor.clone() for name, tensor in weights.items()}
    parts = handles(weights)
    assert all(len(part) < 2000 for part in parts)
    assert all(torch.equal(weights[name], tensor) for name, tensor in before.items())
    command = [sys.executable, "-W", "ignore", "-c", READER]
    done = subprocess.run(command, input="\n".join(parts), capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.splitlines() == [
        f"{name} {tensor.dtype} {list(tensor.shape)} {float(tensor.double().sum())}" for name, tensor in before.items()
    ]
