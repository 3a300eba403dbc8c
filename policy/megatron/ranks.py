"""The processes that train together: how they meet, and what they say to each other beside Megatron's own tensors.

Invariant: a process meets others once in its life. What one rank finds out, such as a disk that refuses, all ranks
learn of at the same point, so none is left waiting for another.
"""

from __future__ import annotations

import atexit
import datetime
import os
from collections.abc import Callable

import msgspec
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from torch import Tensor

from policy.errors import LearnerError
from policy.megatron import shim
from policy.parallel import ParallelConfig
from runtime.errors import StoreError, named

WAIT_S = 1800.0  # that a rank waits for the others within a step, where no process has died


def meet(store: dist.Store, rank: int, ranks: int, interface: str = "", wait_s: float = WAIT_S) -> None:
    """Join the other ranks at `store`; returns when all are there. Raises torch's own errors where some don't come.

    Ranks on other machines are reached by the network `interface`, unless the environment names another. Later each
    waits for the others at most `wait_s` seconds at one point; so long one of them may still send or fetch a model.
    """
    if interface:  # else each library guesses, by a host name that may mean loopback
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")  # this one, and none whose name begins so
    if not shim.ON_CPU:
        torch.cuda.set_device(rank % torch.cuda.device_count())
    backend = "gloo" if shim.ON_CPU else "nccl"
    timeout = datetime.timedelta(seconds=wait_s)
    dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=timeout)
    atexit.register(part)  # gloo's threads must end before the interpreter, else it aborts now and then


def part() -> None:
    """Leave the other ranks."""
    if parallel_state.is_initialized():
        parallel_state.destroy_model_parallel()
    if dist.is_initialized():
        dist.destroy_process_group()


def ensure_parallel(seed: int, parallel: ParallelConfig | None = None) -> None:
    """Have Megatron's groups, once per process, among the ranks that `meet` brought together; else a rank is alone.

    Raises LearnerError where the ranks that met are not as many as `parallel` needs.
    """
    parallel = parallel or ParallelConfig()
    if not dist.is_initialized():
        meet(dist.HashStore(), 0, 1)
    if dist.get_world_size() != parallel.ranks:
        raise LearnerError(f"{dist.get_world_size()} ranks have met, and {parallel} needs {parallel.ranks}")
    if not parallel_state.is_initialized():
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=parallel.tensor, pipeline_model_parallel_size=parallel.pipeline
        )
    model_parallel_cuda_manual_seed(seed, force_reset_rng=True)


def first_of_data() -> bool:
    """Whether this rank speaks for its data rank: the others of it hold the same figures, or none."""
    return parallel_state.is_pipeline_last_stage() and parallel_state.get_tensor_model_parallel_rank() == 0


def exchanged(content: bytes) -> list[bytes]:
    """What each rank has said, in order; every rank calls this."""
    ranks = dist.get_world_size()
    if ranks == 1:
        return [content]
    sizes = [torch.zeros(1, dtype=torch.int64, device=_device()) for _ in range(ranks)]
    dist.all_gather(sizes, torch.tensor([len(content)], device=_device()))
    room = max(1, *map(int, sizes))
    parts = [torch.zeros(room, dtype=torch.uint8, device=_device()) for _ in range(ranks)]
    dist.all_gather(parts, _tensor(content.ljust(room, b"\0")))
    return [_bytes(part)[: int(size)] for part, size in zip(parts, sizes, strict=True)]


def on_first(work: Callable[[], bytes]) -> bytes:
    """What `work` returns on rank 0, which alone calls it, on every rank; every rank calls this.

    Where it fails, its error is raised on rank 0, and a LearnerError that quotes it on the others.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return work()
    first, content, failure = dist.get_rank() == 0, b"", None
    if first:
        try:
            content = work()
        except Exception as error:  # noqa: BLE001  raised again below, once the others know
            content, failure = repr(error).encode(), error
    head = torch.tensor([failure is not None, len(content)], device=_device())
    dist.broadcast(head, 0)
    failed, size = head.tolist()
    said = _tensor(content) if first else torch.zeros(size, dtype=torch.uint8, device=_device())
    if size:
        dist.broadcast(said, 0)
    if failure is not None:
        raise failure
    if failed:
        raise LearnerError(f"rank 0 failed: {_bytes(said).decode()}")
    return content if first else _bytes(said)


def on_all(work: Callable[[], bytes]) -> list[bytes]:
    """What `work` returns on each rank, in order, on every rank; every rank calls this.

    Where it fails on any, all fail: that rank with its own error, the others with a StoreError of the same kind or with
    a LearnerError.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return [work()]
    content, failure = b"", None
    try:
        content = work()
    except Exception as error:  # noqa: BLE001  raised again below, once the others know
        content, failure = str(error).encode(), error
    kind = "" if failure is None else type(failure).__name__
    said = [
        msgspec.msgpack.decode(one, type=tuple[str, bytes])
        for one in exchanged(msgspec.msgpack.encode((kind, content)))
    ]
    if failure is not None:
        raise failure
    for rank, (kind, text) in enumerate(said):
        if kind:
            ours = named(kind)
            again = ours if ours is not None and issubclass(ours, StoreError) else LearnerError
            raise again(f"rank {rank}: {text.decode()}")
    return [content for _, content in said]


def _device() -> torch.device:
    return torch.device("cpu") if shim.ON_CPU else torch.device("cuda", torch.cuda.current_device())


def _tensor(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).to(_device()) if content else torch.zeros(0)


def _bytes(values: Tensor) -> bytes:
    return values.cpu().numpy().tobytes()
