"""`make bench NAME=shapes`: how much of a device's arithmetic a step of the learner uses, with random weights.

What counts is the arithmetic that the model needs, once: products with weights, and attention over what a
token may see. What is computed again for memory, softmax, norms and Adam take time and count for nothing.
"""

from __future__ import annotations

import math
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

import msgspec

from actors.cluster import output
from actors.cluster.config import models
from policy.architecture import Architecture, read_architecture
from policy.settings import LoraConfig, OptimConfig
from policy.tensorfiles import EMBEDDING, expected
from runtime.errors import ConfigError
from tests.bench.report import Measured, Target, median, show

PEAKS = {"H100": 989.0, "H200": 989.0, "A100": 312.0, "L40S": 362.0}  # dense bfloat16 TFLOP/s by their data sheets
AIM, LARGE = 0.4, 1.2e9  # of the peak, of models from so many parameters on


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure."""

    shapes: str = "qwen2.5-0.5b,qwen2.5-1.5b"  # folders with a config.json, or names in deploy/shapes
    tokens: str = "4096,16384"  # of a step
    times: int = 3  # steps after the first, which is not counted; the median counts
    threads: int = 1  # that a step computes with on a CPU
    recompute: str = "none"
    siblings: int = 0  # responses to one prompt of half the tokens; 0: one sequence
    attention: str = "sdpa"  # or flex, on a GPU
    lora: int = 0  # rank of the adapters that are trained; 0 trains all weights
    peak: float = 0.0  # TFLOP/s of the device; 0 takes those of a card that is known


class Speed(msgspec.Struct, frozen=True, kw_only=True):
    """Steps on one sequence."""

    shape: str
    parameters: int
    tokens: int
    step_s: float  # by the clock
    tokens_per_s: float
    tflops: float  # 1e12 useful operations a second
    used: float | None  # of the peak (MFU); None where that is not known


class ShapesResult(Measured, frozen=True, kw_only=True):
    """Of all shapes and lengths."""

    device: str
    dtype: str
    recompute: str
    peak: float | None
    speeds: list[Speed]


def lengths_of(text: str) -> list[int]:
    """Of the flag --tokens. Raises ConfigError."""
    lengths = [int(length) for length in text.split(",") if length.isdecimal()]
    if len(lengths) != text.count(",") + 1 or min(lengths) < 2:
        raise ConfigError(f"--tokens {text}: it is a list of numbers from 2 on, such as 4096,16384")
    return lengths


def responses(tokens: int, siblings: int) -> tuple[int, int]:
    """Tokens of the prompt, and of each of its `siblings`."""
    each = tokens // (2 * siblings) if siblings else 0
    return tokens - siblings * each, each


def operations(arch: Architecture, tokens: int, *, frozen: bool = False, siblings: int = 0) -> int:
    """Floating-point operations of a training step on `tokens`: one sequence, or siblings.

    A product with n weights is 2 n a token. A token attends to what comes before it, and that is two products. The
    output layer counts for all tokens of a sequence, and for those of responses. The backward pass is twice the forward
    pass, but for the gradients of weights that are `frozen`.
    """
    weights = sum(math.prod(size) for name, size in expected(arch).items() if len(size) == 2 and name != EMBEDDING)
    head = arch.vocab * arch.hidden
    if not arch.tied:
        weights -= head
    prompt, each = responses(tokens, siblings)
    pairs = (prompt * prompt + siblings * each * (2 * prompt + each)) // 2
    products = tokens * weights + (siblings * each or tokens) * head
    return (2 if frozen else 3) * 2 * products + 3 * 4 * arch.layers * arch.heads * arch.head_dim * pairs


def measure(wanted: Options) -> ShapesResult:
    """Time steps. Raises ConfigError for a shape that is not there, or that has too short a context."""
    if wanted.times < 1 or wanted.threads < 1:
        raise ConfigError("--times and --threads count from 1")
    lengths = lengths_of(wanted.tokens)
    folders = {shape: models.planned("", shape) for shape in wanted.shapes.split(",")}
    shapes = {shape: read_architecture(folder) for shape, folder in folders.items()}
    for shape, arch in shapes.items():
        if max(lengths) > arch.context:
            raise ConfigError(f"--tokens {max(lengths)}: {shape} has a context of {arch.context}")
    import torch

    load, cuda = os.getloadavg()[0], torch.cuda.is_available()
    torch.set_num_threads(wanted.threads)
    device = torch.cuda.get_device_name() if cuda else "cpu"
    peak = wanted.peak or next((rate for name, rate in PEAKS.items() if name in device), None)
    lora = LoraConfig(rank=wanted.lora)
    dtype, recompute, attention = "bfloat16" if cuda else "float32", wanted.recompute, wanted.attention
    optim = OptimConfig(dtype=dtype, recompute=recompute, attention=attention, lora=lora)
    speeds = [
        _speed(shape, arch, tokens, seconds, peak, wanted)
        for shape, arch in shapes.items()
        for tokens, seconds in _timed(folders[shape], arch, optim, wanted).items()
    ]
    targets = [
        Target(
            name=f"{one.shape}, {one.tokens} tokens", measured=one.used, bound=AIM, unit="of the peak", at_least=True
        )
        for one in speeds
        if cuda and one.parameters >= LARGE
    ]
    return ShapesResult(
        load_at_start=load,
        left_out={} if peak else {"share of the peak": f"no peak is known of {device}: --peak TFLOP/s"},
        device=device,
        dtype=optim.dtype,
        recompute=optim.recompute,
        peak=peak,
        speeds=speeds,
        targets=targets,
    )


def _speed(shape: str, arch: Architecture, tokens: int, seconds: float, peak: float | None, wanted: Options) -> Speed:
    tflops = operations(arch, tokens, frozen=wanted.lora > 0, siblings=wanted.siblings) / seconds / 1e12
    return Speed(
        shape=shape,
        parameters=sum(math.prod(size) for size in expected(arch).values()),
        tokens=tokens,
        step_s=seconds,
        tokens_per_s=tokens / seconds,
        tflops=tflops,
        used=tflops / peak if peak else None,
    )


def random_model(shape: str, made: Path, dtype: str) -> Path:
    """A folder `made` of random weights in a shape: a folder with a config.json, or a name in deploy/shapes."""
    import torch

    from policy import hf_folder

    folder = models.planned("", shape)
    draw = torch.Generator().manual_seed(0)
    tensors = {
        name: (torch.ones(size) if len(size) == 1 else torch.randn(size, generator=draw).mul_(0.02)).to(
            hf_folder.DTYPES[dtype]
        )
        for name, size in expected(read_architecture(folder)).items()
    }
    hf_folder.write(made, tensors, hf_folder.companions(folder))
    return made


def _timed(folder: Path, arch: Architecture, optim: OptimConfig, wanted: Options) -> dict[int, float]:
    """Median seconds of a step by number of tokens, from random weights."""
    import torch

    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as scratch:
        warnings.simplefilter("ignore")  # of fused kernels that Megatron does not find, in training neither
        from policy.megatron.trainer import Trainer
        from policy.packing import MicroBatch, PackedSample

        trainer = Trainer(random_model(str(folder), Path(scratch) / "model", optim.dtype), optim)
    draw = torch.Generator().manual_seed(0)
    medians = {}
    for tokens in lengths_of(wanted.tokens):
        ids = torch.randint(arch.vocab, (tokens,), generator=draw).tolist()
        prompt, each = responses(tokens, wanted.siblings)
        kinds = [ids[:prompt] + ids[at : at + each] for at in range(prompt, tokens, each)] if each else [ids]
        samples = [PackedSample(ids=one, response_len=each or tokens - 1, weight=1 / tokens) for one in kinds]
        batch = [MicroBatch(samples=samples)]
        seconds = []
        for number in range(wanted.times + 1):
            output.line(f"  {folder.name}, {tokens} tokens, {number} of {wanted.times}", to=sys.stderr)
            began = time.perf_counter()
            trainer.cross_entropy_step(batch, 0.0)  # its figures are numbers, so the device is done
            seconds.append(time.perf_counter() - began)
        medians[tokens] = median(seconds[1:]) or 0.0
    return medians


def run(wanted: Options) -> int:
    """Measure and print; 1 when a large model uses less than it should of a GPU."""
    return show(measure(wanted))
