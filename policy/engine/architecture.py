"""What a Hugging Face `config.json` says about a decoder that this engine can run.

Invariant: a folder that holds anything else (another activation, scaled positions, sliding windows) is refused with
its reason, never run approximately.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from runtime.errors import EngineError

_ARCHITECTURES = {"qwen2": False, "qwen3": True}  # model_type -> normalises queries and keys per head


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """Shape of a Qwen2- or Qwen3-style decoder."""

    model_type: str
    vocab_size: int
    width: int
    layers: int
    query_heads: int
    kv_heads: int
    head_dim: int
    mlp_width: int
    context_length: int  # tokens, prompt and response together
    rope_base: float
    norm_eps: float
    tied: bool  # the output projection is the embedding
    head_norm: bool  # RMSNorm over each query and key head
    eos_ids: tuple[int, ...] = ()


def read_architecture(folder: Path) -> Architecture:
    """Read `folder`/config.json (and generation_config.json for end-of-sequence ids).

    Raises:
        EngineError: the file is missing or describes a model that the engine does not run exactly.
    """
    config = _read_json(folder / "config.json")
    model_type = str(config.get("model_type"))
    if model_type not in _ARCHITECTURES:
        raise EngineError(f"{folder}: model_type {model_type!r} is not one of {sorted(_ARCHITECTURES)}")
    if config.get("hidden_act", "silu") != "silu":
        raise EngineError(f"{folder}: hidden_act {config['hidden_act']!r} is not silu")
    if config.get("use_sliding_window"):
        raise EngineError(f"{folder}: sliding-window attention is not supported")
    biased = model_type == "qwen2"  # queries, keys and values; a Qwen3 with biases has one of its output, too
    if bool(config.get("attention_bias", biased)) != biased:
        raise EngineError(f"{folder}: attention_bias {config['attention_bias']} is not what {model_type} has")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if rope.get("rope_type", rope.get("type", "default")) != "default":
        raise EngineError(f"{folder}: scaled rotary positions ({rope}) are not supported")
    try:
        width, heads = int(config["hidden_size"]), int(config["num_attention_heads"])
        return Architecture(
            model_type=model_type,
            vocab_size=int(config["vocab_size"]),
            width=width,
            layers=int(config["num_hidden_layers"]),
            query_heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or width // heads),
            mlp_width=int(config["intermediate_size"]),
            context_length=int(config["max_position_embeddings"]),
            rope_base=float(rope.get("rope_theta", config.get("rope_theta", 10_000.0))),
            norm_eps=float(config.get("rms_norm_eps", 1e-6)),
            tied=bool(config.get("tie_word_embeddings", False)),
            head_norm=_ARCHITECTURES[model_type],
            eos_ids=_eos_ids(folder, config),
        )
    except KeyError as error:
        raise EngineError(f"{folder}/config.json lacks {error}") from error


def _eos_ids(folder: Path, config: dict[str, Any]) -> tuple[int, ...]:
    found: set[int] = set()
    sources = [config]
    if (folder / "generation_config.json").exists():
        sources.append(_read_json(folder / "generation_config.json"))
    for source in sources:
        value = source.get("eos_token_id")
        found.update([value] if isinstance(value, int) else value or [])
    return tuple(sorted(found))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError) as error:
        raise EngineError(f"cannot read {path}: {error}") from error
