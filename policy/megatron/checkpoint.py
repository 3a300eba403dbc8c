"""Checkpoints in Megatron's distributed format: weights, Adam's state, reference policy.

Invariant: a folder with the marker file is complete and flushed to disk; a folder without it is never loaded.
A resume continues with the same losses, whatever the layout of the ranks was and is. Adam's state is stored by
parameter, as in Megatron's `fully_reshardable` format, with and without its distributed optimizer. What the disk of one
rank refuses is refused by all.

What a checkpoint's files name beyond the classes of its own format is refused before it is called. This is the second
guard: `policy.checkpoints.verify` has passed the files as those that were saved.
"""

from __future__ import annotations

import importlib
import os
import pickle
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import msgspec
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing.core import CheckpointingException
from megatron.core.dist_checkpointing.optimizer import make_sharded_optimizer_tensor
from megatron.core.dist_checkpointing.strategies import torch as strategies
from torch import Tensor
from torch.distributed.checkpoint import filesystem
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING
from torch.nn import Parameter

from policy import hf_folder
from policy.checkpoints import MARKER, CheckpointInfo, digest, digests
from policy.errors import LearnerError
from policy.megatron import cuda_literals, lora
from policy.megatron.optimizer import Updater
from policy.megatron.ranks import on_all, on_first
from runtime.disk import flush, refusal, store_error
from runtime.errors import ConfigError, DiskRefuses, StoreError

_METADATA = "torch.distributed.checkpoint.metadata"
# What torch's writer puts into `.metadata`; data types are those of `policy.hf_folder`.
_KNOWN = {
    *((_METADATA, name) for name in ("BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex")),
    *((_METADATA, name) for name in ("StorageMeta", "TensorProperties", "TensorStorageMetadata")),
    (_METADATA, "_MEM_FORMAT_ENCODING"),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
    ("pathlib", "PosixPath"),
    ("pathlib._local", "PosixPath"),
    *(("torch", name) for name in ("Size", "bfloat16", "float16", "float32", "float64", "int64", "uint8")),
}
_FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # torch's own: no caller may ask for less


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "getattr"):  # by which Python pickles an enum's member
            return _member
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"it names {module}.{name}")
        return getattr(importlib.import_module(module), name)


def _member(kind: Any, name: str) -> Any:
    if kind is not _MEM_FORMAT_ENCODING:
        raise pickle.UnpicklingError(f"it asks for {name!r} of {kind!r}")
    return _MEM_FORMAT_ENCODING[name]


def unpickled(file: IO[bytes]) -> Any:
    """What `pickle.load` gives for a checkpoint's own data. Raises pickle.UnpicklingError for anything else."""
    return _Unpickler(file).load()


@contextmanager
def plain_data_only(what: str) -> Iterator[None]:
    """As long as this holds torch's checkpoints unpickle plain data alone; for a process of one thread that loads.

    Raises ConfigError, which calls the checkpoint `what`, where there is more.
    """
    module, forced = filesystem.pickle, os.environ.get(_FORCE)
    refused: list[pickle.UnpicklingError] = []  # torch goes on without metadata that it could not read

    def read(file: IO[bytes]) -> Any:
        try:
            return unpickled(file)
        except pickle.UnpicklingError as error:
            refused.append(error)
            raise

    filesystem.pickle = SimpleNamespace(load=read, dump=module.dump)  # type: ignore[assignment]
    os.environ[_FORCE] = "1"
    try:
        yield
    except (pickle.UnpicklingError, CheckpointException) as error:
        causes = [cause for cause, _ in error.failures.values()] if isinstance(error, CheckpointException) else [error]
        refused += [cause for cause in causes if isinstance(cause, pickle.UnpicklingError)]
        if refused:
            cause = str(refused[0]).partition("\n")[0]
            raise ConfigError(f"{what}: more than plain data is pickled in it: {cause}") from error
        raise
    finally:
        filesystem.pickle = module
        if forced is None:
            del os.environ[_FORCE]
        else:
            os.environ[_FORCE] = forced


SHARDS = "shards"
REFERENCE = "reference"
STEPS = "common_step"
MODEL = "model"  # subfolder: config and tokenizer, without weights


class InlineSave(strategies.TorchDistSaveShardedStrategy):
    """The same files, written by this process.

    Megatron's own writer starts a manager process and a fork per file, which takes seconds however small the model is.
    A local run saves every few steps.
    """

    def save(self, sharded_state_dict: dict[str, Any], checkpoint_dir: Path) -> None:
        """Translate as Megatron does and let torch write one file per rank."""
        translated, _, _ = strategies._replace_state_dict_keys_with_sharded_keys(
            sharded_state_dict, self.keep_only_main_replica
        )
        dcp.save(
            strategies.mcore_to_pyt_state_dict(translated, False),
            storage_writer=dcp.FileSystemWriter(checkpoint_dir, thread_count=1),
            planner=strategies.MCoreSavePlanner(
                dedup_replicated_tensors=not self.keep_only_main_replica, flatten_state_dict=False
            ),
            no_dist=dist.get_world_size() == 1,
        )


def save(
    folder: Path,
    info: CheckpointInfo,
    files: hf_folder.Companions,
    updater: Updater,
    reference: dict[str, Tensor],
) -> str:
    """Write a checkpoint to `folder`, replacing what is there; every rank calls this.

    `files` are the model's config and tokenizer. Returns the digest of all files. Raises DiskRefuses
    where the disk is full before or while shards are written.
    """
    partial = folder.with_name(f".{folder.name}.partial")

    def begin() -> bytes:
        shutil.rmtree(partial, ignore_errors=True)
        try:
            (partial / SHARDS).mkdir(parents=True)
        except OSError as error:
            raise store_error(f"can't write {folder}", error) from error
        return look()

    def look() -> bytes:  # before all ranks wait for what one of them alone writes
        if cause := refusal(partial):
            raise DiskRefuses(f"can't write {folder}: {cause}")
        return b""

    def companions() -> bytes:
        hf_folder.write_companions(files, partial / MODEL)
        return b""

    def finish() -> bytes:
        marked = msgspec.structs.replace(info, files=digests(partial))
        (partial / MARKER).write_bytes(msgspec.json.encode(marked))
        saved_digest = digest(partial)
        for file in [*partial.rglob("*"), partial]:
            flush(file)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
        flush(folder.parent)
        return saved_digest.encode()

    on_first(begin)
    on_first(companions)
    try:
        with cuda_literals(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dist_checkpointing.save(
                _state(updater, updater.state_of, reference),
                str(partial / SHARDS),
                sharded_strategy=InlineSave("torch_dist", 1, thread_count=1),
            )
    except CheckpointException as error:  # on all ranks alike; it is no Exception, so no handler would answer it
        for cause, _ in error.failures.values():
            if isinstance(cause, OSError) and isinstance(
                refused := store_error(f"can't write {folder}", cause), DiskRefuses
            ):
                raise refused from error
        on_all(look)  # torch's writer may have its own words for a full disk
        raise LearnerError(f"can't write {folder}: {_causes(error)}") from error
    return on_first(finish).decode()


def load(folder: Path, updater: Updater, reference: dict[str, Tensor]) -> None:
    """Fill model, optimizer and the weights of a reference, none where there is none, from `folder`, in place.

    Raises ConfigError where its files pickle more than plain data, StoreError where they can't be read.
    """
    try:
        with plain_data_only(str(folder)), cuda_literals(), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state = dist_checkpointing.load(_state(updater, updater.blank, reference), folder / SHARDS)
    except CheckpointException as error:
        raise StoreError(f"can't read {folder}: {_causes(error)}") from error
    except CheckpointingException as error:
        raise StoreError(f"can't read {folder}, of a newer Megatron-core perhaps: {error}") from error
    updater.model.load_state_dict(state["model"])
    adam = state["optimizer"]["state"]
    steps = float(adam.pop(STEPS))
    for name, parameter in updater.trained():
        updater.restore(parameter, adam.pop(name), steps)
    for name, weight in reference.items():
        weight.copy_(state[REFERENCE][name])


def _causes(failed: CheckpointException) -> str:
    return "; ".join(f"rank {rank}: {cause!r}" for rank, (cause, _) in sorted(failed.failures.items()))


def _state(
    updater: Updater, of: Callable[[Parameter], dict[str, Tensor]], reference: dict[str, Tensor]
) -> dict[str, Any]:
    """What is saved, and where it is loaded into: weights, and what `of` gives of Adam's state."""
    model = updater.model.sharded_state_dict()
    adam: dict[str, Any] = {STEPS: torch.tensor(updater.steps)}
    for name, parameter in updater.trained():
        adam[name] = {
            kind: make_sharded_optimizer_tensor(model[name], tensor, f"optimizer.state.{kind}")
            for kind, tensor in of(parameter).items()
        }
    shards = {name: make_sharded_optimizer_tensor(model[name], tensor, REFERENCE) for name, tensor in reference.items()}
    for shard in shards.values():
        if lora.MARK in shard.key:  # the name that adapters of a reference have had from the first
            shard.key = shard.key.removeprefix("reference.").replace(lora.MARK, f"{lora.MARK}reference_")
    return {"model": model, "optimizer": {"state": adam}, REFERENCE: shards}
