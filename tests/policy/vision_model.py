"""A tiny model that sees, of random weights, and pictures for it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import Qwen2_5_VLForConditionalGeneration
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from deploy.recipes import seeing
from policy.pictures import PictureStyle, style_of

TEXT = {"hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 2, "num_key_value_heads": 2}
TOWER = {"hidden_size": 32, "intermediate_size": 48, "depth": 3, "num_heads": 2, "fullatt_block_indexes": [1]}


def tiny_vision_folder(
    path: Path,
    *,
    seed: int = 0,
    newer: bool = False,
    text: dict[str, Any] | None = None,
    tower: dict[str, Any] | None = None,
) -> Path:
    """A Qwen2.5-VL folder of some 100,000 parameters, no bias zero and no norm one.

    `newer` names tensors as transformers has them in memory, and not as published folders do.
    """
    seeing.make(path, seed, text=TEXT | (text or {}), tower=TOWER | (tower or {}))
    file = path / "model.safetensors"
    draw = torch.Generator().manual_seed(seed)
    tensors = {
        name: tensor + 0.1 * torch.randn(tensor.shape, generator=draw) for name, tensor in load_file(file).items()
    }
    if newer:
        tensors = {
            "model." + (name if name.startswith("visual.") else name.replace("model.", "language_model.", 1)): tensor
            for name, tensor in tensors.items()
        }
    save_file(tensors, file, metadata={"format": "pt"})
    return path


def style(folder: Path) -> PictureStyle:
    """How the model in `folder` sees."""
    read = style_of(folder)
    assert read is not None
    return read


def png_of(width: int, height: int, mode: str = "RGB", seed: int = 0) -> bytes:
    """Noise over a gradient, so that every patch is another."""
    noise = np.random.default_rng(seed).integers(0, 64, (height, width, 4))
    slope = np.add.outer(np.arange(height), np.arange(width))[..., None] * [1, 2, 3, 1] % 192
    image = Image.fromarray((noise + slope).astype(np.uint8)[..., :3]).convert(mode)
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


@lru_cache(maxsize=4)
def transformers_model(folder: Path) -> Qwen2_5_VLForConditionalGeneration:
    """In float32; a folder must not change."""
    model = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    return model.eval()


def reference_logits(folder: Path, ids: Sequence[int], pngs: Sequence[bytes]) -> torch.Tensor:
    """Logits [len(ids), vocab] of transformers, with its own processor."""
    look = style(folder)
    inputs: dict[str, Any] = {"input_ids": torch.tensor([list(ids)])}
    if pngs:
        edges = {"shortest_edge": look.least_pixels, "longest_edge": look.most_pixels}
        images = [Image.open(io.BytesIO(png)) for png in pngs]
        inputs |= Qwen2VLImageProcessorPil(size=edges)(images, return_tensors="pt")
        inputs["mm_token_type_ids"] = (inputs["input_ids"] == look.pad_id).long()
    with torch.inference_mode():
        logits: torch.Tensor = transformers_model(folder)(**inputs).logits[0]
    return logits
