"""Which tensors a model folder holds, and whether its safetensors files hold them, without a tensor library.

One table of names: what a folder must hold, what is loaded and what is exported follow from it. A folder passes only if
it holds every tensor of the model in its shape, and no other tensor.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from policy.architecture import Architecture, GlmVisionShape, VisionShape, read_architecture
from runtime import disk
from runtime.messaging.message import Value

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
SEEING = "visual."  # what the names of a tower's tensors begin with


class ParameterTensors(NamedTuple):
    """The folder's tensors in one parameter, in order, and the dimension by which tensor-parallel ranks share it."""

    tensors: dict[str, tuple[int, ...]]
    split: int | None


class BroadcastPart(Value):
    """Tensors that are sent at once: Hugging Face names, types without `torch.`, shapes."""

    names: list[str]
    dtypes: list[str]
    shapes: list[list[int]]


@lru_cache
def outside(arch: Architecture) -> dict[str, ParameterTensors]:
    """The parameters outside the layers, by Megatron's names."""
    return {
        "embedding.word_embeddings.weight": ParameterTensors({EMBEDDING: (arch.vocab, arch.hidden)}, 0),
        "output_layer.weight": ParameterTensors({HEAD: (arch.vocab, arch.hidden)}, 0),
        "decoder.final_layernorm.weight": ParameterTensors({"model.norm.weight": (arch.hidden,)}, None),
    }


@lru_cache
def inside(arch: Architecture) -> dict[str, ParameterTensors]:
    """The parameters of one layer, by what follows the layer's number in Megatron's and in the folder's names."""
    traits, width, ffn, dim = arch.traits, arch.hidden, arch.ffn, arch.head_dim
    rows = {"q": arch.heads * dim, "k": arch.kv_heads * dim, "v": arch.kv_heads * dim}
    gate_up = {"gate_up_proj": 2 * ffn} if traits.fused_gate_up else {"gate_proj": ffn, "up_proj": ffn}
    table = {
        "input_layernorm.weight": ParameterTensors({"input_layernorm.weight": (width,)}, None),
        "self_attention.linear_qkv.weight": ParameterTensors(
            {f"self_attn.{x}_proj.weight": (n, width) for x, n in rows.items()}, 0
        ),
        "self_attention.linear_proj.weight": ParameterTensors(
            {"self_attn.o_proj.weight": (width, arch.heads * dim)}, 1
        ),
        "pre_mlp_layernorm.weight": ParameterTensors({"post_attention_layernorm.weight": (width,)}, None),
        "mlp.linear_fc1.weight": ParameterTensors({f"mlp.{x}.weight": (n, width) for x, n in gate_up.items()}, 0),
        "mlp.linear_fc2.weight": ParameterTensors({"mlp.down_proj.weight": (width, ffn)}, 1),
    }
    if arch.qkv_bias:
        table["self_attention.linear_qkv.bias"] = ParameterTensors(
            {f"self_attn.{x}_proj.bias": (n,) for x, n in rows.items()}, 0
        )
    if traits.qk_norm:
        for x in "qk":
            table[f"self_attention.{x}_layernorm.weight"] = ParameterTensors(
                {f"self_attn.{x}_norm.weight": (dim,)}, None
            )
    if traits.post_norms:
        table["self_attn_bda.weight"] = ParameterTensors({"post_self_attn_layernorm.weight": (width,)}, None)
        table["mlp_bda.weight"] = ParameterTensors({"post_mlp_layernorm.weight": (width,)}, None)
    return table


def held(name: str, arch: Architecture) -> ParameterTensors:
    """What Megatron's parameter `name` holds. Raises KeyError if unknown."""
    if parameter := outside(arch).get(name):
        return parameter
    if name.startswith(SEEING) and arch.vision is not None:
        return ParameterTensors({name: tower(arch.vision)[name.removeprefix(SEEING)]}, None)
    _, _, layer, suffix = name.split(".", 3)
    tensors, split = inside(arch)[suffix]
    return ParameterTensors({f"model.layers.{layer}.{hf}": size for hf, size in tensors.items()}, split)


def plain_name(name: str, arch: Architecture | None = None) -> str:
    """A tensor's name as published folders have it: transformers has other ones in memory, which some folders keep.

    An `arch` without a tower has such names only.
    """
    if arch is not None and arch.vision is None:
        return name
    return (
        name.removeprefix("model.") if name.startswith(f"model.{SEEING}") else name.replace(".language_model.", ".", 1)
    )


def tower(shape: VisionShape) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a tower's tensors, without `SEEING`."""
    if isinstance(shape, GlmVisionShape):
        return _glm_tower(shape)
    width, inner, merged = shape.hidden_size, shape.intermediate_size, shape.hidden_size * shape.spatial_merge_size**2
    linear = {
        "attn.qkv": (3 * width, width),
        "attn.proj": (width, width),
        "mlp.gate_proj": (inner, width),
        "mlp.up_proj": (inner, width),
        "mlp.down_proj": (width, inner),
    }
    each: dict[str, tuple[int, ...]] = {f"{name}.weight": size for name, size in linear.items()}
    each |= {f"{name}.bias": size[:1] for name, size in linear.items()} | {f"norm{n}.weight": (width,) for n in (1, 2)}
    return {
        "patch_embed.proj.weight": (width, 3, shape.temporal_patch_size, shape.patch_size, shape.patch_size),
        **{f"blocks.{n}.{name}": size for n in range(shape.depth) for name, size in each.items()},
        "merger.ln_q.weight": (width,),
        "merger.mlp.0.weight": (merged, merged),
        "merger.mlp.0.bias": (merged,),
        "merger.mlp.2.weight": (shape.out_hidden_size, merged),
        "merger.mlp.2.bias": (shape.out_hidden_size,),
    }


def _glm_tower(shape: GlmVisionShape) -> dict[str, tuple[int, ...]]:
    width, out, inner, merge = (
        shape.hidden_size,
        shape.out_hidden_size,
        shape.intermediate_size,
        shape.spatial_merge_size,
    )
    each = {
        "attn.qkv.weight": (3 * width, width),
        "attn.proj.weight": (width, width),
        "mlp.gate_proj.weight": (out, width),
        "mlp.up_proj.weight": (out, width),
        "mlp.down_proj.weight": (width, out),
        "norm1.weight": (width,),
        "norm2.weight": (width,),
    }
    return {
        "patch_embed.proj.weight": (width, 3, shape.temporal_patch_size, shape.patch_size, shape.patch_size),
        "patch_embed.proj.bias": (width,),
        "embeddings.position_embedding.weight": ((shape.image_size // shape.patch_size) ** 2, width),
        "post_conv_layernorm.weight": (width,),
        **{f"blocks.{n}.{name}": size for n in range(shape.depth) for name, size in each.items()},
        "post_layernorm.weight": (width,),
        "downsample.weight": (out, width, merge, merge),
        "downsample.bias": (out,),
        "merger.proj.weight": (out, out),
        "merger.post_projection_norm.weight": (out,),
        "merger.post_projection_norm.bias": (out,),
        "merger.gate_proj.weight": (inner, out),
        "merger.up_proj.weight": (inner, out),
        "merger.down_proj.weight": (out, inner),
    }


def expected(arch: Architecture) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all tensors of a model folder, a tower's included."""
    names = {hf: size for parameter in outside(arch).values() for hf, size in parameter.tensors.items()}
    if arch.tied:
        del names[HEAD]
    for number in range(arch.layers):
        for suffix in inside(arch):
            names |= held(f"decoder.layers.{number}.{suffix}", arch).tensors
    seeing = {} if arch.vision is None else tower(arch.vision)
    return names | {f"{SEEING}{name}": size for name, size in seeing.items()}


# Config, tokenizer, template and what people read: never a program or a pickle.
COMPANION_KINDS = (".json", ".txt", ".model", ".tiktoken", ".jinja", ".md")
COMPANION_NAMES = ("LICENSE", "NOTICE")
_HEAD_MOST = 8 << 20  # bytes: a decoder of 2,000 tensors takes 300,000
_SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}  # bytes of a number
_EXPONENTS = {"F64": 0x7FF0 << 48, "F32": 0x7F80 << 16, "F16": 0x7C00, "BF16": 0x7F80}  # all bits set: not finite
_DIMENSIONS = 8
_INDEX = ".safetensors.index.json"
_LOOKED_AT, _PIECE = 64 << 20, 4 << 20  # bytes of weights
FLOATS = tuple(_SIZES)  # of safetensors, as a model's weights are stored
_ADAPTERS = ("adapter_config.json", "adapter_model.*", "*lora*")
_QUANTISED = ("quantization_config", "compression_config")  # of config.json
_DERIVED = ".rotary_emb.inv_freq"  # old writers stored what config.json says anyway


class Tensor(msgspec.Struct, frozen=True):
    """One tensor as a file's head describes it."""

    dtype: str  # of safetensors: F32, BF16, I8, ...
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]  # bytes after the head


class _Index(msgspec.Struct):
    """What of an index is read."""

    weight_map: dict[str, str]


def problem(folder: Path) -> str:
    """Why the weights in `folder` are not those of a model that can be run and trained; "" where they are.

    Raises ConfigError where config.json describes a model that is not covered.
    """
    arch = read_architecture(folder)
    config = json.loads(disk.read_bytes(folder / "config.json"))
    return _company(folder, config) or _misfit(folder, expected(arch), arch)


def unreadable(folder: Path) -> str:
    """Why what is next to the weights in `folder` is not to be read by any library; "" where it may be.

    A library would wait for a FIFO, and read a device or a file of any size whole.
    """
    total = 0
    for path in folder.iterdir():
        if not taken_along(path.name) or not path.exists() or path.is_dir():
            continue
        if not path.is_file():
            return f"{path.name} is no regular file"
        if path.suffix == ".jinja" and path.stat().st_size > disk.SETTINGS:
            return f"{path.name} has more than {disk.SETTINGS} bytes"
        if (total := total + path.stat().st_size) > disk.MODEL:
            return f"with {path.name}, what lies next to its weights has more than {disk.MODEL} bytes"
    return ""


def taken_along(name: str) -> bool:
    """Whether a file of this name is configuration, tokenizer, template or text, and goes wherever its model goes."""
    if name.startswith(".") or name.endswith(_INDEX):
        return False
    return name in COMPANION_NAMES or name.endswith(COMPANION_KINDS)


def _company(folder: Path, config: Mapping[str, Any]) -> str:
    """What next to the weights says that they are not the model's own."""
    for key in _QUANTISED:
        if value := config.get(key):
            method = value.get("quant_method") if isinstance(value, dict) else None
            return f"its config.json has {key}{f' ({method})' if method else ''}: quantised weights can't be trained"
    for name in _ADAPTERS:
        if files := sorted(folder.glob(name)):
            return f"it holds {files[0].name}, an adapter, which would not be applied: merge it into the weights"
    return ""


def _misfit(folder: Path, wanted: Mapping[str, tuple[int, ...]], arch: Architecture) -> str:
    stored: dict[str, tuple[Path, Tensor]] = {}
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        return "it holds no *.safetensors file"
    for file in files:
        try:
            tensors = {plain_name(name, arch): tensor for name, tensor in head(file).items()}
        except OSError as error:
            return f"cannot read {file.name}: {error.strerror}"
        except ValueError as error:
            return f"cannot read {file.name}: {error}"
        if twice := next((name for name in tensors if name in stored), None):
            return f"the tensor {twice} is in {stored[twice][0].name} and in {file.name}"
        stored |= {name: (file, tensor) for name, tensor in tensors.items()}
    for name, (file, tensor) in stored.items():
        if name.endswith(_DERIVED):
            continue
        if name not in wanted and not (arch.tied and name == HEAD and _same(stored.get(EMBEDDING), (file, tensor))):
            return f"{file.name} has the tensor {name}, which the model does not use"
        if tensor.dtype not in FLOATS:
            return f"{file.name}: {name} is {tensor.dtype}: weights are of {', '.join(FLOATS)}, not quantised"
    for name, shape in wanted.items():
        if name not in stored:
            return f"it lacks the tensor {name}"
        if stored[name][1].shape != shape:
            return f"{name} has shape {stored[name][1].shape}, its config.json says {shape}"
    wrong = _misled(folder / f"model{_INDEX}", {name: file.name for name, (file, _) in stored.items()}, arch)
    return wrong or next((f"{name} holds numbers that are not finite" for name in _infinite(stored)), "")


def _infinite(stored: Mapping[str, tuple[Path, Tensor]]) -> Iterator[str]:
    """The tensors within the first `_LOOKED_AT` bytes that hold an infinity or a NaN. Loading looks at all."""
    import numpy as np

    left = _LOOKED_AT
    for name, (file, tensor) in stored.items():
        if tensor.dtype not in FLOATS:
            continue
        kind, exponent = np.dtype(f"<u{_SIZES[tensor.dtype]}"), _EXPONENTS[tensor.dtype]
        for at in range(*tensor.data_offsets, _PIECE):
            piece = np.frombuffer(_bytes(file, at, min(at + _PIECE, tensor.data_offsets[1])), dtype=kind)
            if (left := left - piece.nbytes) < 0:
                return
            if bool((piece & kind.type(exponent) == exponent).any()):
                yield name


def _misled(index: Path, stored: Mapping[str, str], arch: Architecture) -> str:
    """What an index of the weights, which other programs go by, says of them that is not so."""
    if not os.path.lexists(index):
        return ""
    try:
        named = msgspec.json.decode(disk.read_bytes(index, _HEAD_MOST), type=_Index).weight_map
        listed = {plain_name(name, arch): file for name, file in named.items()}
    except OSError as error:
        return f"cannot read {index.name}: {error.strerror}"
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return f"cannot read {index.name}: {error}"
    for name in (*listed, *stored):
        if listed.get(name) != stored.get(name):
            there = stored.get(name, "no file")
            return f"{index.name} says that {name} is in {listed.get(name, 'no file')!r:.80}, and {there} has it"
    return ""


def _same(first: tuple[Path, Tensor] | None, other: tuple[Path, Tensor]) -> bool:
    """Whether both are the very same numbers."""
    if first is None or first[1].shape != other[1].shape or first[1].dtype != other[1].dtype:
        return False
    (left, tensor), (right, twin) = first, other
    begin, apart = tensor.data_offsets[0], twin.data_offsets[0] - tensor.data_offsets[0]
    return all(
        _bytes(left, at, min(at + _PIECE, tensor.data_offsets[1]))
        == _bytes(right, at + apart, min(at + _PIECE, tensor.data_offsets[1]) + apart)
        for at in range(begin, tensor.data_offsets[1], _PIECE)
    )


def _bytes(file: Path, begin: int, end: int) -> bytes:
    """These bytes of a file's weights."""
    with disk.opened(file) as opened:
        opened.seek(8 + int.from_bytes(opened.read(8), "little") + begin)
        return opened.read(end - begin)


def head(file: Path) -> dict[str, Tensor]:
    """The tensors that a safetensors file says it holds. Raises OSError, ValueError with one line."""
    with disk.opened(file) as opened:
        length = os.fstat(opened.fileno()).st_size
        size = int.from_bytes(opened.read(8), "little")
        if not 2 <= size <= min(_HEAD_MOST, length - 8):
            raise ValueError("it is no safetensors file, or was cut short")
        text = opened.read(size)
    try:
        parts = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        heads = {name: msgspec.json.decode(part, type=Tensor) for name, part in parts.items() if name != "__metadata__"}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"its head is damaged ({error})") from error
    _refuse_misplaced(heads)
    if (end := max((tensor.data_offsets[1] for tensor in heads.values()), default=0)) != length - 8 - size:
        raise ValueError(f"it holds {length - 8 - size} bytes of weights, its head says {end}")
    return heads


def _refuse_misplaced(heads: Mapping[str, Tensor]) -> None:
    """Raise ValueError unless the tensors lie one after the other, each with the bytes of its shape."""
    place = 0
    for name, tensor in sorted(heads.items(), key=lambda item: item[1].data_offsets):
        begin, end = tensor.data_offsets
        if begin != place or end < begin:
            raise ValueError(f"{name} begins at byte {begin} of the weights, the one before it ends at {place}")
        each = _SIZES.get(tensor.dtype)
        if len(tensor.shape) > _DIMENSIONS:
            raise ValueError(f"{name} has {len(tensor.shape)} dimensions")
        if each is not None and (min(tensor.shape, default=1) < 0 or math.prod(tensor.shape) * each != end - begin):
            raise ValueError(f"{name} has {end - begin} bytes, which its shape {tensor.shape} does not take")
        place = end


PIECE = 16 << 20  # bytes that one thread hashes at a time
HASHING = 8  # threads at most


def digest(folder: Path) -> str:
    """SHA-256 of the SHA-256 of each PIECE of the safetensors files in `folder`, in the order of their names, hex.

    Threads share the work. Raises OSError.
    """

    def hashed(place: tuple[Path, int]) -> bytes:
        with disk.opened(place[0]) as file:
            file.seek(place[1])
            return hashlib.sha256(file.read(PIECE)).digest()

    files = sorted(folder.glob("*.safetensors"))
    pieces = [(path, start) for path in files for start in range(0, path.stat().st_size, PIECE)]
    with ThreadPoolExecutor(min(HASHING, os.cpu_count() or 1)) as threads:
        return hashlib.sha256(b"".join(threads.map(hashed, pieces))).hexdigest()
