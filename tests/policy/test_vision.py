"""Models that see: what their folders say, and that their tensors are all there."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from policy import hf_folder, memory, tensorfiles
from policy.architecture import read_architecture
from policy.pictures import patches, tokens_of
from policy.settings import OptimConfig, ParallelConfig
from policy.vision.eyes import Eyes, eyes_of
from runtime.errors import ConfigError
from tests.policy.vision_model import png_of, processor_of, style, tiny_vision_folder, transformers_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_vision_folder(tmp_path_factory.mktemp("seeing") / "model")


@pytest.fixture(scope="module", params=["qwen", "glm"])
def seeing(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_vision_folder(tmp_path_factory.mktemp("seeing") / "model", glm=request.param == "glm")


def changed(folder: Path, to: Path, change: dict[str, Any], part: str = "") -> Path:
    to.mkdir()
    config = json.loads((folder / "config.json").read_text())
    inner = config[part] if part else config
    for key, value in change.items():
        inner[key] = value
    (to / "config.json").write_text(json.dumps(config))
    return to


def test_older_folders_have_the_decoder_next_to_the_rest(folder: Path, tmp_path: Path) -> None:
    """As the published ones do."""
    config = json.loads((folder / "config.json").read_text())
    text = config.pop("text_config")
    rope = text.pop("rope_parameters")
    text |= {"rope_theta": rope["rope_theta"], "rope_scaling": {"type": "mrope", "mrope_section": [2, 1, 1]}}
    vision = {"in_chans": 3, "spatial_patch_size": 14} | config["vision_config"]
    (tmp_path / "config.json").write_text(json.dumps(text | config | {"vision_config": vision}))
    assert read_architecture(tmp_path) == read_architecture(folder)


@pytest.mark.parametrize(
    ("part", "change", "named"),
    [
        ("", {"model_type": "qwen3_vl"}, "deepstack"),
        ("", {"text_config": []}, "text_config"),
        ("", {"vision_config": None}, "vision_config"),
        ("", {"architectures": ["Qwen2ForCausalLM"]}, "Qwen2_5_vlForConditionalGeneration"),
        ("text_config", {"head_dim": 16}, "head_dim"),
        ("text_config", {"rope_parameters": {"rope_type": "default"}}, "mrope_section"),
        ("text_config", {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 2, 1]}}, "mrope_section"),
        ("text_config", {"rope_parameters": {"rope_type": "yarn", "mrope_section": [2, 1, 1]}}, "rope_parameters"),
        ("vision_config", {"depth": 1 << 20}, "depth"),
        ("vision_config", {"hidden_act": "gelu"}, "hidden_act"),
        ("vision_config", {"out_hidden_size": 64}, "out_hidden_size"),
        ("vision_config", {"window_size": 100}, "window_size"),
        ("vision_config", {"num_heads": 3}, "num_heads"),
        ("vision_config", {"in_channels": 4}, "in_channels"),
    ],
)
def test_what_is_not_covered_is_refused_by_its_key(
    folder: Path, tmp_path: Path, part: str, change: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        read_architecture(changed(folder, tmp_path / "other", change, part))


@pytest.mark.parametrize("newer", [False, True])
def test_tensors_go_by_one_set_of_names(tmp_path: Path, newer: bool) -> None:
    folder = tiny_vision_folder(tmp_path / "model", newer=newer)
    assert tensorfiles.problem(folder) == ""
    assert set(hf_folder.read(folder)) == set(tensorfiles.expected(read_architecture(folder)))


def test_a_tower_lacks_nothing(folder: Path, tmp_path: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    lacking = changed(folder, tmp_path / "other", {})
    name = "visual.merger.mlp.2.bias"
    save_file({x: tensor for x, tensor in tensors.items() if x != name}, lacking / "model.safetensors")
    assert name in tensorfiles.problem(lacking)
    save_file(tensors | {name: tensors[name][:-1]}, lacking / "model.safetensors")
    assert name in tensorfiles.problem(lacking)


def eyes(folder: Path) -> Eyes:
    shape = read_architecture(folder)
    made = eyes_of(style(folder), shape, hf_folder.read(folder), torch.float32, torch.device("cpu"))
    assert made is not None
    return made


@pytest.mark.parametrize("size", [(224, 224), (448, 252), (28, 28), (140, 112), (300, 57), (130, 500), (15, 40)])
def test_a_tower_sees_what_transformers_sees(seeing: Path, size: tuple[int, int]) -> None:
    """Whole windows, cut ones and fewer than one."""
    own, png = eyes(seeing), png_of(*size)
    rows, grid = patches(png, own.style)
    wanted = processor_of(seeing)(Image.open(io.BytesIO(png)), return_tensors="np")
    assert (list(grid), True) == (wanted["image_grid_thw"][0].tolist(), np.array_equal(rows, wanted["pixel_values"]))
    with torch.inference_mode():
        theirs = transformers_model(seeing).model.visual(torch.from_numpy(rows), torch.tensor([grid])).pooler_output
    (ours,) = own.see([("a", png)])
    assert ours.shape == theirs.shape == (tokens_of(*size, own.style), 32)
    assert float((ours - theirs).abs().max()) <= 1e-5 * float(theirs.abs().max())


def test_a_picture_is_seen_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, pictures = eyes(folder), [(name, png_of(56, 56, seed=n)) for n, name in enumerate("abc")]
    first = own.see(pictures)
    again = own.see([*pictures, *pictures])
    assert own.passes == 3
    assert all(torch.equal(x, y) for x, y in zip([*first, *first], again, strict=True))
    monkeypatch.setattr("policy.vision.eyes.SEEN", 2 * first[0].nbytes)
    own.see([("d", png_of(56, 56, seed=4))])
    own.see([("a", pictures[0][1])])
    assert own.passes == 5
    assert own.same(eyes(folder))


def test_a_published_shape_has_its_parameters(tmp_path: Path) -> None:
    """Qwen2.5-VL-7B-Instruct's config.json, but for keys that change no shape; a plan counts its tower."""
    config = {
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "model_type": "qwen2_5_vl",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "max_position_embeddings": 128000,
        "rope_theta": 1e6,
        "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
        "tie_word_embeddings": False,
        "image_token_id": 151655,
        "vision_start_token_id": 151652,
        "vision_end_token_id": 151653,
        "vision_config": {
            "depth": 32,
            "hidden_size": 1280,
            "intermediate_size": 3420,
            "num_heads": 16,
            "out_hidden_size": 3584,
            "patch_size": 14,
            "spatial_merge_size": 2,
            "window_size": 112,
            "fullatt_block_indexes": [7, 15, 23, 31],
            "temporal_patch_size": 2,
        },
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    shape = read_architecture(tmp_path)
    sizes = {name: math.prod(size) for name, size in tensorfiles.expected(shape).items()}
    assert sum(sizes.values()) == 8_292_166_656
    seeing = sum(size for name, size in sizes.items() if name.startswith("visual."))
    plan = memory.plan(
        shape, OptimConfig(dtype="bfloat16"), ParallelConfig(), token_budget=8192, reference=False, device="cuda"
    )
    assert plan.weights == 2 * (8_292_166_656 - seeing)
    assert 2 * seeing < plan.tower < 2 * seeing + 4 * memory.GIB
    assert "tower" in plan.by_part()
