"""Random decoders of a few thousand parameters, as Hugging Face folders, and what a trainer of one is given."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from msgspec.structs import replace
from safetensors.torch import save_file
from torch import Tensor

from policy.packing import Aggregation, MicroBatch, PackedSample, group_weights

if TYPE_CHECKING:
    from policy.megatron.trainer import Trainer

VOCAB = 96


LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip


def config(style: str, *, tied: bool, layers: int = 2, **changes: object) -> dict[str, object]:
    """A config.json; `style` is a model_type, or llama3 for a Llama with scaled positions."""
    kind = style.removesuffix("3") if style == "llama3" else style
    raw: dict[str, object] = {
        "architectures": [f"{kind.capitalize()}ForCausalLM"],
        "model_type": kind,
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 80,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "tie_word_embeddings": tied,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "dtype": "float32",
    }
    if style == "qwen3":
        raw["head_dim"] = 16  # not hidden / heads
    if style == "mistral":
        raw |= {"head_dim": 12, "sliding_window": None}
    if style == "llama3":
        raw["rope_parameters"] = dict(LLAMA3)
    if style == "glm4":
        raw |= {"head_dim": 16, "attention_bias": True, "partial_rotary_factor": 0.5, "pad_token_id": None}
        raw["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    return raw | changes


def tensors(raw: dict[str, object], seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    hidden, ffn, heads, groups, vocab = (
        int(str(raw[key]))
        for key in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "vocab_size")
    )
    kind = raw["model_type"]
    width = int(str(raw.get("head_dim", hidden // heads)))

    def rand(*shape: int, around: float = 0.0) -> Tensor:
        return around + 0.1 * torch.randn(*shape, generator=generator)

    out = {"model.embed_tokens.weight": rand(vocab, hidden), "model.norm.weight": rand(hidden, around=1.0)}
    if not raw["tie_word_embeddings"]:
        out["lm_head.weight"] = rand(vocab, hidden)
    for layer in range(int(str(raw["num_hidden_layers"]))):
        p = f"model.layers.{layer}."
        for name, rows in (("q", heads * width), ("k", groups * width), ("v", groups * width)):
            out[f"{p}self_attn.{name}_proj.weight"] = rand(rows, hidden)
            if kind == "qwen2" or raw.get("attention_bias"):
                out[f"{p}self_attn.{name}_proj.bias"] = rand(rows)
        if kind == "qwen3":
            out[f"{p}self_attn.q_norm.weight"] = rand(width, around=1.0)
            out[f"{p}self_attn.k_norm.weight"] = rand(width, around=1.0)
        out[f"{p}self_attn.o_proj.weight"] = rand(hidden, heads * width)
        if kind == "glm4":
            out[f"{p}mlp.gate_up_proj.weight"] = rand(2 * ffn, hidden)
            out[f"{p}post_self_attn_layernorm.weight"] = rand(hidden, around=1.0)
            out[f"{p}post_mlp_layernorm.weight"] = rand(hidden, around=1.0)
        else:
            out[f"{p}mlp.gate_proj.weight"] = rand(ffn, hidden)
            out[f"{p}mlp.up_proj.weight"] = rand(ffn, hidden)
        out[f"{p}mlp.down_proj.weight"] = rand(hidden, ffn)
        out[f"{p}input_layernorm.weight"] = rand(hidden, around=1.0)
        out[f"{p}post_attention_layernorm.weight"] = rand(hidden, around=1.0)
    return out


def rollouts(
    trainer: Trainer,
    groups: Sequence[Sequence[int]] = ((4, 9, 1), (12, 6)),
    aggregation: Aggregation = Aggregation.STEP_MEAN,
    *,
    noise: float = 0.0,
    temperature: float = 1.0,
) -> list[PackedSample]:
    """Samples of groups with such lengths of responses. The trainer's own weights drew them, but for the noise."""
    rng = random.Random(11)
    drafts = [
        PackedSample(
            ids=[rng.randrange(VOCAB) for _ in range(rng.randint(2, 40) + length)],
            response_len=length,
            weight=weight,
            advantage=rng.choice([-1.5, -0.4, 0.6, 1.2]),
            temperature=temperature,
        )
        for lengths, weights in zip(groups, group_weights(groups, aggregation), strict=True)
        for length, weight in zip(lengths, weights, strict=True)
    ]
    logprobs = trainer.logprobs(MicroBatch(samples=drafts))
    return [
        replace(one, behaviour_logprobs=[value + rng.uniform(-noise, noise) for value in values])
        for one, values in zip(drafts, logprobs, strict=True)
    ]


def gradient(trainer: Trainer) -> Tensor:
    """Of all weights, after a step."""
    return torch.cat([p.main_grad.flatten() for p in trainer.model.parameters()]).clone()  # type: ignore[union-attr]


def logits(trainer: Trainer, batch: MicroBatch) -> list[Tensor]:
    """Logits [response_len, vocab] of every sample's trained tokens, in the micro-batch's order."""
    return trainer._runner(trainer.model).read([batch], lambda inputs, rows: inputs.by_sample(rows.logits()))[0]


def write(
    folder: Path, style: str = "qwen2", *, tied: bool = True, layers: int = 2, seed: int = 0, **changes: object
) -> Path:
    """A model folder with a stand-in for a tokenizer file."""
    folder.mkdir(parents=True)
    raw = config(style, tied=tied, layers=layers, **changes)
    (folder / "config.json").write_text(json.dumps(raw))
    (folder / "tokenizer.json").write_text("{}")
    save_file(tensors(raw, seed), folder / "model.safetensors")
    return folder
