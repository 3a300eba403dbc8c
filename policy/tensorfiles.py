"""What a model folder's weights are, read from the heads of its safetensors files without a tensor library.

Invariant: a folder passes only if it holds every tensor of the model, and no other tensor. Each has floating point and
the shape that `config.json` gives. The error names what is missing, additional or of another shape.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from policy.architecture import read_architecture
from policy.tensornames import EMBEDDING, HEAD, expected

FLOATS = ("F64", "F32", "F16", "BF16")  # of safetensors, as a model's weights are stored
# Config, tokenizer, template and what people read: never a program or a pickle.
COMPANION_KINDS = (".json", ".txt", ".model", ".tiktoken", ".jinja", ".md")
COMPANION_NAMES = ("LICENSE", "NOTICE")
_HEAD_MOST = 100_000_000  # bytes: the format's own limit
_ADAPTERS = ("adapter_config.json", "adapter_model.*", "*lora*")
_QUANTISERS = ("quantize_config.json", "quant_config.json", "hf_quant_config.json", "quant_strategy.json")
_QUANTISED = ("quantization_config", "compression_config")  # of config.json
_DERIVED = ".rotary_emb.inv_freq"  # old writers stored what config.json says anyway
_OF_ADAPTERS = ("lora_", "base_model.", "adapter", "modules_to_save", "ia3_", "hada_", "lokr_")
_OF_QUANTISERS = (
    "qweight", "qzeros", "scales", "g_idx", "_scale", "_scale_inv", "zero_point", "zeros", "absmax", "quant_map",
    "quant_state", "SCB", "weight_format", "weight_packed", "weight_shape", "_blocks", "bitsandbytes",
)  # fmt: skip


class Tensor(msgspec.Struct, frozen=True):
    """One tensor as a file's head describes it."""

    dtype: str  # of safetensors: F32, BF16, I8, ...
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]  # bytes after the head


def problem(folder: Path) -> str:
    """Why the weights in `folder` are not those of a model that can be run and trained; "" where they are.

    Raises ConfigError where config.json describes a model that is not covered.
    """
    arch = read_architecture(folder)
    config = json.loads((folder / "config.json").read_bytes())
    return _company(folder, config) or _misfit(folder, expected(arch), tied=arch.tied)


def _company(folder: Path, config: Mapping[str, Any]) -> str:
    """What beside the weights says that they are not the model's own."""
    for key in _QUANTISED:
        if value := config.get(key):
            method = value.get("quant_method") if isinstance(value, dict) else None
            return f"its config.json has {key}{f' ({method})' if method else ''}: quantised weights can't be trained"
    for name in _QUANTISERS:
        if (folder / name).exists():
            return f"it holds {name}: quantised weights can't be trained"
    for name in _ADAPTERS:
        if files := sorted(folder.glob(name)):
            return f"it holds {files[0].name}, an adapter, which would not be applied: merge it into the weights"
    return ""


def _misfit(folder: Path, wanted: Mapping[str, tuple[int, ...]], *, tied: bool) -> str:
    held: dict[str, tuple[Path, Tensor]] = {}
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        return "it holds no *.safetensors file"
    for file in files:
        try:
            tensors = head(file)
        except (OSError, ValueError) as error:
            return f"cannot read {file.name}: {error}"
        if twice := next((name for name in tensors if name in held), None):
            return f"the tensor {twice} is in {held[twice][0].name} and in {file.name}"
        held |= {name: (file, tensor) for name, tensor in tensors.items()}
    for name, (file, tensor) in held.items():
        if name.endswith(_DERIVED):
            continue
        if name not in wanted and not (tied and name == HEAD and _same(held.get(EMBEDDING), (file, tensor))):
            return f"{file.name} has the tensor {name}, which the model does not use{_guess(name)}"
        if tensor.dtype not in FLOATS:
            return f"{file.name}: {name} is {tensor.dtype}: weights are of {', '.join(FLOATS)}, not quantised"
    for name, shape in wanted.items():
        if name not in held:
            return f"it lacks the tensor {name}"
        if held[name][1].shape != shape:
            return f"{name} has shape {held[name][1].shape}, its config.json says {shape}"
    return ""


def _guess(name: str) -> str:
    """What an unknown tensor is likely to be."""
    if any(part in name for part in _OF_ADAPTERS):
        return ": a part of an adapter, which would not be applied"
    if name.endswith(_OF_QUANTISERS) or any(f".{part}" in name for part in ("quant", "absmax")):
        return ": a part of quantised weights"
    return ""


def _same(one: tuple[Path, Tensor] | None, other: tuple[Path, Tensor]) -> bool:
    """Whether both are the very same numbers."""
    return one is not None and one[1].shape == other[1].shape and _bytes(*one) == _bytes(*other)


def _bytes(file: Path, tensor: Tensor) -> bytes:
    begin, end = tensor.data_offsets
    with file.open("rb") as opened:
        opened.seek(8 + int.from_bytes(opened.read(8), "little") + begin)
        return opened.read(end - begin)


def head(file: Path) -> dict[str, Tensor]:
    """The tensors that a safetensors file says it holds. Raises OSError, ValueError with one line."""
    with file.open("rb") as opened:
        size = int.from_bytes(opened.read(8), "little")
        if not 2 <= size <= min(_HEAD_MOST, file.stat().st_size - 8):
            raise ValueError("it is no safetensors file, or was cut short")
        text = opened.read(size)
    try:
        parts = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        heads = {name: msgspec.json.decode(part, type=Tensor) for name, part in parts.items() if name != "__metadata__"}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"its head is damaged ({error})") from error
    if (end := max((tensor.data_offsets[1] for tensor in heads.values()), default=0)) != file.stat().st_size - 8 - size:
        raise ValueError(f"it holds {file.stat().st_size - 8 - size} bytes of weights, its head says {end}")
    return heads
