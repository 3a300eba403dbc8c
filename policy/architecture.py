"""What a Hugging Face `config.json` says about a decoder that this program runs and trains.

Invariant: planning, learner and engine read a model's shape here and nowhere else. A folder that holds anything
else (scaled positions, sliding windows, other activations) is refused by its key, and never run approximately.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from runtime.errors import ConfigError

STYLES = {"qwen2": (True, False), "qwen3": (False, True)}  # model_type -> (QKV bias, norms on queries and keys)
_CAUSAL = "ForCausalLM"
_ROPE_PLAIN = {"rope_type": "default", "type": "default", "partial_rotary_factor": 1.0, "factor": 1.0}  # scales nothing


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """Shape of a dense Qwen2- or Qwen3-style decoder."""

    style: str  # model_type
    layers: int
    hidden: int
    heads: int  # of queries
    kv_heads: int  # of keys and values
    head_dim: int
    ffn: int
    vocab: int
    context: int  # tokens, prompt and response together
    norm_eps: float
    rope_base: float
    tied: bool  # the output projection is the embedding
    eos_ids: tuple[int, ...] = ()  # end of sequence

    @property
    def qkv_bias(self) -> bool:
        """Whether queries, keys and values have biases."""
        return STYLES[self.style][0]

    @property
    def qk_norm(self) -> bool:
        """Whether each query and key head is normalised."""
        return STYLES[self.style][1]


def read_architecture(folder: Path) -> Architecture:
    """Read `folder`/config.json, and generation_config.json for end-of-sequence ids.

    Raises ConfigError of one line with the file and its key for what is missing or not covered.
    """
    file = folder / "config.json"
    config = _read_json(file)
    style = config.get("model_type", "")
    if not isinstance(style, str) or style not in STYLES:
        raise ConfigError(f"{file}: model_type {style!r} is not one of {', '.join(STYLES)}")
    for key, why in _not_covered(config, style):
        raise ConfigError(f"{file}: {key} {config[key]!r}: {why}")
    heads = _count(file, config, "num_attention_heads")
    hidden = _count(file, config, "hidden_size")
    kv_heads = _count(file, config, "num_key_value_heads", heads)
    head_dim = _count(file, config, "head_dim", hidden // heads)
    if heads % kv_heads:
        raise ConfigError(f"{file}: num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}")
    if config.get("head_dim") is None and hidden % heads:
        raise ConfigError(f"{file}: hidden_size {hidden} is no multiple of num_attention_heads {heads}: say head_dim")
    if head_dim % 2:
        raise ConfigError(f"{file}: head_dim {head_dim} is odd, and rotary positions turn pairs")
    return Architecture(
        style=style,
        layers=_count(file, config, "num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=_count(file, config, "intermediate_size"),
        vocab=_count(file, config, "vocab_size"),
        context=_count(file, config, "max_position_embeddings"),
        norm_eps=_positive(file, config, "rms_norm_eps", 1e-6),
        rope_base=_positive(file, {**config, **_rope(config)}, "rope_theta", 10_000.0),
        tied=bool(config.get("tie_word_embeddings", False)),
        eos_ids=_eos_ids(folder, config),
    )


def _rope(config: dict[str, Any]) -> dict[str, Any]:
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return rope if isinstance(rope, dict) else {"rope_type": rope}


def _scales(rope: object) -> bool:
    """Whether rotary positions under `rope` differ from the plain ones in more than their base."""
    if not isinstance(rope, dict):
        return bool(rope)
    return any(key != "rope_theta" and value not in (None, _ROPE_PLAIN.get(key)) for key, value in rope.items())


def _not_covered(config: dict[str, Any], style: str) -> list[tuple[str, str]]:
    """Keys that ask for what the model here does not do, and why."""
    biased = STYLES[style][0]
    layers, names = (config.get(key) or [] for key in ("layer_types", "architectures"))
    layers, names = (found if isinstance(found, list) else [found] for found in (layers, names))
    checks = [
        ("hidden_act", config.get("hidden_act", "silu") != "silu", "the activation is silu"),
        ("use_sliding_window", bool(config.get("use_sliding_window")), "sliding windows are not supported"),
        ("layer_types", any(kind != "full_attention" for kind in layers), "every layer is full_attention"),
        ("attention_bias", bool(config.get("attention_bias", biased)) != biased, f"{style} has it {biased}"),
        ("mlp_bias", bool(config.get("mlp_bias")), "the MLP has no biases"),
        *((key, _scales(config.get(key)), "scaled or partial rotary embeddings are not supported")
          for key in ("rope_parameters", "rope_scaling")),
        ("partial_rotary_factor", config.get("partial_rotary_factor", 1.0) != 1.0,
         "partial rotary embeddings are not supported"),
        ("architectures", bool(names) and not any(str(name).endswith(_CAUSAL) for name in names),
         f"a text model is a ...{_CAUSAL}"),
        ("tie_word_embeddings", not isinstance(config.get("tie_word_embeddings", False), bool), "it is true or false"),
    ]  # fmt: skip
    return [(key, why) for key, bad, why in checks if bad]


def _count(file: Path, config: dict[str, Any], key: str, default: int | None = None) -> int:
    value = default if config.get(key) is None else config[key]
    if value is None:
        raise ConfigError(f"{file} lacks {key}")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{file}: {key} is {value!r}: it counts from 1")
    return value


def _positive(file: Path, config: dict[str, Any], key: str, default: float) -> float:
    value = config.get(key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise ConfigError(f"{file}: {key} is {value!r}: it is above 0, and finite")
    return float(value)


def _eos_ids(folder: Path, config: dict[str, Any]) -> tuple[int, ...]:
    found: set[int] = set()
    sources = [(folder / "config.json", config)]
    if (more := folder / "generation_config.json").exists():
        sources.append((more, _read_json(more)))
    for file, source in sources:
        value = source.get("eos_token_id")
        ids = [] if value is None else value if isinstance(value, list) else [value]
        if not all(isinstance(one, int) and one >= 0 for one in ids):
            raise ConfigError(f"{file}: eos_token_id is {value!r}: ids count from 0")
        found.update(ids)
    return tuple(sorted(found))


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
