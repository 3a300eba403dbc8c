"""Checkpoints in Megatron's distributed format: weights, Adam's state, reference policy.

Invariant: a folder with the marker file is complete and flushed to disk; a folder without it is never loaded.
A resume continues with the same losses, whatever the layout of the ranks was and is. Adam's state is stored by
parameter, as in Megatron's `fully_reshardable` format, with and without its distributed optimizer. What the disk of one
rank refuses is refused by all.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from megatron.core import dist_checkpointing
from megatron.core.dist_checkpointing.optimizer import make_sharded_optimizer_tensor
from megatron.core.dist_checkpointing.strategies import torch as strategies
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException
from torch.nn import Parameter

from policy import hf_folder
from policy.checkpoints import MARKER, CheckpointInfo, digest, digests, total
from policy.errors import LearnerError
from policy.megatron import lora, shim
from policy.megatron.optimizer import Updater
from policy.megatron.plaindata import plain_data_only
from policy.megatron.ranks import on_all, on_first
from runtime.disk import flush, refusal, store_error
from runtime.errors import DiskRefuses, StoreError

SHARDS = "shards"
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
    *,
    apart: bool = False,
) -> str:
    """Write a checkpoint to `folder`, replacing what is there; every rank calls this.

    `files` are the model's config and tokenizer. Returns the digest of all files. With `apart` each rank's `folder` is
    one of its own machine, and holds in the end what that rank has written: together they are the checkpoint. Raises
    DiskRefuses where a disk is full before or while shards are written, on all ranks where `apart`.
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

    def mark(written: dict[str, str]) -> None:
        marked = msgspec.structs.replace(info, files=written)
        (partial / MARKER).write_bytes(msgspec.json.encode(marked))

    def finish() -> bytes:
        mark(digests(partial))
        saved_digest = digest(partial)
        for file in [*partial.rglob("*"), partial]:
            flush(file)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
        flush(folder.parent)
        return saved_digest.encode()

    (on_all if apart else on_first)(begin)
    on_first(companions)
    try:
        with shim.cuda_literals(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            dist_checkpointing.save(
                _state(updater, updater.state_of, reference),
                str(partial / SHARDS),
                sharded_strategy=InlineSave("torch_dist", 1, thread_count=1),
            )
    except CheckpointException as error:  # on all ranks alike; it is no Exception, so no handler would answer it
        for cause, _ in error.failures.values():
            if isinstance(cause, OSError) and isinstance(
                found := store_error(f"can't write {folder}", cause), DiskRefuses
            ):
                raise found from error
        on_all(look)  # torch's writer may have its own words for a full disk
        raise LearnerError(f"can't write {folder}: {_causes(error)}") from error
    if not apart:
        return on_first(finish).decode()
    parts = on_all(lambda: msgspec.json.encode(digests(partial)))
    written = {name: one for part in parts for name, one in msgspec.json.decode(part, type=dict[str, str]).items()}

    def marker() -> bytes:
        mark(dict(sorted(written.items(), key=lambda item: PurePosixPath(item[0]))))
        return digests(partial)[MARKER].encode()

    written[MARKER] = on_first(marker).decode()
    partial.rename(folder)
    return total(written)


def load(folder: Path, updater: Updater, reference: dict[str, Tensor]) -> None:
    """Fill model, optimizer and the weights of a reference, none where there is none, from `folder`, in place.

    Raises ConfigError where its files pickle more than plain data, StoreError where they can't be read.
    """
    try:
        with plain_data_only(str(folder)), shim.cuda_literals(), torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state = dist_checkpointing.load(_state(updater, updater.blank, reference), str(folder / SHARDS))
    except CheckpointException as error:
        raise StoreError(f"can't read {folder}: {_causes(error)}") from error
    updater.model.load_state_dict(state["model"])
    adam = state["optimizer"]["state"]
    # Older checkpoints hold it where Megatron's own writer puts it, and a count of zero nowhere.
    older = state["optimizer"].get("optimizer", {}).get("state", {})
    steps = float(adam.pop(STEPS, older.get(STEPS, 0.0)))
    for name, parameter in updater.trained():
        updater.restore(parameter, adam.pop(name), steps)
    for name, weight in reference.items():
        weight.copy_(state["reference"][name])


def _causes(failed: CheckpointException) -> str:
    return "; ".join(f"rank {rank}: {cause!r}" for rank, (cause, _) in sorted(failed.failures.items()))


def _state(
    updater: Updater, of: Callable[[Parameter], dict[str, Tensor]], reference: dict[str, Tensor]
) -> dict[str, Any]:
    """What is saved, and where it is loaded into: beside weights what `of` gives of Adam's state."""
    model = updater.model.sharded_state_dict()
    adam: dict[str, Any] = {STEPS: torch.tensor(updater.steps)}
    for name, parameter in updater.trained():
        adam[name] = {
            kind: make_sharded_optimizer_tensor(model[name], tensor, f"optimizer.state.{kind}")
            for kind, tensor in of(parameter).items()
        }
    kept = {name: make_sharded_optimizer_tensor(model[name], tensor, "reference") for name, tensor in reference.items()}
    for shard in kept.values():
        if lora.MARK in shard.key:  # the name that adapters of a reference have had from the first
            shard.key = shard.key.removeprefix("reference.").replace(lora.MARK, f"{lora.MARK}reference_")
    return {"model": model, "optimizer": {"state": adam}, "reference": kept}
