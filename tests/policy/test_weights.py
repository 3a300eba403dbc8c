"""Hugging Face weights to Megatron's layout and back."""

import hashlib
from pathlib import Path

import pytest
import torch

from policy import hf_folder, tensorfiles
from policy.architecture import read_architecture
from policy.hf_folder import from_hf, to_hf
from policy.megatron.trainer import OptimConfig, Trainer
from policy.tensorfiles import inside, outside
from tests.policy import tiny_models

STYLES = [
    ("qwen2", True), ("qwen3", False), ("llama3", False), ("glm4", False),
]  # fmt: skip


@pytest.mark.parametrize(("style", "tied"), STYLES)
def test_export_gives_back_every_bit(tmp_path: Path, style: str, *, tied: bool) -> None:
    source = tiny_models.write(tmp_path / "model", style, tied=tied)
    digest = Trainer(source, OptimConfig()).export(tmp_path / "out")
    before, after = hf_folder.read(source), hf_folder.read(tmp_path / "out")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert digest == tensorfiles.digest(tmp_path / "out")
    assert (tmp_path / "out" / "tokenizer.json").read_text() == "{}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "out"]


@pytest.mark.parametrize(("size", "vocab"), [(1, 97), (2, 96), (2, 97)])
@pytest.mark.parametrize("style", ["qwen2", "qwen3", "llama", "glm4"])
def test_the_mapping_inverts_at_any_tensor_parallel_size(tmp_path: Path, style: str, size: int, vocab: int) -> None:
    shape = read_architecture(tiny_models.write(tmp_path / "model", style, tied=False, vocab_size=vocab))
    hf = hf_folder.read(tmp_path / "model")
    layers = (f"decoder.layers.{layer}.{suffix}" for layer in range(shape.layers) for suffix in inside(shape))
    names = [*outside(shape), *layers]
    shards = {n: [from_hf(n, hf, shape, tp_size=size, tp_rank=r) for r in range(size)] for n in names}
    gathered = {id(parts[0]): parts for parts in shards.values()}

    def gather(part: torch.Tensor) -> list[torch.Tensor]:
        return next(parts for parts in gathered.values() if parts[0].data_ptr() == part.data_ptr())

    back = to_hf([(n, parts[0]) for n, parts in shards.items()], shape, gather)
    assert back.keys() == hf.keys()
    assert all(torch.equal(back[name], hf[name]) for name in hf)


def test_threads_share_a_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorfiles, "PIECE", 4)
    (tmp_path / "a.safetensors").write_bytes(b"abcdefghij")
    pieces = b"".join(hashlib.sha256(piece).digest() for piece in (b"abcd", b"efgh", b"ij"))
    assert tensorfiles.digest(tmp_path) == hashlib.sha256(pieces).hexdigest()
    (tmp_path / "b.safetensors").write_bytes(b"kl")
    assert tensorfiles.digest(tmp_path) == hashlib.sha256(pieces + hashlib.sha256(b"kl").digest()).hexdigest()


def test_an_unknown_parameter_is_named(tmp_path: Path) -> None:
    shape = read_architecture(tiny_models.write(tmp_path / "model"))
    with pytest.raises(KeyError, match="router"):
        to_hf([("decoder.layers.0.mlp.router.weight", torch.zeros(1))], shape)
