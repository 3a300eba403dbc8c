"""`make gpu-check`: what the program does on this machine's GPU, on one page, within nine minutes.

It needs no network and no set-up: random weights of the shapes do. A part that fails is written down, and the next one
begins. A part for which no time is left is named. `--tiny` runs every part on a small shape, on a CPU as well.
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import torch

from actors.cluster.runs import versions
from actors.learner.rank import _canary
from actors.sampler.config import SglangConfig
from actors.sampler.engine import ENVIRONMENT
from actors.sampler.loader import difference
from policy import memory
from policy.architecture import read_architecture
from policy.engine.cache import KeyValueCache
from policy.engine.model import Chunk, Decoder, load_weights
from policy.hf_folder import DTYPES
from policy.megatron.trainer import Trainer
from policy.packing import MicroBatch, PackedSample
from policy.settings import LoraConfig, OptimConfig, ParallelConfig
from tests.bench import shapes

LIMIT_S = 540.0
Part = Callable[[argparse.Namespace, Path], Iterator[str]]


def versions_part(_: argparse.Namespace, __: Path) -> Iterator[str]:
    """What is installed, and what of it does not go together."""
    have = versions.here(SglangConfig())
    yield f"torch {torch.__version__}, CUDA {torch.version.cuda}, driver's CUDA {have.driver or 'none'}"
    yield f"learner {have.learner}; SGLang {have.engine}; nvcc {have.nvcc or 'none'}, g++ {have.gxx}"
    for wrong in versions.misfits(have, collective=True):
        yield f"**{wrong.name}**: {wrong.found}; {wrong.mend}"


def mfu_part(wanted: argparse.Namespace, _: Path) -> Iterator[str]:
    """The share of the card's arithmetic that a step uses: on one sequence, and on siblings by both attentions."""
    plain = shapes.Options(shapes=wanted.tiny, tokens="64", times=2)
    kinds = [plain, msgspec.structs.replace(plain, lora=4, recompute="selective")]
    if not wanted.tiny:
        plain = msgspec.structs.replace(plain, shapes="qwen2.5-0.5b,qwen2.5-1.5b", tokens="4096,16384")
        kinds = [plain, msgspec.structs.replace(plain, shapes="qwen3-4b", lora=16, recompute="selective")]
    shared = msgspec.structs.replace(plain, shapes=plain.shapes.split(",")[0], siblings=16)
    kinds.append(shared)
    if torch.cuda.is_available():
        kinds.append(msgspec.structs.replace(shared, attention="flex"))
    for options in kinds:
        what = f"16 siblings, {options.attention}" if options.siblings else f"LoRA {options.lora}"
        for one in shapes.measure(options).speeds:
            used = "unknown" if one.used is None else f"{one.used:.1%}"
            told = f"{one.step_s:.3f} s, {one.tflops:.3g} TFLOP/s, {used} of the peak"
            yield f"{one.shape}, {what}, {one.tokens} tokens: {told}"
    if not torch.cuda.is_available():
        yield "flex attention trains on a GPU alone; its figures on a CPU are tests/policy/test_megatron_flex.py's"


def canary_part(wanted: argparse.Namespace, folder: Path) -> Iterator[str]:
    """How far learner and embedded engine differ, by type."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    made = shapes.random_model(shape_of(wanted), folder / "canary", "bfloat16")
    for learner in DTYPES:
        canary = _canary(Trainer(made, OptimConfig(dtype=learner)))
        for engine, dtype in DTYPES.items():
            weights = load_weights(made, device, dtype)
            cache = KeyValueCache(
                weights.arch, rows=1, length=len(canary.ids), blocks=1, block=16, device=device, dtype=dtype
            )
            chunk = Chunk(0, 0, canary.ids, len(canary.ids))
            logprobs = Decoder(weights.arch, cache, device).forward(weights, [chunk]).log_softmax(-1)
            scores = [float(logprobs[i, drawn]) for i, drawn in enumerate(canary.ids[1:])]
            yield f"learner {learner}, engine {engine}: {difference(scores, canary.logprobs)}"


def sync_part(wanted: argparse.Namespace, folder: Path) -> Iterator[str]:
    """Seconds and bytes of a version, whole and as an adapter."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = "bfloat16" if device.type == "cuda" else "float32"
    made = shapes.random_model(shape_of(wanted), folder / "sync", dtype)
    trainer = Trainer(made, OptimConfig(dtype=dtype, lora=LoraConfig(rank=16)))
    for name, write, read in (
        ("whole", trainer.export, lambda at: load_weights(at, device, DTYPES[dtype])),
        ("adapter", trainer.export_adapter, lambda at: load_weights(made, device, DTYPES[dtype], adapter=at)),
    ):
        began, at = time.perf_counter(), folder / name
        write(at)
        written = time.perf_counter()
        read(at)
        size = sum(file.stat().st_size for file in at.glob("*.safetensors"))
        seconds = f"written {written - began:.2f} s, read {time.perf_counter() - written:.2f} s"
        yield f"{name}: {size / 1e6:.1f} MB, {seconds}"


def memory_part(wanted: argparse.Namespace, folder: Path) -> Iterator[str]:
    """The peak of a step next to the plan."""
    shape, tokens = shape_of(wanted), 64 if wanted.tiny else 16384
    cuda = torch.cuda.is_available()
    optim = OptimConfig(dtype="bfloat16" if cuda else "float32", recompute="selective")
    made = shapes.random_model(shape, folder / "memory", optim.dtype)
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated() if cuda else 0
    trainer, arch = Trainer(made, optim), read_architecture(made)
    ids = [(5 + 7919 * place) % arch.vocab for place in range(tokens)]
    batch = [MicroBatch(samples=[PackedSample(ids=ids, response_len=tokens - 1, weight=1 / tokens)])]
    for _ in range(2):
        trainer.cross_entropy_step(batch, 0.0)
    plan = memory.plan(
        arch, optim, ParallelConfig(), token_budget=tokens, reference=False, device="cuda" if cuda else "cpu"
    )
    peak = f"{(torch.cuda.max_memory_allocated() - before) / memory.GIB:.3f} GiB" if cuda else "unknown"
    yield f"{shape}, {tokens} tokens: plan {plan.total / memory.GIB:.3f} GiB, peak {peak}"
    trainer.updater.rest()  # as in the engine's turn (samplers.turns)
    rests = f"{(torch.cuda.memory_allocated() - before) / memory.GIB:.3f} GiB" if cuda else "unknown"
    trainer.cross_entropy_step(batch, 0.0)
    yield f"at rest: plan {plan.weights / memory.GIB:.3f} GiB, held {rests}; the step after it was taken"


REMEMBERED = (
    "learn --set desktops.memo=only --set entropulse.total_rl_steps=2 --set entropulse.rl_steps_per_phase=2"
    " --set entropulse.pulses=0 --set run.require.rl_steps=1 --set run.require.gain_above=null"
    " --set evaluation.enabled=false"
)
IN_TURNS = " --set samplers.engine.type=sglang --set samplers.turns=true"


def runs_of(wanted: argparse.Namespace) -> Iterator[str]:
    """Arguments of `computerrl run`: RL steps on remembered desktops by each engine, then what --run names."""
    device = f" --set samplers.device={'cuda' if torch.cuda.is_available() else 'cpu'}"
    yield REMEMBERED + device
    if Path(ENVIRONMENT).exists():
        share = " --set samplers.engine.options.mem-fraction-static=0.3" if torch.cuda.is_available() else ""
        yield REMEMBERED + device + IN_TURNS + share
    yield from wanted.run


def run_part(wanted: argparse.Namespace, folder: Path) -> Iterator[str]:
    """Whole runs; none boots a desktop but those that --run names."""
    for line in runs_of(wanted):
        began = time.perf_counter()
        command = [str(Path(sys.prefix, "bin", "computerrl")), "run", *line.split(), "--runs", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        last = " / ".join((done.stdout + done.stderr).strip().splitlines()[-3:])
        failed = "" if done.returncode == 0 else "**failed**: "
        yield f"{failed}`computerrl run {line}`: {time.perf_counter() - began:.0f} s: {last}"


PARTS: dict[str, Part] = {
    "Versions": versions_part,
    "Canary": canary_part,
    "Weights to engines": sync_part,
    "Memory": memory_part,
    "Steps": mfu_part,
    "Run": run_part,
}


def shape_of(wanted: argparse.Namespace) -> str:
    """The shape of the parts that need one."""
    return wanted.tiny or "qwen2.5-0.5b"


def page(wanted: argparse.Namespace, began: float) -> Iterator[str]:
    """The page's lines, as they are found."""
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else f"no GPU, {platform.machine()}"
    yield "# A check of the GPU\n"
    yield f"{card}; `{' '.join(['make gpu-check', *sys.argv[1:]])}`; {time.strftime('%Y-%m-%d')}\n"
    for name, part in PARTS.items():
        yield f"\n## {name}\n"
        if time.monotonic() - began > LIMIT_S:
            yield "- not run: no time was left"
            continue
        try:
            with tempfile.TemporaryDirectory() as folder:
                yield from (f"- {line}" for line in part(wanted, Path(folder)))
        except Exception as error:  # noqa: BLE001 - what fails is what the page is for
            yield f"- **failed**: {type(error).__name__}: {error}"
    yield f"\n{time.monotonic() - began:.0f} s in all."


def main(argv: Sequence[str]) -> int:
    """Write the page; 1 where a part failed."""
    parser = argparse.ArgumentParser(prog="make gpu-check ARGS=", description=__doc__)
    parser.add_argument("--out", default="gpu-check.md", help="the page")
    parser.add_argument("--tiny", default="", metavar="SHAPE", help="a small model's folder in place of the shapes")
    parser.add_argument("--run", action="append", default=[], help="arguments of a further run, as of `computerrl run`")
    wanted = parser.parse_args(argv)
    lines = []
    for line in page(wanted, time.monotonic()):
        print(line, flush=True)  # noqa: T201 - a program
        lines.append(line)
        Path(wanted.out).write_text("\n".join(lines) + "\n", "utf-8")
    return int(any("**failed**" in line for line in lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
