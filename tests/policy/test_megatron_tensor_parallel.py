"""Two processes that share every weight train as one does; a weight that does not say so does not train."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from megatron.core.models.gpt import GPTModel
from safetensors.torch import load_file

from policy.architecture import read_architecture
from policy.errors import LearnerError
from policy.megatron import partition, shim
from policy.megatron.config import transformer_config
from policy.megatron.model import PolicyModel, ensure_parallel
from policy.megatron.optimizer import Updater
from policy.megatron.spec import layer_spec
from policy.megatron.trainer import OptimConfig
from tests.policy import tensor_parallel_child, tiny_models

ROOT = Path(__file__).resolve().parents[2]
NOTES = ("tensor_model_parallel", "partition_dim", "partition_stride")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("models")
    return [tiny_models.write(base / style, style, tied=style == "qwen2") for style in ("qwen2", "qwen3")]


@pytest.fixture(scope="module")
def shared(models: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], Path]:
    """What each of the two ranks said, and the folder of rank 0's weights."""
    out = tmp_path_factory.mktemp("weights")
    words = [str(out / "meeting"), str(out), *map(str, models)]
    ranks = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.policy.tensor_parallel_child", str(rank), *words],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for rank in range(2)
    ]
    told = []
    try:
        for rank in ranks:
            said, complaint = rank.communicate(timeout=100)
            assert rank.returncode == 0, complaint[-3000:]
            told.append(json.loads(said))
    finally:
        for rank in ranks:
            rank.kill()
    return told, out


@pytest.mark.parametrize("number", [0, 1], ids=["qwen2", "qwen3"])
def test_two_ranks_train_as_one(shared: tuple[list[dict[str, Any]], Path], models: list[Path], number: int) -> None:
    (first, second), out = shared
    folder = models[number]
    alone, weights = tensor_parallel_child.train(folder)
    together = load_file(out / f"{folder.name}.safetensors")
    for ours, theirs, other in zip(alone, first[folder.name], second[folder.name], strict=True):
        assert ours["grad_norm"] > 4 * tensor_parallel_child.CLIP, "a wrong norm would not show in the step"
        for key in ("loss", "grad_norm", "entropy"):
            assert theirs[key] == pytest.approx(ours[key], rel=2e-5, abs=1e-6), key
            assert other[key] == pytest.approx(theirs[key], rel=1e-6, abs=1e-7), key
    assert together.keys() == weights.keys()
    for name, tensor in weights.items():
        torch.testing.assert_close(together[name], tensor, rtol=1e-3, atol=3e-4, msg=lambda m, n=name: f"{n}: {m}")


def test_both_ranks_refuse_a_weight_that_does_not_say_how_it_is_split(
    shared: tuple[list[dict[str, Any]], Path],
) -> None:
    for said in shared[0]:
        assert said["refusal"].startswith("decoder.layers.1.mlp.linear_fc2.weight can't be trained: (tensor_model_")


@pytest.mark.parametrize("style", ["qwen2", "qwen3"])
def test_the_notes_are_those_of_megatron_s_own_initialisation(tmp_path: Path, style: str) -> None:
    shape = read_architecture(tiny_models.write(tmp_path / style, style, tied=False))
    ensure_parallel(1)
    ours = PolicyModel(shape, "float32")
    config = transformer_config(shape, torch.float32)
    config.perform_initialization = True
    config.init_method = config.output_layer_init_method = torch.nn.init.zeros_
    with shim.cuda_literals():
        theirs = GPTModel(
            config, layer_spec(config), vocab_size=shape.vocab, max_sequence_length=shape.context, parallel_output=True,
            position_embedding_type="rope", share_embeddings_and_output_weights=False,
        )  # fmt: skip
    expected = {name: [getattr(one, note, None) for note in NOTES] for name, one in theirs.named_parameters()}
    assert {name: [getattr(one, note, None) for note in NOTES] for name, one in ours.named_parameters()} == expected
    assert sum(notes[0] is True for notes in expected.values()) > 8


@pytest.mark.parametrize(
    ("name", "note", "value"),
    [
        ("embedding.word_embeddings.weight", "tensor_model_parallel", None),
        ("decoder.layers.0.self_attention.linear_proj.weight", "partition_dim", 0),
        ("decoder.layers.1.mlp.linear_fc1.weight", "partition_stride", 1),
        ("decoder.layers.0.input_layernorm.weight", "tensor_model_parallel", True),
    ],
)
def test_a_note_that_is_missing_or_wrong_is_refused_by_name(
    models: list[Path], name: str, note: str, value: object
) -> None:
    ensure_parallel(1)
    model = PolicyModel(read_architecture(models[0]), "float32")
    partition.check(model)
    parameter = model.get_parameter(name)
    if value is None:
        delattr(parameter, note)
    else:
        setattr(parameter, note, value)
    with pytest.raises(LearnerError, match=rf"^{name} can't be trained: [^\n]*$"):
        Updater(model, OptimConfig())
