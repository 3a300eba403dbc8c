"""A checkpoint that is not what was saved: the file is named, and nothing but plain data is ever unpickled."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from policy import checkpoints, hf_folder
from policy.megatron import checkpoint
from policy.megatron.trainer import OptimConfig, Trainer
from runtime.errors import ConfigError
from tests.messages import Messages
from tests.policy import tiny_models


class Calls:
    """Pickled, it is a call."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> Any:
        return self.call


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with a reference, with its digest beside it."""
    folder = tmp_path_factory.mktemp("saved")
    trainer = Trainer(tiny_models.write(folder / "base", "qwen2", tied=True), OptimConfig())
    trainer.new_reference()
    (folder / "digest").write_text(trainer.save(folder / "0.1", "0.1"))
    return folder


@pytest.fixture
def copy(saved: Path, tmp_path: Path) -> tuple[Path, str]:
    """A checkpoint of the test's own, and its digest."""
    for path in (saved / "0.1").rglob("*"):
        if path.is_file():
            target = tmp_path / "0.1" / path.relative_to(saved / "0.1")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    return tmp_path / "0.1", (saved / "digest").read_text()


@pytest.mark.parametrize("path", ["shards/.metadata", "shards/__0_0.distcp", "model/config.json", "complete.json"])
def test_the_file_that_differs_is_named(copy: tuple[Path, str], path: str, message: Messages) -> None:
    folder, digest = copy
    checkpoints.verify(folder, digest)
    with (folder / path).open("ab") as file:
        file.write(b" ")
    with message.raised(ConfigError):
        checkpoints.verify(folder, digest)


def test_so_is_a_file_that_is_missing_or_new(copy: tuple[Path, str]) -> None:
    folder, digest = copy
    (folder / "shards" / "__9_9.distcp").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"shards/__9_9\.distcp is new"):
        checkpoints.verify(folder, digest)
    (folder / "shards" / "__9_9.distcp").unlink()
    (folder / "shards" / "metadata.json").unlink()
    with pytest.raises(ConfigError, match=r"shards/metadata\.json is missing"):
        checkpoints.verify(folder, digest)


@pytest.mark.parametrize("file", [".metadata", "common.pt"])
def test_what_would_call_a_program_is_refused_even_where_no_digest_is_asked(
    copy: tuple[Path, str], tmp_path: Path, file: str
) -> None:
    shards, call = copy[0] / "shards", Calls(os.system, f"touch {tmp_path}/called")
    if file == ".metadata":
        (shards / file).write_bytes(pickle.dumps(call))
    else:
        torch.save({"more": call}, shards / file)
    with pytest.raises(ConfigError, match=r"0\.1: .*posix\.system" if file == ".metadata" else r"0\.1: "):
        Trainer.resume(copy[0], OptimConfig())
    assert not (tmp_path / "called").exists()


def test_no_reader_within_may_ask_for_less(tmp_path: Path) -> None:
    """The planner reads objects that are no tensors with `weights_only=False`."""
    data = io.BytesIO()
    torch.save(Calls(os.system, f"touch {tmp_path}/called"), data)
    data.seek(0)
    with pytest.raises(ConfigError, match=r"^x: "), checkpoint.plain_data_only("x"):
        torch.load(data, weights_only=False)
    assert not (tmp_path / "called").exists()
    assert checkpoint._FORCE not in os.environ


@pytest.mark.parametrize(
    "call", [Calls(getattr, int, "mro"), Calls(getattr, [], "append"), Calls(eval, "1"), Calls(io.open, "/dev/null")]
)
def test_what_is_no_part_of_the_format_is_refused(call: Calls) -> None:
    with pytest.raises(pickle.UnpicklingError):
        checkpoint.unpickled(io.BytesIO(pickle.dumps(call)))


@pytest.mark.parametrize("dtype", hf_folder.DTYPE_NAMES)
def test_what_is_part_of_it_is_taken(dtype: torch.dtype) -> None:
    from torch.distributed.checkpoint.metadata import TensorProperties

    known = TensorProperties(dtype=dtype)
    assert checkpoint.unpickled(io.BytesIO(pickle.dumps(known))) == known


def test_programs_and_pickles_of_a_model_folder_are_not_taken_along(tmp_path: Path) -> None:
    base = tiny_models.write(tmp_path / "base", "qwen2", tied=True)
    kept = {"config.json", "tokenizer.json", "merges.txt", "tokenizer.model", "chat_template.jinja", "LICENSE"}
    left = {
        "modeling_x.py", "optimizer.pt", "args.pkl", "training_args.bin", "x.so", "run.sh", "x.json.pt", "old.pth",
        ".hidden.json", "arrays.npy", "x.safetensors.index.json",
    }  # fmt: skip
    for name in kept | left:
        if not (base / name).exists():
            (base / name).write_text("{}")
    assert set(hf_folder.companions(base)) == kept
    Trainer(base, OptimConfig()).export(tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == kept | {hf_folder.WEIGHTS}
