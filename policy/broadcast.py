"""Weights by collective: the sender's side of one group with SGLang's engines.

Invariant: a group lives for one publication. Rank 0 is the sender and keeps the group's store; every engine is one
rank after it. What is sent is exactly the list that `described` gives, in its order, in its types.
"""

from __future__ import annotations

import datetime
import socket
from collections.abc import Sequence

import msgspec
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import Backend, GroupName, PrefixStore, _new_process_group_helper, _world

from runtime.errors import LearnerError


class Described(msgspec.Struct, frozen=True):
    """What is sent: Hugging Face names, types without `torch.`, shapes."""

    names: list[str]
    dtypes: list[str]
    shapes: list[list[int]]


def described(tensors: dict[str, Tensor]) -> Described:
    """The description of `tensors` in their order."""
    kinds = [str(tensor.dtype).removeprefix("torch.") for tensor in tensors.values()]
    return Described(list(tensors), kinds, [list(tensor.shape) for tensor in tensors.values()])


class SendingGroup:
    """Rank 0 of a group of `engines` + 1, at `address`:`port`.

    The store listens from the first moment; `join` returns when all engines have joined. Gloo takes tensors on the
    CPU, NCCL such on this process's GPU.
    """

    def __init__(self, name: str, engines: int, *, address: str, backend: str, timeout_s: float) -> None:
        self._name, self._size, self._backend = name, engines + 1, backend
        self._timeout = datetime.timedelta(seconds=timeout_s)
        with socket.create_server((address, 0)) as sock:
            self.port = int(sock.getsockname()[1])
        try:
            self._store = dist.TCPStore(
                address, self.port, self._size, is_master=True, timeout=self._timeout, wait_for_workers=False
            )
        except RuntimeError as error:
            raise LearnerError(f"no store for weights at {address}:{self.port}: {error}") from error
        self._group: dist.ProcessGroup | None = None

    def join(self) -> None:
        """Return once all engines are there. Raises LearnerError when they are not in time."""
        try:
            # As SGLang makes its side: a group beside the default one, under a prefix of its own.
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
            raise LearnerError(f"not all engines joined {self._name}: {error}") from error
        _world.pg_group_ranks[self._group] = {rank: rank for rank in range(self._size)}

    def send(self, tensors: Sequence[Tensor], *, bucket: bool) -> None:
        """Broadcast `tensors` one by one, or their bytes end to end as one. Raises LearnerError."""
        if self._group is None:
            raise LearnerError(f"nobody has joined {self._name}")
        parts = [tensor.detach().contiguous() for tensor in tensors]
        if bucket:
            parts = [torch.cat([part.flatten().view(torch.uint8) for part in parts])]
        try:
            works = [dist.broadcast(part, src=0, group=self._group, async_op=True) for part in parts]
            for work in works:
                work.wait(self._timeout)
        except RuntimeError as error:
            raise LearnerError(f"weights were not taken by all of {self._name}: {error}") from error

    def close(self) -> None:
        """Forget the group. Repeating it changes nothing."""
        if self._group is not None:
            dist.destroy_process_group(self._group)
            self._group = None
