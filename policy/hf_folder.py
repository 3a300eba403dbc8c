"""Model folders in Hugging Face's layout, and their weights in Megatron's layout and back, bit for bit.

A folder appears under its name complete or not at all, and names its weights by digest.

Megatron's layout: `linear_qkv` rows are, per group of queries, [its query heads | key | value]. `linear_fc1` is [gate;
up]. Under tensor parallelism each rank holds [its part of gate; its part of up]. Rows of zeros fill a vocabulary up
to a multiple of the ranks. `to_hf(from_hf(x)) == x` exactly, at any tensor-parallel size.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from safetensors import SafetensorError, safe_open
from safetensors.torch import load, load_file, save
from torch import Tensor

from policy import tensorfiles
from policy.architecture import Architecture
from policy.settings import ADAPTER, ADAPTER_CONFIG, ADAPTER_WEIGHTS
from policy.tensorfiles import SEEING, held, plain_name
from runtime import disk
from runtime.disk import flush
from runtime.errors import ConfigError

WEIGHTS = "model.safetensors"
TOWER = "visual.safetensors"  # by which companions have a tower's tensors
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}  # that a model is run and trained in
DTYPE_NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}


def read(folder: Path) -> dict[str, Tensor]:
    """All tensors of `folder`, sharded files included, finite and as `tensorfiles` wants them. Raises ConfigError."""
    if wrong := tensorfiles.problem(folder):
        raise ConfigError(f"{folder}: {wrong}")
    tensors = loaded(folder)
    for name, tensor in tensors.items():
        if not bool(torch.isfinite(tensor).all()):
            raise ConfigError(f"{folder}: {name} holds numbers that are not finite")
    return tensors


def loaded(folder: Path) -> dict[str, Tensor]:
    """All tensors of the safetensors files in `folder`, whatever they are, by `plain_name`. Raises ConfigError."""
    tensors: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with disk.opened(file):  # a library would wait for a FIFO
                tensors.update({plain_name(name): tensor for name, tensor in load_file(file).items()})
        except (OSError, SafetensorError) as error:
            raise ConfigError(f"cannot read {file}: {error}") from error
    return tensors


Companions = dict[str, bytes]  # config and tokenizer files by name, and the tower: what goes along with the weights


def companions(folder: Path) -> Companions:
    """The files next to the weights of `folder` that no program runs.

    They are kept in memory, because the folder may be removed while its model trains. So is the tower of a model that
    sees, as it is stored: it is not trained.
    """
    files = sorted(path for path in folder.iterdir() if path.is_file() and tensorfiles.taken_along(path.name))
    along = {path.name: disk.read_bytes(path, disk.MODEL) for path in files}
    tower: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with disk.opened(file), safe_open(file, "pt") as tensors:
            tower |= {plain_name(x): tensors.get_tensor(x) for x in tensors.keys() if plain_name(x).startswith(SEEING)}  # noqa: SIM118
    return along | ({TOWER: save(tower)} if tower else {})


def tower_of(files: Companions) -> dict[str, Tensor]:
    """The tower's tensors among `files`; none of a model that reads text alone."""
    return load(files[TOWER]) if TOWER in files else {}


def write_companions(files: Companions, folder: Path) -> None:
    """Write `files` into `folder`, made if need be."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def write(
    folder: Path,
    tensors: dict[str, Tensor],
    files: Companions,
    adapter: tuple[object, dict[str, Tensor]] | None = None,
) -> str:
    """Write `tensors` with config and tokenizer `files` to `folder`, replacing what is there.

    The configuration and tensors of an `adapter` go to a folder of PEFT's form in it.

    Returns what `tensorfiles.digest` gives of it.
    """

    def fill(partial: Path) -> None:
        _write_model(partial, tensors, files)
        if adapter is not None:
            _write_peft(partial / ADAPTER, *adapter)

    return _appear(folder, fill)


def _write_model(folder: Path, tensors: dict[str, Tensor], files: Companions) -> None:
    write_companions({name: data for name, data in files.items() if name != TOWER}, folder)
    whole = tower_of(files) | {name: tensor.cpu() for name, tensor in tensors.items()}
    (folder / WEIGHTS).write_bytes(save(whole, metadata={"format": "pt"}))
    config = json.loads(files["config.json"])
    config.pop("torch_dtype", None)
    config["dtype"] = DTYPE_NAMES[next(iter(tensors.values())).dtype]
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def write_adapter(folder: Path, settings: object, matrices: dict[str, Tensor]) -> str:
    """Write an adapter alone in PEFT's form; returns its digest, as `write` does."""
    return _appear(folder, lambda partial: _write_peft(partial, settings, matrices))


def _write_peft(folder: Path, settings: object, matrices: dict[str, Tensor]) -> None:
    folder.mkdir(parents=True)
    (folder / ADAPTER_CONFIG).write_text(json.dumps(settings, indent=2) + "\n")
    tensors = {name: tensor.cpu() for name, tensor in matrices.items()}
    (folder / ADAPTER_WEIGHTS).write_bytes(save(tensors, metadata={"format": "pt"}))


def _appear(folder: Path, fill: Callable[[Path], None]) -> str:
    """The digest of what `fill` wrote, reckoned while the disk is waited for."""
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    fill(partial)
    with ThreadPoolExecutor(1) as thread:
        digest = thread.submit(tensorfiles.digest, partial)
        for path in (*partial.rglob("*"), partial):  # a power cut leaves no folder of this name that is not whole
            flush(path)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)
    flush(folder.parent)
    return digest.result()


def strips(name: str) -> int:
    """How many whole tensors a rank's shard of parameter `name` holds a strip of, end to end: gate and up are two."""
    return 2 if "linear_fc1" in name else 1


def from_hf(name: str, hf: dict[str, Tensor], shape: Architecture, *, tp_size: int = 1, tp_rank: int = 0) -> Tensor:
    """The value of parameter `name` on tensor-parallel rank `tp_rank`. Raises KeyError for a missing tensor."""
    names, split = held(name, shape)
    parts = [hf[x] for x in names]
    if "linear_qkv" in name:
        grouped = [part.reshape(shape.kv_heads, -1, *part.shape[1:]) for part in parts]
        parts = [torch.cat(grouped, 1).reshape(-1, *parts[0].shape[1:])]
    if split is None:
        return parts[0]
    if len(parts) < strips(name):  # a folder whose gate and up are one tensor
        parts = list(parts[0].chunk(strips(name)))
    if missing := -parts[0].size(split) % tp_size:  # of a vocabulary alone: `ParallelConfig.refuse` refuses the rest
        parts = [F.pad(parts[0], (0, 0, 0, missing))]
    return torch.cat([part.chunk(tp_size, split)[tp_rank] for part in parts])


def to_hf(
    parameters: Iterable[tuple[str, Tensor]],
    shape: Architecture,
    gather: Callable[[Tensor], list[Tensor]] = lambda x: [x],
) -> dict[str, Tensor]:
    """Full, contiguous HF tensors of Megatron's named parameters.

    `gather` returns a tensor's parts of all tensor-parallel ranks in order; every rank must call this.
    """
    out: dict[str, Tensor] = {}
    for name, value in parameters:
        names, split = held(name, shape)
        parts = [value.detach()] if split is None else gather(value.detach())
        if "linear_fc1" in name:
            halves = [part.chunk(2) for part in parts]
            tensors: list[Tensor] = [torch.cat([half[i] for half in halves]) for i in (0, 1)]
            if len(names) == 1:
                tensors = [torch.cat(tensors)]
        elif "linear_qkv" in name:
            whole = torch.cat(parts)
            rows = whole.reshape(shape.kv_heads, -1, *whole.shape[1:])
            widths = [shape.heads // shape.kv_heads * shape.head_dim, shape.head_dim, shape.head_dim]
            tensors = [x.reshape(-1, *whole.shape[1:]) for x in rows.split(widths, 1)]
        else:
            whole = parts[0] if split is None else torch.cat(parts, split)
            tensors = [whole[: next(iter(names.values()))[0]]]
        out.update(zip(names, (tensor.contiguous() for tensor in tensors), strict=True))
    return out
