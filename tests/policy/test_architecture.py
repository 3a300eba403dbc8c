"""One reader of config.json: what it takes, and what it refuses by key."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from actors.cluster.config import models
from policy import hf_folder
from policy.architecture import read_architecture
from policy.engine.model import load_weights
from policy.errors import EngineError
from runtime.errors import ConfigError
from tests.policy import tiny_models

REFUSED = [
    ("model_type", {"model_type": "gemma2"}),
    ("model_type", {"model_type": 3}),
    ("rope_parameters", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}),
    ("rope_scaling", {"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 2.0}}),
    ("rope_scaling", {"rope_scaling": {"type": "linear", "factor": 2.0}}),  # beside plain rope_parameters
    ("rope_scaling", {"rope_parameters": None, "rope_scaling": {"factor": 4.0}}),
    ("rope_parameters", {"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 4.0}}}),
    ("rope_parameters", {"rope_parameters": "yarn"}),
    ("partial_rotary_factor", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}),
    ("partial_rotary_factor", {"partial_rotary_factor": 0.5}),
    ("rope_theta", {"rope_parameters": {"rope_theta": "10000"}}),
    ("attention_bias", {"attention_bias": False}),
    ("attention_bias", {"model_type": "llama", "attention_bias": True}),
    (
        "sliding_window",
        {"model_type": "mistral", "max_position_embeddings": 8192},
    ),  # its default is narrower than what it reads
    ("sliding_window", {"model_type": "mistral", "sliding_window": 256}),
    ("low_freq_factor", {"rope_parameters": {"rope_type": "llama3", "factor": 8.0, "rope_theta": 10.0}}),
    ("rope_parameters", {"rope_parameters": {**tiny_models.LLAMA3, "attention_factor": 2.0}}),
    ("rope_scaling", {"rope_scaling": tiny_models.LLAMA3}),  # and rope_parameters say that nothing is scaled
    ("mlp_bias", {"mlp_bias": True}),
    ("use_sliding_window", {"use_sliding_window": True}),
    ("layer_types", {"layer_types": ["full_attention", "sliding_attention"]}),
    ("layer_types", {"layer_types": 5}),
    ("tie_word_embeddings", {"tie_word_embeddings": "no"}),
    ("hidden_act", {"hidden_act": "gelu"}),
    ("architectures", {"architectures": ["Qwen2ForSequenceClassification"]}),
    ("num_key_value_heads", {"num_key_value_heads": 3}),
    ("head_dim", {"num_attention_heads": 3, "num_key_value_heads": 1}),
    ("head_dim", {"head_dim": 7}),
    ("num_hidden_layers", {"num_hidden_layers": 0}),
    ("vocab_size", {"vocab_size": "96"}),
    ("hidden_size", {"hidden_size": None}),
    ("eos_token_id", {"eos_token_id": ["<end>"]}),
]


def changed(folder: Path, change: dict[str, object]) -> Path:
    tiny_models.write(folder)
    raw = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(raw | change))
    return folder


@pytest.mark.parametrize(("key", "change"), REFUSED)
def test_what_is_not_covered_is_refused_by_its_key_everywhere(
    tmp_path: Path, key: str, change: dict[str, object]
) -> None:
    folder = changed(tmp_path / "model", change)
    with pytest.raises(ConfigError, match=key) as refused:
        read_architecture(folder)
    assert str(refused.value).startswith(str(folder / "config.json"))
    assert "\n" not in str(refused.value)
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=key):
        models.locate(str(folder))
    with pytest.raises(EngineError, match=key):
        load_weights(folder, torch.device("cpu"))


def test_what_is_left_out_has_the_formats_default(tmp_path: Path) -> None:
    folder = changed(tmp_path / "model", {"num_key_value_heads": None, "head_dim": None, "rope_parameters": None})
    found = read_architecture(folder)
    assert (found.kv_heads, found.head_dim, found.rope_base) == (4, 8, 10_000.0)
    plain = {"rope_type": "default", "rope_theta": 5.0, "factor": 1.0, "partial_rotary_factor": None}
    assert read_architecture(changed(tmp_path / "plain", {"rope_parameters": plain})).rope_base == 5.0
    (folder / "generation_config.json").write_text('{"eos_token_id": [7, 5]}')
    assert read_architecture(folder).eos_ids == (5, 7)


def test_weights_in_several_files_are_the_models(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(models.bundled(), folder)
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    for number, part in enumerate((names[:7], names[7:]), 1):
        file = f"model-{number:05}-of-00002.safetensors"
        save_file({name: tensors[name] for name in part}, folder / file)
    assert models.locate(str(folder)) == folder
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in hf_folder.read(folder).items())
    (folder / file).unlink()
    with pytest.raises(ConfigError, match="lacks the tensor"):
        models.locate(str(folder))


def test_a_tokenizer_larger_than_the_vocabulary_is_refused(tmp_path: Path) -> None:
    folder = changed(tmp_path / "model", {})
    (folder / "tokenizer.json").write_bytes((models.bundled() / "tokenizer.json").read_bytes())
    with pytest.raises(ConfigError, match=r"tokenizer.json has ids up to \d+, and config.json says vocab_size 96"):
        models.locate(str(folder))


def test_a_configuration_that_is_not_there_or_nested_without_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        read_architecture(tmp_path)
    (tmp_path / "config.json").write_text('{"a": ' * 2000)
    with pytest.raises(ConfigError, match="cannot read"):
        read_architecture(tmp_path)
