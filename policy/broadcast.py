"""Weights without a disk: the sender's side of one group with SGLang's engines, and memory that an engine reads.

Invariant: a group lives for one weight sync. Rank 0 is the sender and keeps the group's store. Every engine takes as
many of the following ranks as it has tensor-parallel parts. What is sent is exactly what `described` gives, in its
order, in its types. Once the group is closed no engine waits in it any more: its store and its connections are gone.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.reduction import ForkingPickler

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import Tensor
from torch.distributed.distributed_c10d import (
    Backend,
    GroupName,
    PrefixStore,
    _new_process_group_helper,
    _world,
)

from policy.errors import LearnerError
from policy.tensorfiles import BroadcastPart

PART_BYTES = 512 << 20  # sender and engine hold a part twice while it is under way


def split(tensors: Mapping[str, Tensor], limit_bytes: int) -> list[BroadcastPart]:
    """`tensors` in their order, in parts of at most `limit_bytes`, or of one tensor where that alone is larger."""
    parts: list[BroadcastPart] = []
    room = 0
    for name, tensor in tensors.items():
        if not parts or tensor.nbytes > room:
            parts.append(BroadcastPart(names=[], dtypes=[], shapes=[]))
            room = limit_bytes
        parts[-1].names.append(name)
        parts[-1].dtypes.append(str(tensor.dtype).removeprefix("torch."))
        parts[-1].shapes.append(list(tensor.shape))
        room -= tensor.nbytes
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
            _world.pg_group_ranks[self._group] = {rank: rank for rank in range(self._size)}
        except RuntimeError as error:
            raise _failed(f"not all engines joined {self._name}", error) from None

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
            if self._backend == "nccl":  # what it still waits for would keep `close` waiting, and the GPU busy
                self._group.abort()
            raise _failed(f"weights were not taken by all of {self._name}", error) from None

    def close(self) -> None:
        """Forget the group, and the store with it. Repeating it changes nothing. Raises LearnerError."""
        group, self._group, self._store = self._group, None, None
        if group is None:
            return
        try:
            dist.destroy_process_group(group)
        except RuntimeError as error:
            raise _failed(f"the group {self._name} could not be ended", error) from None


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


def _failed(what: str, error: RuntimeError) -> LearnerError:
    """The error to raise; torch's loses its frames: they hold the store, and engines wait as long as that lives."""
    return LearnerError(f"{what}: {str(error.with_traceback(None)).partition(chr(10))[0][:300]}")


def handles(tensors: Mapping[str, Tensor]) -> list[str]:
    """Parts of `tensors` as SGLang takes them: base64 of a pickle of (name, handle), a few hundred bytes a tensor.

    A handle names memory that an engine of the same machine sees, in place of bytes, until the engine has read it.
    Tensors on a GPU are named by CUDA IPC, which an engine on the same card reads without a copy through the host.
    Others are moved into the host's shared memory, once.
    """
    before = torch.multiprocessing.get_sharing_strategy()
    # By names of files: a process that is no relative gets no descriptors.
    torch.multiprocessing.set_sharing_strategy("file_system")
    try:
        parts = [[(name, tensors[name].detach()) for name in part.names] for part in split(tensors, PART_BYTES)]
        return [base64.b64encode(ForkingPickler.dumps(part)).decode() for part in parts]
    finally:
        torch.multiprocessing.set_sharing_strategy(before)
