"""Unpickling of checkpoints that can make plain data alone.

Invariant: what a checkpoint's files name beyond the classes of its own format is refused before it is called. This is
the second guard: `policy.checkpoints.verify` has found the files to be those that were saved.
"""

from __future__ import annotations

import importlib
import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import IO, Any

from torch.distributed.checkpoint import filesystem
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import _MEM_FORMAT_ENCODING

from runtime.errors import ConfigError

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


def load(file: IO[bytes]) -> Any:
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
            return load(file)
        except pickle.UnpicklingError as error:
            refused.append(error)
            raise

    filesystem.pickle = SimpleNamespace(load=read, dump=module.dump)  # type: ignore[assignment]
    os.environ[_FORCE] = "1"
    try:
        yield
    except (pickle.UnpicklingError, CheckpointException) as error:
        causes = [one[0] for one in error.failures.values()] if isinstance(error, CheckpointException) else [error]
        refused += [one for one in causes if isinstance(one, pickle.UnpicklingError)]
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
