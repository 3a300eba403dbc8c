"""Make a small model that sees, untrained: `python -m deploy.recipes.seeing OUT [SEED]`, in some seconds.

It has Qwen2.5-VL's architecture, half a million parameters, and the tokenizer of the bundled base model.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from policy.base import MODEL

ADDED = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>")
TEXT = {"hidden_size": 96, "intermediate_size": 256, "num_hidden_layers": 3, "max_position_embeddings": 4096}
TOWER = {"depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 4, "fullatt_block_indexes": [1]}
PROCESSOR = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "processor_class": "Qwen2_5_VLProcessor",
    "patch_size": 14,
    "merge_size": 2,
    "temporal_patch_size": 2,
    "min_pixels": 3136,
    "max_pixels": 1003520,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}


def tokenizer() -> tuple[dict[str, Any], dict[str, int]]:
    """The base model's, as tokenizer.json has it, with three special tokens more, and their ids."""
    state = json.loads((MODEL / "tokenizer.json").read_text())
    first = 1 + max(token["id"] for token in state["added_tokens"])
    ids = {text: first + number for number, text in enumerate(ADDED)}
    like = next(token for token in state["added_tokens"] if token["special"])
    state["added_tokens"] += [like | {"id": number, "content": text} for text, number in ids.items()]
    return state, ids


def make(
    folder: Path, seed: int = 0, *, text: dict[str, Any] | None = None, tower: dict[str, Any] | None = None
) -> None:
    """Write a Hugging Face folder of random weights; `text` and `tower` change its shape."""
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration

    state, ids = tokenizer()
    start, end, pad = (ids[name] for name in ADDED)
    shape = TEXT | {"num_attention_heads": 4, "num_key_value_heads": 4, "rms_norm_eps": 1e-6} | (text or {})
    pairs = shape["hidden_size"] // shape["num_attention_heads"] // 2
    of_side = 3 * pairs // 8
    rope = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [pairs - 2 * of_side, of_side, of_side]}
    config = Qwen2_5_VLConfig(
        text_config=shape
        | {
            "vocab_size": 8 * -(-(pad + 2) // 8),
            "rope_parameters": rope,
            "initializer_range": 0.05,
            "bos_token_id": None,
            "eos_token_id": 1,
            "pad_token_id": 0,
        },
        vision_config=TOWER | {"out_hidden_size": shape["hidden_size"], "initializer_range": 0.05} | (tower or {}),
        image_token_id=pad,
        video_token_id=pad + 1,
        vision_start_token_id=start,
        vision_end_token_id=end,
        tie_word_embeddings=True,
        dtype="float32",
    )
    torch.manual_seed(seed)
    Qwen2_5_VLForConditionalGeneration(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(state))
    (folder / "tokenizer_config.json").write_bytes((MODEL / "tokenizer_config.json").read_bytes())
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR, indent=2))


if __name__ == "__main__":
    make(Path(sys.argv[1]), *map(int, sys.argv[2:3]))
