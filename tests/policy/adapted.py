"""A LoRA run's versions of a tiny model: merged weights, and the adapter alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from policy.megatron.trainer import Trainer
from policy.packing import MicroBatch, PackedSample
from policy.settings import LoraConfig, OptimConfig

LORA = LoraConfig(rank=4, alpha=16.0)


def adapted(model: Path, folder: Path, versions: int, lora: LoraConfig = LORA) -> Iterator[tuple[Path, Path, str]]:
    """Folders of merged weights and of the adapter, and the adapter's digest, after more and more steps."""
    trainer = Trainer(model, OptimConfig(lora=lora))
    sample = PackedSample(ids=[5, 9, 33, 60, 7, 7, 2, 41], response_len=4, weight=0.25)
    for number in range(versions):
        for _ in range(3):
            trainer.cross_entropy_step([MicroBatch(samples=[sample])], 0.02)
        merged, adapter = folder / f"{number}", folder / f"{number}-adapter"
        trainer.export(merged)
        yield merged, adapter, trainer.export_adapter(adapter)
