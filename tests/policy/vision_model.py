"""A tiny model that sees, of random weights, and pictures for it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

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
