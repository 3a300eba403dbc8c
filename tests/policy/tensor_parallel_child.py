"""One of two processes that share every weight: trains the models it is given and says on stdout what came of it.

Arguments: the rank, a file that both ranks meet in, a folder for rank 0's weights, and model folders.
"""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import save_file

from policy.architecture import read_architecture
from policy.errors import LearnerError
from policy.losses import Objective
from policy.megatron.model import PolicyModel, ensure_parallel
from policy.megatron.optimizer import Updater
from policy.megatron.trainer import OptimConfig, Trainer
from policy.packing import PackedSample, pack

CLIP = 0.05  # far below the gradient's norm, so that a wrong norm is a wrong step
SETTINGS = OptimConfig(clip_grad=CLIP)
OBJECTIVE = Objective(kl_coef=0.05)


def samples(seed: int = 3) -> list[PackedSample]:
    """Two responses to one prompt, and two of their own."""
    draw = torch.Generator().manual_seed(seed)

    def ids(count: int) -> list[int]:
        return torch.randint(96, (count,), generator=draw).tolist()

    shared = ids(11)
    prompts, lengths = [shared, shared, ids(5), ids(19)], [4, 7, 2, 5]
    return [
        PackedSample(
            ids=prompt + ids(length),
            response_len=length,
            weight=0.05 * (k + 1),
            advantage=(-1.0) ** k * (k + 1),
            behaviour_logprobs=[-4.5 - 0.1 * t for t in range(length)],
        )
        for k, (prompt, length) in enumerate(zip(prompts, lengths, strict=True))
    ]


def train(folder: Path) -> tuple[list[dict[str, float]], dict[str, torch.Tensor]]:
    """Figures of three steps and the weights after them."""
    trainer = Trainer(folder, SETTINGS)
    trainer.new_reference()
    figures = [trainer.grpo_step(pack(samples(), 40), 1e-2, OBJECTIVE) for _ in range(2)]
    figures.append(trainer.cross_entropy_step(pack(samples(4), 40), 1e-2))
    return figures, trainer.snapshot()


def refusal(folder: Path) -> str:
    """What a model is told of which one weight lacks its note."""
    model = PolicyModel(read_architecture(folder), SETTINGS.dtype)
    del model.decoder.layers[1].mlp.linear_fc2.weight.tensor_model_parallel
    try:
        Updater(model, SETTINGS)
    except LearnerError as error:
        return str(error)
    return "it trains"


def main(rank: int, meeting: str, out: Path, folders: list[Path]) -> None:
    store = dist.FileStore(meeting, 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=datetime.timedelta(seconds=60))
    ensure_parallel(SETTINGS.seed, tensor_parallel=2)
    said: dict[str, Any] = {"refusal": refusal(folders[0])}
    for folder in folders:
        said[folder.name], weights = train(folder)
        if rank == 0:
            save_file(weights, out / f"{folder.name}.safetensors")
    sys.stdout.write(json.dumps(said))
    dist.barrier()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), [Path(one) for one in sys.argv[4:]])
