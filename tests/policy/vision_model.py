"""A tiny model that sees, of random weights, and pictures for it."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText, Glm4vConfig, Glm4vForConditionalGeneration
from transformers.models.glm4v.image_processing_pil_glm4v import Glm4vImageProcessorPil
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
    glm: bool = False,
    text: dict[str, Any] | None = None,
    tower: dict[str, Any] | None = None,
) -> Path:
    """A Qwen2.5-VL or GLM-4.1V folder of some 100,000 parameters, no bias zero and no norm one.

    `newer` names tensors as transformers has them in memory, and not as published folders do.
    """
    seeing.make(path, seed, text=TEXT | (text or {}), tower=TOWER | (tower or {}))
    if glm:
        _glm(path, seed)
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


def _glm(path: Path, seed: int) -> None:
    """GLM-4.1V's model in place of Qwen's, with the same tokenizer."""
    _, ids = seeing.tokenizer()
    start, end, pad = (ids[name] for name in seeing.ADDED)
    rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [2, 1, 1], "partial_rotary_factor": 0.5}
    text = TEXT | {"num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 1096, "rope_parameters": rope}
    tower = {"hidden_size": 32, "depth": 2, "num_heads": 2, "out_hidden_size": 32, "intermediate_size": 48}
    config = Glm4vConfig(
        text_config=text | {"eos_token_id": 1, "pad_token_id": 0, "bos_token_id": None, "max_position_embeddings": 512},
        vision_config=tower | {"image_size": 84},
        image_token_id=pad,
        image_start_token_id=start,
        image_end_token_id=end,
        dtype="float32",
        video_token_id=pad + 1,
        video_start_token_id=pad + 2,
        video_end_token_id=pad + 3,
    )
    torch.manual_seed(seed)
    Glm4vForConditionalGeneration(config).save_pretrained(path)
    size = {"size": {"shortest_edge": 12544, "longest_edge": 9633792}}
    processor = {key: value for key, value in seeing.PROCESSOR.items() if "pixels" not in key}
    (path / "preprocessor_config.json").write_text(json.dumps(processor | size))


def processor_of(folder: Path) -> Qwen2VLImageProcessorPil | Glm4vImageProcessorPil:
    """Transformers' own, without torchvision."""
    read = json.loads((folder / "preprocessor_config.json").read_text())
    if style(folder).model_type == "glm4v":
        return Glm4vImageProcessorPil(size=read["size"])
    return Qwen2VLImageProcessorPil(size={"shortest_edge": read["min_pixels"], "longest_edge": read["max_pixels"]})


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
def transformers_model(folder: Path) -> Any:
    """In float32; a folder must not change."""
    model = AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    return model.eval()


@torch.inference_mode()
def reference_logits(folder: Path, ids: Sequence[int], pngs: Sequence[bytes]) -> torch.Tensor:
    """Logits [len(ids), vocab] of transformers, with its own processor."""
    return logits_with(transformers_model(folder), folder, ids, pngs)


def logits_with(model: Any, folder: Path, ids: Sequence[int], pngs: Sequence[bytes]) -> torch.Tensor:
    """The same of a `model` of `folder`, with gradients where they are taken."""
    look = style(folder)
    inputs: dict[str, Any] = {"input_ids": torch.tensor([list(ids)])}
    if pngs:
        images = [Image.open(io.BytesIO(png)) for png in pngs]
        inputs |= processor_of(folder)(images, return_tensors="pt")
        inputs["mm_token_type_ids"] = (inputs["input_ids"] == look.pad_id).long()
    logits: torch.Tensor = model(**inputs).logits[0]
    return logits
