"""Weights by collective: the sender's side of one group with SGLang's engines.

Invariant: a group lives for one weight sync. Rank 0 is the sender and keeps the group's store. Every engine takes as
many of the following ranks as it has tensor-parallel parts. What is sent is exactly what `described` gives, in its
order, in its types. Once the group is closed no engine waits in it any more: its store and its connections are gone.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from math import prod

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import (
    Backend,
    GroupName,
    PrefixStore,
    _new_process_group_helper,
    _world,
)

from policy.errors import LearnerError

PART_BYTES = 512 << 20  # sender and engine hold a part twice while it is under way


class Described(msgspec.Struct, frozen=True):
    """What is sent at once: Hugging Face names, types without `torch.`, shapes."""

    names: list[str]
    dtypes: list[str]
    shapes: list[list[int]]


def described(tensors: Mapping[str, Tensor]) -> Described:
    """The description of `tensors` in their order."""
    kinds = [str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()]
    return Described(list(tensors), kinds, [list(tensor.shape) for tensor in tensors.values()])


def split(whole: Described, limit_bytes: int = PART_BYTES) -> list[Described]:
    """`whole` in parts of at most `limit_bytes`, or of one tensor where that alone is larger."""
    parts: list[Described] = []
    room = 0
    for name, dtype, shape in zip(whole.names, whole.dtypes, whole.shapes, strict=True):
        size = prod(shape) * getattr(torch, dtype).itemsize
        if not parts or size > room:
            parts.append(Described([], [], []))
            room = limit_bytes
        parts[-1].names.append(name)
        parts[-1].dtypes.append(dtype)
        parts[-1].shapes.append(shape)
        room -= size
    return parts


class SendingGroup:
    """Rank 0 of a group of `engines` + 1 ranks, at `address`:`port`.

    The store listens from the first moment; `join` returns when all engines have joined. Gloo takes tensors on the CPU,
    and NCCL takes tensors on this process's GPU. With NCCL the first `send` waits for the engines, and `join` does not.
    """

    def __init__(self, name: str, engines: int, *, address: str, backend: str, timeout_s: float) -> None:
        """`timeout_s` is for `join`. Raises LearnerError where the address can't be listened on."""
        self._name, self._size, self._backend = name, engines + 1, backend
        self._timeout = datetime.timedelta(seconds=timeout_s)
        try:
            listening = socket.create_server((address, 0))
        except OSError as error:
            raise LearnerError(f"can't listen on {address} for the weights' group: {error}") from error
        self.port = int(listening.getsockname()[1])
        try:
            # The store takes over a port that is taken already, so no other process can take it in between.
            self._store: dist.TCPStore | None = dist.TCPStore(
                address,
                self.port,
                self._size,
                is_master=True,
                timeout=self._timeout,
                wait_for_workers=False,
                master_listen_fd=listening.detach(),
            )
        except RuntimeError as error:
            raise LearnerError(f"no store for weights at {address}:{self.port}: {error}") from error
        self._group: dist.ProcessGroup | None = None

    def join(self) -> None:
        """Return once all engines are there. Raises LearnerError when they are not in time."""
        if self._store is None:
            raise LearnerError(f"{self._name} is closed")
        try:
            # As SGLang makes its side: a group next to the default one, under a prefix of its own.
            with _errors_returned():
                self._group, _ = _new_process_group_helper(
                    self._size,
                    0,
                    [],
                    Backend(self._backend),
                    PrefixStore(self._name, self._store),
                    group_name=GroupName(self._name),
                    timeout=self._timeout,
                )
        except RuntimeError as error:
            cause = str(error)
        else:
            _world.pg_group_ranks[self._group] = {rank: rank for rank in range(self._size)}
            return
        # Not from the error: its frames hold the store, and engines wait in the group as long as that lives.
        raise LearnerError(f"not all engines joined {self._name}: {_line(cause)}")

    def send(self, tensors: Sequence[Tensor], *, timeout_s: float | None = None) -> None:
        """Broadcast the bytes of `tensors` end to end. Raises LearnerError."""
        if self._group is None:
            raise LearnerError(f"no engine has joined {self._name}")
        limit = self._timeout if timeout_s is None else datetime.timedelta(seconds=timeout_s)
        try:
            # Another copy of all of them, for which memory may be wanting.
            content = torch.cat([tensor.detach().contiguous().flatten().view(torch.uint8) for tensor in tensors])
            options = dist.BroadcastOptions()
            options.rootRank, options.timeout = 0, limit
            self._group.broadcast([content], options).wait(limit)
        except RuntimeError as error:
            cause = str(error)
        else:
            return
        if self._backend == "nccl":  # what it still waits for would keep `close` waiting, and the GPU busy
            self._group.abort()
        raise LearnerError(f"weights were not taken by all of {self._name}: {_line(cause)}")

    def close(self) -> None:
        """Forget the group, and the store with it. Repeating it changes nothing. Raises LearnerError."""
        group, self._group, self._store = self._group, None, None
        if group is None:
            return
        try:
            dist.destroy_process_group(group)
        except RuntimeError as error:
            cause = str(error)
        else:
            return
        raise LearnerError(f"the group {self._name} could not be ended: {_line(cause)}")


@contextlib.contextmanager
def _errors_returned() -> Iterator[None]:
    """Have a group of NCCL made within report what fails to its caller.

    By default a thread of torch's ends the whole process once a collective fails or is late, and a learner's rank with
    it. With this a call waits, raises, and leaves the process as it is.
    """
    wanted = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_NCCL_BLOCKING_WAIT": "1"}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _line(text: str) -> str:
    return text.partition("\n")[0][:300]
