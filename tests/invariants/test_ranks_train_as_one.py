"""Ranks that share a model or its batches train as one process does; a weight that does not say so does not train."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from megatron.core.models.gpt import GPTModel
from safetensors.torch import load_file

from policy import hf_folder
from policy.architecture import read_architecture
from policy.errors import LearnerError
from policy.megatron import cuda_literals
from policy.megatron.layers import layer_spec
from policy.megatron.model import PolicyModel, check_shards, transformer_config
from policy.megatron.optimizer import Updater
from policy.megatron.ranks import ensure_parallel
from policy.megatron.trainer import OptimConfig
from policy.packing import deal
from tests.policy import rank_processes, tiny_models

ROOT = Path(__file__).resolve().parents[2]
STYLES = ("glm4", "qwen3")
pytestmark = [pytest.mark.timeout(420), pytest.mark.engine]  # one fixture runs the ranks of all layouts
NOTES = ("tensor_model_parallel", "partition_dim", "partition_stride")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    base = tmp_path_factory.mktemp("models")
    odd = {"vocab_size": rank_processes.VOCAB}
    return [tiny_models.write(base / style, style, tied=style == "glm4", **odd) for style in STYLES]


@pytest.fixture(scope="module")
def ran(models: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the ranks of all layouts have left their figures and weights."""
    out = tmp_path_factory.mktemp("ranks")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.policy.rank_processes", str(out), *map(str, models)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return out


def said(ran: Path, layout: str, rank: int = 0) -> Any:
    return json.loads((ran / f"{layout}.{rank}.json").read_text())


def assert_same_weights(found: Path, expected: Path) -> None:
    ours, theirs = load_file(expected), load_file(found)
    assert theirs.keys() == ours.keys()
    for name, tensor in ours.items():
        torch.testing.assert_close(theirs[name], tensor, rtol=0, atol=5e-5, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize(
    ("layout", "model"),
    [
        *((name, STYLES[0]) for name in rank_processes.LAYOUTS if name != "one"),
        *((name, STYLES[1]) for name in rank_processes.EVERY_MODEL if name != "one"),
        *((name, "adapters") for name in rank_processes.OF_ADAPTERS),
    ],
)
def test_ranks_train_as_one_process_does(ran: Path, layout: str, model: str) -> None:
    alone = said(ran, "one")[model]
    for rank in range(rank_processes.LAYOUTS[layout].ranks):
        together = said(ran, layout, rank)[model]
        for ours, theirs in zip(alone, together, strict=True):
            assert ours.keys() == theirs.keys()
            for key, value in ours.items():
                if not key.endswith("_s"):
                    assert theirs[key] == pytest.approx(value, abs=1e-5, rel=1e-5), (rank, key)
        assert together[rank_processes.STEPS + 1]["padding"] == 0.0
    assert min(step["grad_norm"] for step in alone[: rank_processes.STEPS]) > 4 * rank_processes.CLIP
    assert_same_weights(ran / f"{layout}-{model}.safetensors", ran / f"one-{model}.safetensors")
    exported = ran / f"{layout}-{model}.export"
    assert_same_weights(exported / "model.safetensors", ran / f"{layout}-{model}.safetensors")
    if model == "adapters":
        found = [ran / f"{name}-{model}.export" / "adapter" / "adapter_model.safetensors" for name in (layout, "one")]
        assert_same_weights(*found)
    assert hf_folder.companions(exported).keys() == hf_folder.companions(ran / f"one-{model}.export").keys()


def test_data_ranks_have_unequal_tokens_and_sometimes_none() -> None:
    for number in range(rank_processes.STEPS):
        first, second = (sum(one.tokens for one in mine) for mine in deal(rank_processes.batches(number), 2))
        assert first != second
    assert deal(rank_processes.batches(0)[:1], 2)[1] == []


@pytest.mark.parametrize("model", STYLES)
def test_a_checkpoint_goes_on_at_any_layout(ran: Path, model: str) -> None:
    alone = said(ran, "one")[model]
    for number in range(len(rank_processes.CHAIN)):
        ours, theirs = alone[number], said(ran, f"chain-{number}")[model][0]
        for key in ("loss", "grad_norm", "entropy", "tokens"):
            assert theirs[key] == pytest.approx(ours[key], abs=1e-5, rel=1e-5), (rank_processes.CHAIN[number], key)
    assert said(ran, "chain-1", rank=1)[model][0]["padding"] == 0.0
    assert_same_weights(ran / f"chain-{model}" / "3.safetensors", ran / f"one-{model}.safetensors")


def test_a_rank_s_failure_is_told_to_all(ran: Path) -> None:
    first, second = (said(ran, "tensor2", rank)["told"] for rank in range(2))
    assert first == ["01", "DiskRefuses: rank 1: m1 is full", "LearnerError: rank 1: 'k'"]
    assert second == ["01", "DiskRefuses: m1 is full", "KeyError: 'k'"]


def test_a_full_disk_of_one_machine_is_told_to_the_ranks_of_the_others(ran: Path) -> None:
    first, second = (said(ran, "chain-1", rank)["glm4"][0]["refused"] for rank in range(2))
    assert re.fullmatch(r"DiskRefuses: rank 1: can't write .*1-full: No space left on device", first)
    assert second == first.replace("rank 1: ", "")


def test_every_rank_refuses_a_weight_that_does_not_say_how_it_is_split(ran: Path) -> None:
    for rank in range(2):
        refusal = said(ran, "tensor2", rank)["refusal"]
        assert refusal.startswith("decoder.layers.1.mlp.linear_fc2.weight can't be trained: (tensor_model_")


@pytest.mark.parametrize("style", STYLES)
def test_the_notes_are_those_of_megatron_s_own_initialisation(tmp_path: Path, style: str) -> None:
    shape = read_architecture(tiny_models.write(tmp_path / style, style, tied=False))
    ensure_parallel(1)
    ours = PolicyModel(shape, "float32")
    config = transformer_config(shape, torch.float32)
    config.perform_initialization = True
    config.init_method = config.output_layer_init_method = torch.nn.init.zeros_
    with cuda_literals():
        theirs = GPTModel(
            config, layer_spec(config, post_norms=shape.traits.post_norms), vocab_size=shape.vocab,
            max_sequence_length=shape.context, parallel_output=True, position_embedding_type="rope",
            share_embeddings_and_output_weights=False,
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
    check_shards(model)
    parameter = model.get_parameter(name)
    if value is None:
        delattr(parameter, note)
    else:
        setattr(parameter, note, value)
    with pytest.raises(LearnerError, match=rf"^{name} can't be trained: [^\n]*$"):
        Updater(model, OptimConfig())
