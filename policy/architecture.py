"""What a Hugging Face `config.json` says about a decoder that this program runs and trains."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from runtime import disk
from runtime.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor


class Traits(NamedTuple):
    """What a `model_type` says with its config.json: parts of a layer, and defaults of keys that may be absent."""

    qkv_bias: bool = False  # default of attention_bias
    bias_is_optional: bool = False  # whether attention_bias may be the other one
    qk_norm: bool = False  # every query and key head is normalised
    post_norms: bool = False  # what attention and MLP give is normalised before it is added
    fused_gate_up: bool = False  # gate and up are one tensor of the folder
    interleaved: bool = False  # rotary pairs lie side by side in the folder, not half a head apart
    rotary_part: float = 1.0  # default of partial_rotary_factor
    head_dim: int | None = None  # default; None is hidden_size / num_attention_heads
    norm_eps: float = 1e-6
    window: int | None = None  # default of sliding_window, where the key counts without use_sliding_window
    sees: bool = False  # the folder holds a tower, and positions have three parts
    rope_base: float = 10_000.0  # default of rope_theta


_GLM4 = {"qkv_bias": True, "bias_is_optional": True, "post_norms": True, "fused_gate_up": True, "interleaved": True}
STYLES = {
    "llama": Traits(),
    "mistral": Traits(window=4096),
    "qwen2": Traits(qkv_bias=True),
    "qwen3": Traits(qk_norm=True, head_dim=128),
    "glm4": Traits(**_GLM4, rotary_part=0.5, head_dim=128, norm_eps=1.5625e-7),
    "qwen2_5_vl": Traits(qkv_bias=True, sees=True, norm_eps=1e-5, rope_base=1e6),
    "glm4v": Traits(qkv_bias=True, post_norms=True, fused_gate_up=True, interleaved=True, sees=True, norm_eps=1e-5),
}
NOT_SEEN = {
    "qwen2_vl": "its tower is another than that of Qwen2.5-VL",
    "qwen3_vl": "it adds features of pictures in later layers (deepstack), which is not supported",
}
MOST_LAYERS = 2048  # each is a dozen tensors
MOST = 1 << 24  # of anything else that config.json counts


class RopeScaling(msgspec.Struct, frozen=True, kw_only=True):
    """Llama 3's stretched rotary positions, by the names of config.json."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_position_embeddings: int


_Few = Annotated[int, Meta(ge=1, le=64)]
_Many = Annotated[int, Meta(ge=1, le=1 << 16)]


class VisionShape(msgspec.Struct, frozen=True, kw_only=True):
    """A tower, by the names of config.json's vision_config: what makes tokens of patches."""

    depth: Annotated[int, Meta(ge=1, le=256)] = 32
    hidden_size: _Many = 3584
    intermediate_size: _Many = 3420
    num_heads: _Many = 16
    out_hidden_size: _Many = 3584
    patch_size: _Few = 14
    spatial_merge_size: _Few = 2
    temporal_patch_size: _Few = 2
    window_size: _Many = 112  # pixels of a side within which most layers attend
    fullatt_block_indexes: tuple[int, ...] = (7, 15, 23, 31)  # layers that attend to the whole picture
    hidden_act: Literal["silu"] = "silu"
    in_channels: Literal[3] = 3
    in_chans: Literal[3] = 3


class GlmVisionShape(VisionShape, frozen=True, kw_only=True):
    """GLM-4.1V's: positions are learned for a square picture and stretched, and every layer attends to all of it."""

    depth: Annotated[int, Meta(ge=1, le=256)] = 24
    hidden_size: _Many = 1536
    intermediate_size: _Many = 13696  # of what follows the layers; theirs is out_hidden_size
    num_heads: _Many = 12
    out_hidden_size: _Many = 4096
    image_size: _Many = 336
    rms_norm_eps: Annotated[float, Meta(gt=0, lt=1)] = 1e-5
    attention_bias: Literal[False] = False


VISION_SHAPES: dict[str, type[VisionShape]] = {"qwen2_5_vl": VisionShape, "glm4v": GlmVisionShape}


class ModelVerdict(msgspec.Struct):
    """What `model_check` found of a folder; `why` is empty where all is good."""

    architecture: str  # model_type
    loads: bool = False  # by learner and engine
    max_logit_diff: float | None = None  # of both, to transformers in float32
    generates: bool = False  # greedily, what transformers would, and gives all tensors back when it is exported
    chat: list[str] = []  # what its chat template refuses of conversations of one to four questions
    why: str = ""


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """Shape of a dense decoder."""

    style: str  # model_type
    layers: int
    hidden: int
    heads: int  # of queries
    kv_heads: int  # of keys and values
    head_dim: int
    rotary_dim: int  # the first so many numbers of a head are turned by their position
    ffn: int
    vocab: int
    context: int  # tokens, prompt and response together
    norm_eps: float
    rope_base: float
    rope_scaling: RopeScaling | None = None
    qkv_bias: bool
    tied: bool  # the output projection is the embedding
    eos_ids: tuple[int, ...] = ()  # end of sequence, or of a turn
    vision: VisionShape | None = None
    mrope: tuple[int, ...] = ()  # rotary pairs turned by time, by height and by width, where positions have three parts

    @property
    def traits(self) -> Traits:
        return STYLES[self.style]


def read_architecture(folder: Path) -> Architecture:
    """Read `folder`/config.json, and generation_config.json for end-of-sequence ids.

    Raises ConfigError of one line with the file and its key for what is missing or not covered.
    """
    file = folder / "config.json"
    whole = read_json(file)
    style = whole.get("model_type", "")
    if not isinstance(style, str) or style not in STYLES:
        why = NOT_SEEN.get(str(style), f"it is not one of {', '.join(STYLES)}")
        raise ConfigError(f"{file}: model_type {style!r}: {why}")
    traits = STYLES[style]
    config = _text_part(file, whole) if traits.sees else whole
    for key, why in _not_covered(config, style):
        raise ConfigError(f"{file}: {key} {config[key]!r}: {why}" if key in config else f"{file} lacks {key}: {why}")
    heads = _count(file, config, "num_attention_heads")
    hidden = _count(file, config, "hidden_size")
    kv_heads = _count(file, config, "num_key_value_heads", heads)
    head_dim = _count(file, config, "head_dim", traits.head_dim or hidden // heads)
    if heads % kv_heads:
        raise ConfigError(f"{file}: num_attention_heads {heads} is no multiple of num_key_value_heads {kv_heads}")
    if config.get("head_dim", traits.head_dim) is None and hidden % heads:
        raise ConfigError(f"{file}: hidden_size {hidden} is no multiple of num_attention_heads {heads}: say head_dim")
    if head_dim % 2:
        raise ConfigError(f"{file}: head_dim {head_dim} is odd, and rotary positions turn pairs")
    flat = {**config, **_rope(config)}
    part = _positive(file, flat, "partial_rotary_factor", traits.rotary_part)
    if part != 1.0 and not traits.interleaved:
        raise ConfigError(f"{file}: partial_rotary_factor {part:g}: {style} turns whole heads")
    rotary_dim = int(head_dim * part)
    if part > 1 or rotary_dim < 2 or rotary_dim % 2:
        raise ConfigError(f"{file}: partial_rotary_factor {part:g} of head_dim {head_dim} is no even number of it")
    return Architecture(
        style=style,
        layers=_count(file, config, "num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rotary_dim=rotary_dim,
        ffn=_count(file, config, "intermediate_size"),
        vocab=_count(file, config, "vocab_size"),
        context=_count(file, config, "max_position_embeddings"),
        norm_eps=_positive(file, config, "rms_norm_eps", traits.norm_eps),
        rope_base=_positive(file, flat, "rope_theta", traits.rope_base),
        rope_scaling=_scaling(file, _rope(config)),
        qkv_bias=_qkv_bias(config, traits),
        tied=bool(config.get("tie_word_embeddings", False)),
        eos_ids=end_ids(folder),
        vision=_vision(file, whole, hidden) if traits.sees else None,
        mrope=_sections(file, _rope(config), rotary_dim) if traits.sees else (),
    )


def _text_part(file: Path, whole: dict[str, Any]) -> dict[str, Any]:
    """What config.json says of the decoder of a model that sees: older folders have it next to the rest."""
    inner = whole.get("text_config", {})
    if not isinstance(inner, dict):
        raise ConfigError(f"{file}: text_config is {inner!r}: it is an object")
    tied = bool(whole.get("tie_word_embeddings")) or bool(inner.get("tie_word_embeddings"))
    return {key: value for key, value in whole.items() if key != "text_config"} | inner | {"tie_word_embeddings": tied}


def _vision(file: Path, whole: dict[str, Any], hidden: int) -> VisionShape:
    try:
        shape = msgspec.convert(whole.get("vision_config"), VISION_SHAPES[whole["model_type"]])
    except msgspec.ValidationError as error:
        raise ConfigError(f"{file}: vision_config: {error}") from error
    if shape.out_hidden_size != hidden:
        raise ConfigError(f"{file}: out_hidden_size {shape.out_hidden_size} is not hidden_size {hidden}")
    if shape.hidden_size % (4 * shape.num_heads):
        raise ConfigError(f"{file}: vision_config: hidden_size is no multiple of four times num_heads")
    if shape.window_size % (shape.patch_size * shape.spatial_merge_size):
        raise ConfigError(f"{file}: vision_config: window_size {shape.window_size} is no whole number of tokens' sides")
    return shape


def _sections(file: Path, rope: dict[str, Any], rotary_dim: int) -> tuple[int, ...]:
    sections = rope.get("mrope_section")
    if (
        not isinstance(sections, list)
        or len(sections) != len(("time", "height", "width"))
        or not all(isinstance(size, int) and size >= 0 for size in sections)
        or 2 * sum(sections) != rotary_dim
    ):
        raise ConfigError(f"{file}: mrope_section is {sections!r}: three counts of pairs, {rotary_dim // 2} together")
    return tuple(sections)


def _qkv_bias(config: dict[str, Any], traits: Traits) -> bool:
    return bool(config.get("attention_bias", traits.qkv_bias))


def _rope(config: dict[str, Any]) -> dict[str, Any]:
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    return rope if isinstance(rope, dict) else {"rope_type": rope}


def _kind(rope: dict[str, Any]) -> object:
    kind = rope.get("rope_type", rope.get("type")) or "default"
    return "default" if kind == "mrope" and "mrope_section" in rope else kind


def _strange(rope: object, *, sees: bool = False) -> bool:
    """Whether rotary positions under `rope` are neither plain nor, of a model that reads text alone, Llama 3's."""
    if not isinstance(rope, dict):
        return bool(rope)
    known = {"rope_type", "type", "rope_theta", "partial_rotary_factor", *(["mrope_section"] if sees else [])}
    if sees and _kind(rope) != "default":
        return True
    if _kind(rope) == "llama3":
        return bool(rope.keys() - known - set(RopeScaling.__struct_fields__))
    if _kind(rope) != "default":
        return True
    return any(key not in known and value not in (None, {"factor": 1.0}.get(key)) for key, value in rope.items())


def _scaling(file: Path, rope: dict[str, Any]) -> RopeScaling | None:
    if _kind(rope) != "llama3":
        return None
    factor, low, high = (_positive(file, rope, key) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    if low >= high:
        raise ConfigError(f"{file}: low_freq_factor {low:g} is not below high_freq_factor")
    length = _count(file, rope, "original_max_position_embeddings")
    return RopeScaling(
        factor=factor, low_freq_factor=low, high_freq_factor=high, original_max_position_embeddings=length
    )


def _not_covered(config: dict[str, Any], style: str) -> list[tuple[str, str]]:
    """Keys that ask for what the model here does not do, and why."""
    traits = STYLES[style]
    layers, names = (config.get(key) or [] for key in ("layer_types", "architectures"))
    layers, names = (value if isinstance(value, list) else [value] for value in (layers, names))
    two = [config[key] for key in ("rope_parameters", "rope_scaling") if config.get(key)]
    window, context = config.get("sliding_window", traits.window), config.get("max_position_embeddings")
    task = "ForConditionalGeneration" if traits.sees else "ForCausalLM"
    narrow = isinstance(window, int) and not (isinstance(context, int) and window >= context)
    checks = [
        ("hidden_act", config.get("hidden_act", "silu") != "silu", "the activation is silu"),
        ("use_sliding_window", bool(config.get("use_sliding_window")), "sliding windows are not supported"),
        ("sliding_window", traits.window is not None and narrow, "sliding windows are not supported: null is none"),
        ("layer_types", any(kind != "full_attention" for kind in layers), "every layer is full_attention"),
        ("attention_bias", not traits.bias_is_optional and _qkv_bias(config, traits) != traits.qkv_bias,
         f"{style} has it {traits.qkv_bias}"),
        ("mlp_bias", bool(config.get("mlp_bias")), "the MLP has no biases"),
        *((key, _strange(config.get(key), sees=traits.sees), "positions are plain or scaled as llama3")
          for key in ("rope_parameters", "rope_scaling")),
        ("rope_scaling", len(two) == 2 and _kind(two[0]) != _kind(two[1]), "rope_parameters says another"),
        ("architectures", bool(names) and not any(str(name).lower() == f"{style}{task}".lower() for name in names),
         f"a {'seeing' if traits.sees else 'text'} model of this model_type is {style.capitalize()}{task}"),
        ("head_dim", traits.sees and bool(config.get("head_dim")), "it is hidden_size / num_attention_heads"),
        ("auto_map", bool(config.get("auto_map")), "it is run by programs of the folder, which are never run"),
        ("tie_word_embeddings", not isinstance(config.get("tie_word_embeddings", False), bool), "it is true or false"),
    ]  # fmt: skip
    return [(key, why) for key, bad, why in checks if bad]


def _count(file: Path, config: dict[str, Any], key: str, default: int | None = None) -> int:
    value = default if config.get(key) is None else config[key]
    if value is None:
        raise ConfigError(f"{file} lacks {key}")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{file}: {key} is {value!r}: it counts from 1")
    if value > (most := MOST_LAYERS if key == "num_hidden_layers" else MOST):
        raise ConfigError(f"{file}: {key} is {value}: it is at most {most}")
    return value


def _positive(file: Path, config: dict[str, Any], key: str, default: float | None = None) -> float:
    value = default if config.get(key) is None else config[key]
    if value is None:
        raise ConfigError(f"{file} lacks {key}")
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < float("inf"):
        raise ConfigError(f"{file}: {key} is {value!r}: it is above 0, and finite")
    return float(value)


def end_ids(folder: Path) -> tuple[int, ...]:
    """What ends an answer, by config.json and generation_config.json, as far as the folder has them."""
    all_ids: set[int] = set()
    for file in (folder / "config.json", folder / "generation_config.json"):
        config = read_json(file) if file.exists() else {}
        inner = config.get("text_config")
        value = config.get("eos_token_id", inner.get("eos_token_id") if isinstance(inner, dict) else None)
        ids = [] if value is None else value if isinstance(value, list) else [value]
        if not all(isinstance(number, int) and number >= 0 for number in ids):
            raise ConfigError(f"{file}: eos_token_id is {value!r}: ids count from 0")
        all_ids.update(ids)
    return tuple(sorted(all_ids))


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file of a model folder. Raises ConfigError."""
    try:
        return msgspec.json.decode(disk.read_bytes(path), type=dict[str, Any])
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error


def inverse_frequencies(arch: Architecture) -> Tensor:
    """Radians per position of each rotary pair, [rotary_dim / 2] float32.

    Llama 3's scaling counts a pair's turns within the original context. Below `low_freq_factor` turns the frequency is
    divided by `factor`, above `high_freq_factor` it is kept, and between them it is interpolated linearly. All is
    computed step by step as transformers does, so that learner and engine agree with it to the last bit.
    """
    import torch  # planning needs none

    steps = torch.arange(0, arch.rotary_dim, 2, dtype=torch.float32) / arch.rotary_dim
    rates = 1.0 / (arch.rope_base**steps)
    scaling = arch.rope_scaling
    if scaling is None:
        return rates
    lengths = 2 * math.pi / rates  # tokens of a whole turn
    original = scaling.original_max_position_embeddings
    slowed = torch.where(lengths > original / scaling.low_freq_factor, rates / scaling.factor, rates)
    share = (original / lengths - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    between = (1 - share) * slowed / scaling.factor + share * slowed
    inside = (lengths >= original / scaling.high_freq_factor) & (lengths <= original / scaling.low_freq_factor)
    return torch.where(inside, between, slowed)
