"""Trains tiny models in every layout of ranks, each rank a process, and writes down what came of it.

Arguments: a folder for what comes of it, model folders, and with --long what tests leave out: every model in every
layout, and more layouts of four ranks.
One process imports the libraries and forks the ranks of one layout after the other.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from megatron.core import parallel_state
from safetensors.torch import save_file

from policy.architecture import read_architecture
from policy.errors import LearnerError
from policy.megatron import checkpoint, objective, ranks
from policy.megatron.model import PolicyModel
from policy.megatron.optimizer import Updater
from policy.megatron.trainer import OptimConfig, Trainer
from policy.packing import Aggregation, MicroBatch, PackedSample, pack, pack_cross_entropy
from policy.settings import LoraConfig, Objective, ParallelConfig
from runtime.errors import DiskRefuses, StoreError

CLIP = 0.05  # far below the gradient's norm, so that a wrong norm is a wrong step
SETTINGS = OptimConfig(clip_grad=CLIP)
ADAPTERS = OptimConfig(clip_grad=CLIP, lora=LoraConfig(rank=3, alpha=48.0))
OBJECTIVE = Objective(kl_coef=0.05)
LR, BUDGET, STEPS = 1e-3, 40, 4
LIMIT_S = 100.0
ONE = ParallelConfig()
VOCAB = 97  # two tensor ranks share it with a row of padding
objective.CHUNK["cpu"] = (
    4 * VOCAB
)  # several chunks of rows in each micro-batch; of twice the rows where ranks split them
LAYOUTS = {
    "one": ONE,
    "tensor2": ParallelConfig(tensor=2),
    "tensor2-sequence": ParallelConfig(tensor=2, sequence=True),
    "pipeline2": ParallelConfig(pipeline=2),
    "data2": ParallelConfig(data=2),
    "tensor2-data2": ParallelConfig(tensor=2, data=2),
}
LONG = {
    "tensor2-pipeline2": ParallelConfig(tensor=2, pipeline=2, sequence=True),
    "pipeline2-data2": ParallelConfig(pipeline=2, data=2),
    "data4": ParallelConfig(data=4),
}
OF_ADAPTERS = ("tensor2-sequence", "tensor2-data2")  # the layouts in which adapters alone are trained, too
EVERY_MODEL = ("one", "tensor2", "pipeline2")  # how these share weights depends on the model; others train the first
CHAIN = ("one", "tensor2", "data2", "pipeline2")  # each goes on from what the one before it has saved
FULL = 1  # the one of them whose first try to save meets a full disk


def samples(seed: int) -> list[PackedSample]:
    """Two responses to one prompt, and three of their own, of unequal lengths."""
    draw = torch.Generator().manual_seed(seed)

    def ids(count: int) -> list[int]:
        return torch.randint(VOCAB, (count,), generator=draw).tolist()

    shared = ids(11)
    prompts, lengths = [shared, shared, ids(5), ids(19), ids(8)], [4, 7, 2, 5, 13]
    return [
        PackedSample(
            ids=prompt + ids(length),
            response_len=length,
            weight=0.05 * (k + 1),
            advantage=(-1.0) ** k * (k + 1),
            behaviour_logprobs=[-4.5 - 0.1 * t for t in range(length)],
            temperature=0.8 if k == 2 else 1.0,
        )
        for k, (prompt, length) in enumerate(zip(prompts, lengths, strict=True))
    ]


def batches(number: int) -> list[MicroBatch]:
    """The micro-batches of step `number`."""
    return pack(samples(number), BUDGET)


def step(trainer: Trainer, number: int) -> dict[str, float]:
    """Step `number`: GRPO, once with an exercise that only one data rank can have, and cross-entropy at the third."""
    if number == 2:
        return trainer.cross_entropy_step(batches(number), LR)
    exercise = pack_cross_entropy([([3, 1, 4, 1, 5, 9], [(2, 6)])], BUDGET, Aggregation.TOKEN_MEAN)
    return trainer.grpo_step(batches(number), LR, OBJECTIVE, 1, [exercise] if number == 1 else ())


def train(
    folder: Path, parallel: ParallelConfig, out: Path, settings: OptimConfig = SETTINGS
) -> list[dict[str, float]]:
    """Figures of all steps; the weights after them are written to `out`, as tensors and as an export."""
    trainer = Trainer(folder, settings, parallel=parallel)
    trainer.new_reference()
    figures = [step(trainer, number) for number in range(STEPS)]
    figures.append(trainer.evaluate(batches(9)))
    figures.append({"canary": sum(map(sum, trainer.logprobs(batches(9)[0]))), "padding": padding(trainer)})
    weights = trainer.snapshot()
    trainer.export(out.with_suffix(".export"))
    if dist.get_rank() == 0:
        save_file(weights, out)
    return figures


def adapters(folder: Path, parallel: ParallelConfig, out: Path) -> list[dict[str, float]]:
    """The same with adapters alone, and a step from what one process has saved."""
    figures = train(folder, parallel, out, ADAPTERS)
    saved = out.with_name("adapters")
    if parallel == ONE:
        trainer = Trainer(folder, ADAPTERS)
        trainer.new_reference()
        step(trainer, 0)
        trainer.save(saved)
    return [*figures, step(Trainer.resume(saved, ADAPTERS, parallel=parallel), 1)]


def go_on(folder: Path, parallel: ParallelConfig, out: Path, number: int) -> list[dict[str, Any]]:
    """Figures of step `number` alone, from what was saved before it; saves what comes of it."""
    if number == 0:
        trainer = Trainer(folder, SETTINGS, parallel=parallel)
        trainer.new_reference()
    else:
        trainer = Trainer.resume(out / str(number - 1), SETTINGS, parallel=parallel)
    figures: dict[str, Any] = step(trainer, number)
    if number == FULL:
        figures["refused"] = refused(trainer, out / f"{number}-full")
    trainer.save(out / str(number), f"0.{number}")
    weights = trainer.snapshot()
    if dist.get_rank() == 0:
        save_file(weights, out / f"{number}.safetensors")
    return [figures | {"padding": padding(trainer)}]


def refused(trainer: Trainer, folder: Path) -> str:
    """What this rank is told where the second's disk is full as it writes, which torch calls by another name."""
    failed = list[str]()

    def write(*_: object) -> None:
        failed.append("No space left on device")
        raise RuntimeError("PytorchStreamWriter failed writing file data/0")

    with pytest.MonkeyPatch.context() as patched:
        if dist.get_rank() == 1:
            patched.setattr(dcp.FileSystemWriter, "write_data", write)
            patched.setattr(checkpoint, "refusal", lambda _: "".join(failed))
        try:
            trainer.save(folder)
        except (StoreError, LearnerError) as error:
            return f"{type(error).__name__}: {error}"
    return "it saves"


def told_of_failures() -> list[str]:
    """What this rank is told where all work, where the other's disk is full, and where the other has a defect."""
    said = [b"".join(ranks.on_all(lambda: b"%d" % dist.get_rank())).decode()]
    for failure in (DiskRefuses("m1 is full"), KeyError("k")):

        def work(failure: Exception = failure) -> bytes:
            if dist.get_rank() == 1:
                raise failure
            return b""

        try:
            ranks.on_all(work)
        except (StoreError, LearnerError, KeyError) as error:
            said.append(f"{type(error).__name__}: {error}")
    return said


def padding(trainer: Trainer) -> float:
    """What is in the rows that only fill this rank's part of the vocabulary up, and in their gradients."""
    tokens = VOCAB - parallel_state.get_tensor_model_parallel_rank() * trainer.parallel.vocab_rows(trainer.shape)
    ends = ("embedding.word_embeddings.weight", "output_layer.weight")
    weights = [weight for name, weight in trainer.model.named_weights() if name in ends]
    held = [*weights, *(weight.main_grad for weight in weights if weight.requires_grad)]
    return sum(float(one[tokens:].abs().sum()) for one in held)


def refusal(folder: Path) -> str:
    """What a rank says of a model of which one weight lacks its note."""
    model = PolicyModel(read_architecture(folder), SETTINGS.dtype, LAYOUTS["tensor2"])
    vars(model.decoder.layers[1].mlp.linear_fc2.weight).pop("tensor_model_parallel", None)
    try:
        Updater(model, SETTINGS)
    except LearnerError as error:
        return str(error)
    return "it trains"


def forked(parallel: ParallelConfig, out: Path, work: Callable[[], Any]) -> None:
    """Have each rank of `parallel` do `work` in a process of its own; `out`.RANK.json is what it returned."""

    def rank_process(rank: int) -> None:
        ranks.meet(dist.FileStore(str(out.with_suffix(".meeting")), parallel.ranks), rank, parallel.ranks)
        ranks.ensure_parallel(SETTINGS.seed, parallel)
        out.with_suffix(f".{rank}.json").write_text(json.dumps(work()))
        dist.barrier()
        ranks.part()

    began, pids = time.monotonic(), []
    for rank in range(parallel.ranks):
        if pid := os.fork():
            pids.append(pid)
            continue
        try:
            rank_process(rank)
        except BaseException:  # noqa: BLE001  the parent sees the exit status
            sys.stderr.write(f"{out.name} rank {rank}: {traceback.format_exc()}")
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    try:
        left = list(pids)
        while left:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                if time.monotonic() - began > LIMIT_S:
                    raise SystemExit(f"{out.name}: its ranks are not done after {LIMIT_S:g} s")
                time.sleep(0.01)
                continue
            left.remove(pid)
            if status:
                raise SystemExit(f"{out.name}: a rank failed")
    except SystemExit:
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        raise


def main(out: Path, folders: list[Path], *, long: bool) -> None:
    layouts = LAYOUTS | (LONG if long else {})
    torch.set_num_threads(1)
    for name, parallel in layouts.items():

        def everything(name: str = name, parallel: ParallelConfig = parallel) -> dict[str, Any]:
            said: dict[str, Any] = {}
            if name == "tensor2":
                said |= {"refusal": refusal(folders[0]), "told": told_of_failures()}
            for folder in folders if name in EVERY_MODEL or long else folders[:1]:
                said[folder.name] = train(folder, parallel, out / f"{name}-{folder.name}.safetensors")
            if name in ("one", *OF_ADAPTERS):
                said["adapters"] = adapters(folders[0], parallel, out / f"{name}-adapters.safetensors")
            return said

        forked(parallel, out / name, everything)
    for number, name in enumerate(CHAIN):

        def one_step(number: int = number, parallel: ParallelConfig = layouts[name]) -> dict[str, Any]:
            return {folder.name: go_on(folder, parallel, out / f"chain-{folder.name}", number) for folder in folders}

        for folder in folders:
            (out / f"chain-{folder.name}").mkdir(exist_ok=True)
        forked(layouts[name], out / f"chain-{number}", one_step)


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--long"]
    main(Path(words[0]), [Path(word) for word in words[1:]], long="--long" in sys.argv)
