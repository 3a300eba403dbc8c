"""The processes that train together: how they meet, what they say to each other, and the figures they count together.

Invariant: a process meets others once in its life. What one rank finds out, such as a disk that refuses, all ranks
learn of at the same point, so none is left waiting for another. Means are over tokens, not over micro-batches or ranks,
so a figure does not depend on how samples were packed and dealt out. Every figure is a finite number.
"""

from __future__ import annotations

import atexit
import ctypes
import datetime
import math
import os
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import psutil
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from torch import Tensor

from policy.errors import LearnerError
from policy.megatron import ON_CPU
from policy.settings import ParallelConfig
from runtime.errors import StoreError, named

WAIT_S = 1800.0  # that a rank waits for the others within a step, where no process has died


def meet(store: dist.Store, rank: int, ranks: int, interface: str = "", wait_s: float = WAIT_S) -> None:
    """Join the other ranks at `store`; returns when all are there. Raises torch's own errors where some don't come.

    Ranks on other machines are reached by the network `interface`, unless the environment names another. Later each
    waits for the others at most `wait_s` seconds at one point; so long one of them may still send or fetch a model.
    Raises LearnerError where several ranks meet and this user may not close their ports.
    """
    if interface:  # else each library guesses, by a host name that may mean loopback
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")  # this one, and none whose name begins so
    if not ON_CPU:
        torch.cuda.set_device(rank % torch.cuda.device_count())
        # As SGLang 0.5.23 sets them for its engines: both ends of a group that sends weights have the same.
        for name in ("NCCL_CUMEM_ENABLE", "NCCL_NVLS_ENABLE"):
            os.environ.setdefault(name, "0")
    backend = "gloo" if ON_CPU else "nccl"
    timeout = datetime.timedelta(seconds=wait_s)
    with _closed_once_met():
        dist.init_process_group(backend, store=store, rank=rank, world_size=ranks, timeout=timeout)
    atexit.register(part)  # gloo's threads must end before the interpreter, else it aborts now and then


_NO_PACKET = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))  # a filter of one line: take 0 bytes
_ATTACH_FILTER = 26  # of socket(7), which Python does not name


@contextmanager
def _closed_once_met() -> Iterator[None]:
    """The ports that gloo opens meanwhile for the other ranks take no one once these have come.

    Gloo keeps each connection of a stranger for ever, and knows no key. Raises LearnerError where this user may not
    close the ports of several ranks. A rank that is alone goes on with open ones.
    """
    before = _listening()
    yield
    for handle in _listening() - before:
        with socket.socket(fileno=os.dup(handle)) as port:
            try:
                port.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(_NO_PACKET)))
            except PermissionError as error:
                if dist.get_world_size() == 1:
                    return
                why = "the right CAP_NET_RAW is missing, by which several ranks close their ports to strangers"
                raise LearnerError(f"{why}: run as root, or with one rank") from error


def _listening() -> set[int]:
    own = psutil.Process().net_connections("tcp")
    return {each.fd for each in own if each.status == psutil.CONN_LISTEN}


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
        with _closed_once_met():
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
    sent = _tensor(content) if first else torch.zeros(size, dtype=torch.uint8, device=_device())
    if size:
        dist.broadcast(sent, 0)
    if failure is not None:
        raise failure
    if failed:
        raise LearnerError(f"rank 0 failed: {_bytes(sent).decode()}")
    return content if first else _bytes(sent)


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
    outcomes = [
        msgspec.msgpack.decode(part, type=tuple[str, bytes])
        for part in exchanged(msgspec.msgpack.encode((kind, content)))
    ]
    if failure is not None:
        raise failure
    for rank, (kind, text) in enumerate(outcomes):
        if kind:
            ours = named(kind)
            again = ours if ours is not None and issubclass(ours, StoreError) else LearnerError
            raise again(f"rank {rank}: {text.decode()}")
    return [content for _, content in outcomes]


def _device() -> torch.device:
    return torch.device("cpu") if ON_CPU else torch.device("cuda", torch.cuda.current_device())


def _tensor(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).to(_device()) if content else torch.zeros(0)


def _bytes(values: Tensor) -> bytes:
    return values.cpu().numpy().tobytes()


class _Counted(msgspec.Struct):
    """What a rank has counted, as it travels."""

    totals: dict[str, float] = {}
    sums: dict[str, float] = {}
    counts: dict[str, float] = {}
    peaks: dict[str, float] = {}
    seconds: dict[str, float] = {}


def _add(to: dict[str, float], name: str, value: float) -> None:
    to[name] = to.get(name, 0.0) + value


def _raise(to: dict[str, float], name: str, value: float) -> None:
    to[name] = max(to.get(name, -math.inf), value)


class StepTally:
    """Totals, means, peaks and seconds by name; a name is one kind only.

    Values stay on their device until the step is over, so that no micro-batch waits for the one before it.
    """

    def __init__(self) -> None:
        self._counted = _Counted()
        self._waiting: list[tuple[str, str, Tensor]] = []  # kind, name, value
        self._spans: list[tuple[str, str, int, Any, Any]] = []  # name, less, spans before it, begin and end on a GPU

    def total(self, name: str, value: float | Tensor) -> None:
        """Add `value`, a number or a tensor of one, to the total `name`."""
        if isinstance(value, Tensor):
            self._waiting.append(("totals", name, value.detach()))
        else:
            _add(self._counted.totals, name, value)

    def mean(self, name: str, values: Tensor) -> None:
        """Add the elements of `values` to the mean `name`."""
        self._waiting.append(("sums", name, values.detach().sum()))
        _add(self._counted.counts, name, values.numel())

    def peak(self, name: str, values: Tensor) -> None:
        """Let the largest element of `values`, if it has any, compete for the peak `name`."""
        if values.numel():
            self._waiting.append(("peaks", name, values.detach().max()))

    @contextmanager
    def timed(self, name: str, less: str = "") -> Iterator[None]:
        """Add the time inside to the seconds `name`; on a GPU what it takes there, for its work is only queued.

        What is added inside to the seconds `less` is left out.
        """
        if torch.cuda.is_available():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            before = len(self._spans)
            begin.record()
            try:
                yield
            finally:
                end.record()
                self._spans.append((name, less, before, begin, end))
            return
        began, inside = time.perf_counter(), self._counted.seconds.get(less, 0.0)
        try:
            yield
        finally:
            within = self._counted.seconds.get(less, 0.0) - inside
            _add(self._counted.seconds, name, time.perf_counter() - began - within)

    def _settle(self) -> None:
        """Read what waits on the device: the one moment of a step at which the program waits for it."""
        waiting, self._waiting = self._waiting, []
        values = torch.stack([value.double() for _, _, value in waiting]).tolist() if waiting else []
        for (kind, name, _), value in zip(waiting, values, strict=True):
            (_raise if kind == "peaks" else _add)(getattr(self._counted, kind), name, value)
        spans, self._spans = self._spans, []
        if spans:
            torch.cuda.synchronize()
        for place, (name, less, first, begin, end) in enumerate(spans):  # what is inside a span lies before it here
            nested = sum(one[3].elapsed_time(one[4]) for one in spans[first:place] if one[0] == less)
            _add(self._counted.seconds, name, (begin.elapsed_time(end) - nested) / 1000)

    def reduce(self) -> None:
        """Make this the tally of all ranks; every rank calls it. Seconds become those of the slowest rank.

        Tensor ranks have counted the same tokens, and stages before the last none: one rank speaks for its data rank.
        """
        self._settle()
        mine, reduced = self._counted, _Counted()
        content = msgspec.msgpack.encode(mine if first_of_data() else _Counted(seconds=mine.seconds))
        for part in exchanged(content):
            counted = msgspec.msgpack.decode(part, type=_Counted)
            for kind in ("totals", "sums", "counts"):
                for name, value in getattr(counted, kind).items():
                    _add(getattr(reduced, kind), name, value)
            for kind in ("peaks", "seconds"):
                for name, value in getattr(counted, kind).items():
                    _raise(getattr(reduced, kind), name, value)
        self._counted = reduced

    def figures(self) -> dict[str, float]:
        """All by name; means of nothing are left out, and what is not finite reads 0."""
        self._settle()
        counted = self._counted
        means = {name: counted.sums[name] / count for name, count in counted.counts.items() if count}
        figures = {**counted.totals, **means, **counted.peaks, **counted.seconds}
        return {name: value if math.isfinite(value) else 0.0 for name, value in figures.items()}
