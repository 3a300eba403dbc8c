"""Figures over micro-batches, and steps over lists of tensors: the results of Megatron's own fallbacks."""

import math
import socket
import traceback
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from megatron.core.utils import local_multi_tensor_scale
from torch.utils._python_dispatch import TorchDispatchMode

from policy.errors import LearnerError
from policy.megatron import ranks as megatron_ranks
from policy.megatron.optimizer import norm, scaled
from policy.megatron.ranks import StepTally, ensure_parallel
from policy.megatron.trainer import OptimConfig, Trainer
from policy.packing import MicroBatch, PackedSample
from policy.settings import Objective
from tests.policy import tiny_models


def test_means_are_over_tokens_and_peaks_over_everything() -> None:
    tally = StepTally()
    for values in ([1.0, 2.0, 3.0], [10.0], []):
        tally.mean("mean", torch.tensor(values))
        tally.peak("peak", torch.tensor(values) - 20.0)
        tally.mean("nothing", torch.tensor([]))
        tally.total("total", 2.0)
    tally.mean("share", torch.tensor([True, False, False, True]))
    assert tally.figures() == {"mean": 4.0, "peak": -10.0, "total": 6.0, "share": 0.5}


def test_only_several_ranks_need_the_right_to_close_their_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise PermissionError(1, "Operation not permitted")

    with socket.create_server(("127.0.0.1", 0)) as port:
        for ranks in (1, 2):
            with monkeypatch.context() as patched:
                seen = [set[int](), {port.fileno()}]
                patched.setattr(megatron_ranks, "_listening", lambda seen=seen: seen.pop(0))
                patched.setattr(dist, "get_world_size", lambda ranks=ranks: ranks)
                patched.setattr(socket.socket, "setsockopt", refused)
                lacking = pytest.raises(LearnerError, match="CAP_NET_RAW is missing") if ranks > 1 else nullcontext()
                with lacking, megatron_ranks._closed_once_met():
                    pass


def test_figures_are_finite() -> None:
    tally = StepTally()
    tally.total("total", math.inf)
    tally.mean("mean", torch.tensor([math.nan, 1.0]))
    tally.peak("peak", torch.tensor([math.inf]))
    assert tally.figures() == {"total": 0.0, "mean": 0.0, "peak": 0.0}


@pytest.mark.slow
def test_a_rank_takes_no_connection_once_all_have_met() -> None:
    ensure_parallel(1)
    own = psutil.Process().net_connections("tcp")
    ports = [each.laddr.port for each in own if each.status == psutil.CONN_LISTEN]
    assert len(ports) > 1, "gloo has one for each group"
    for port in ports[:3]:
        with pytest.raises(TimeoutError):
            socket.create_connection(("127.0.0.1", port), 0.05)
    ones = torch.ones(2)
    dist.all_reduce(ones)
    assert ones.tolist() == [1.0, 1.0]


def test_seconds_add_up_even_of_what_fails() -> None:
    tally = StepTally()
    for _ in range(2):
        try:
            with tally.timed("work_s"):
                raise KeyError
        except KeyError:
            continue
    assert tally.figures()["work_s"] > 0


class Moment:
    """A CUDA event whose time is the number of moments before it."""

    made = 0

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        Moment.made += 1
        self.at = Moment.made

    def elapsed_time(self, end: "Moment") -> float:
        return 1000.0 * (end.at - self.at)


def test_a_gpus_seconds_are_read_at_the_end_of_the_step_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "Event", Moment)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append("waited"))
    tally = StepTally()
    for _ in range(2):
        with tally.timed("backward_s", less="forward_s"):
            with tally.timed("forward_s"):
                pass
    assert not waited
    assert tally.figures() == {"forward_s": 2.0, "backward_s": 4.0}
    assert waited == ["waited"]


class Waits(TorchDispatchMode):
    """Counts the operations that make a program wait for a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        asked = func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default)
        by_mask = func is torch.ops.aten.index.Tensor and any(
            one is not None and one.dtype is torch.bool for one in args[1]
        )
        self.count += (asked or by_mask) and not any(  # whose lengths lie on the host
            frame.f_code.co_filename.endswith("rope_utils.py") for frame, _ in traceback.walk_stack(None)
        )
        return func(*args, **(kwargs or {}))


def test_a_micro_batch_makes_the_program_wait_for_nothing(tmp_path: Path) -> None:
    trainer = Trainer(tiny_models.write(tmp_path / "model"), OptimConfig())
    logprobs = [-4.5] * 4
    samples = [
        PackedSample(ids=[5, 9, 33, 60, 7, 7, 2, 41], response_len=4, weight=0.1, advantage=1.0,
                     behaviour_logprobs=logprobs, fresh=fresh) for fresh in (True, False)
    ]  # fmt: skip
    counted = []
    for times in (1, 1, 5):  # the first step makes Adam's state
        with Waits() as waits:
            trainer.grpo_step([MicroBatch(samples=samples)] * times, 1e-3, Objective())
        counted.append(waits.count)
    assert counted[2] - counted[1] == 0, counted


SIZES = st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=2), min_size=1, max_size=6)
UNUSED = torch.zeros(1)


@given(SIZES, st.integers(0, 2**31), st.sampled_from([1.0, 0.25, 1e-3]), st.booleans())
def test_a_list_is_scaled_and_measured_as_its_tensors_are(
    sizes: list[list[int]], seed: int, scale: float, same: bool
) -> None:
    draw = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(size, generator=draw) for size in sizes]
    found, _ = norm(0, UNUSED, [tensors], False)
    torch.testing.assert_close(found, torch.cat([one.reshape(-1) for one in tensors]).norm().reshape(1))

    dtype = torch.float32 if same else torch.bfloat16
    wanted = [torch.empty(size, dtype=dtype) for size in sizes]
    local_multi_tensor_scale(0, UNUSED, [tensors, wanted], scale)
    written = tensors if same else [torch.empty(size, dtype=dtype) for size in sizes]
    scaled(0, UNUSED, [tensors, written], scale)
    torch.testing.assert_close(written, wanted, rtol=0 if same else 0.01, atol=0 if same else 1e-6)
