"""Weights that are not what they seem are refused by name, by planning, learner and engine alike."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from actors.cluster.config import models
from policy import hf_folder, tensorfiles
from policy.engine.model import load_weights
from policy.errors import EngineError
from policy.megatron.trainer import OptimConfig, Trainer
from runtime import disk
from runtime.errors import ConfigError
from tests.policy import tiny_models

Q = "model.layers.0.self_attn.q_proj.weight"
Change = Callable[[Path], object]


def tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Change:
    def changed(folder: Path) -> None:
        found = load_file(folder / "model.safetensors")
        change(found)
        save_file(found, folder / "model.safetensors")

    return changed


def config(**more: object) -> Change:
    def changed(folder: Path) -> None:
        said = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(said | more))

    return changed


def beside(name: str, content: bytes = b"{}") -> Change:
    return lambda folder: (folder / name).write_bytes(content)


def shard(name: str, **held: torch.Tensor) -> Change:
    return lambda folder: save_file(held, folder / name)


def misplaced(change: Callable[[dict[str, Any], list[str]], object]) -> Change:
    """The head of model.safetensors changed, and nothing else."""

    def changed(folder: Path) -> None:
        data = (folder / "model.safetensors").read_bytes()
        size = int.from_bytes(data[:8], "little")
        head = json.loads(data[8 : 8 + size])
        change(head, [name for name in head if name != "__metadata__"])
        text = json.dumps(head).encode()
        (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size :])

    return changed


def index(**places: str) -> Change:
    """An index by which each tensor is in model.safetensors, but for `places`."""

    def changed(folder: Path) -> None:
        told = dict.fromkeys(load_file(folder / "model.safetensors"), "model.safetensors") | places
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": told}))

    return changed


def fifo(name: str) -> Change:
    def changed(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)

    return changed


WRONG: list[tuple[Change, str]] = [
    (tensors(lambda t: t.update({Q: t[Q].to(torch.int8)})), f"{Q} is I8"),
    (tensors(lambda t: t.update({Q: t[Q].to(torch.float8_e4m3fn)})), f"{Q} is F8_E4M3"),
    (tensors(lambda t: t.update({"model.norm.weight": t["model.norm.weight"].long()})), "model.norm.weight is I64"),
    (
        tensors(lambda t: t.update({Q.replace("weight", "qweight"): t.pop(Q).to(torch.int32)})),
        "q_proj.qweight, which the model does not use",
    ),
    (tensors(lambda t: t.update({Q + "_scale_inv": torch.ones(1)})), "weight_scale_inv, which the model does not use"),
    (tensors(lambda t: t.update({"model.layers.7.mlp.up_proj.weight": torch.ones(1)})), "model.layers.7.mlp"),
    (tensors(lambda t: t.update({"score.weight": torch.ones(1)})), "score.weight, which the model does not use"),
    (tensors(lambda t: t.update({"lm_head.weight": torch.ones(96, 32)})), "lm_head.weight, which the model does not"),
    (tensors(lambda t: t.pop(Q)), f"it lacks the tensor {Q}"),
    (tensors(lambda t: t.pop(Q.replace("weight", "bias"))), "it lacks the tensor model.layers.0.self_attn.q_proj.bias"),
    (tensors(lambda t: t.update({Q: t[Q][:5].clone()})), f"{Q} has shape (5, 32), its config.json says (32, 32)"),
    (shard("stray.safetensors", **{Q: torch.zeros(32, 32)}), f"the tensor {Q} is in model.safetensors and in stray"),
    (shard("x.safetensors", **{"q.lora_B.weight": torch.zeros(1)}), "x.safetensors has the tensor q.lora_B.weight"),
    (beside("adapter_config.json"), "adapter_config.json, an adapter"),
    (beside("pytorch_lora_weights.bin"), "pytorch_lora_weights.bin, an adapter"),
    (config(quantization_config={"quant_method": "gptq", "bits": 4}), "quantization_config (gptq)"),
    (config(quantization_config={"load_in_4bit": True}), "quantization_config: quantised"),
    (beside("model.safetensors", b"nonsense"), "cannot read model.safetensors: it is no safetensors file"),
    (beside("model.safetensors", (9).to_bytes(8, "little") + b"{not json"), "its head is damaged"),
    (
        lambda folder: (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-9]),
        "bytes of weights, its head says",
    ),
    (fifo("model.safetensors"), "cannot read model.safetensors: it is no regular file"),
    (lambda folder: (folder / "model.safetensors").unlink(), "it holds no *.safetensors file"),
    (lambda folder: os.truncate(folder / "model.safetensors", 1 << 40), "bytes of weights, its head says"),
    (misplaced(lambda head, names: head[names[0]].update(shape=[1 << 40, 1 << 40])), "which its shape"),
    (misplaced(lambda head, names: head[names[0]].update(shape=[1] * 500_000)), "500000 dimensions"),
    (misplaced(lambda head, names: head[names[1]].update(head[names[0]])), "the one before it ends at"),
    (misplaced(lambda head, names: head[names[0]].update(data_offsets=[0, 1 << 60])), "which its shape"),
    (misplaced(lambda head, _: head.update(x="y" * (9 << 20))), "it is no safetensors file"),
    (index(**{Q: "../../../../etc/passwd"}), f"says that {Q} is in '../../../../etc/passwd', and model.safetensors"),
    (index(**{"model.norm.bias": "x.safetensors"}), "says that model.norm.bias is in 'x.safetensors', and no file has"),
    (fifo("model.safetensors.index.json"), "cannot read model.safetensors.index.json: it is no regular file"),
    (beside("model.safetensors.index.json", b'{"a": ' * 2000), "cannot read model.safetensors.index.json: "),
]


def test_a_template_of_more_than_any_models_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(b"x" * ((1 << 20) + 1))
    assert tensorfiles.unreadable(tmp_path) == "chat_template.jinja has more than 1048576 bytes"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tiny_models.write(tmp_path / "model")
    (folder / "tokenizer.json").write_bytes((models.bundled() / "tokenizer.json").read_bytes())
    return folder


@pytest.mark.parametrize(("change", "said"), WRONG, ids=[said for _, said in WRONG])
def test_wrong_weights_are_refused_alike_by_planning_learner_and_engine(
    folder: Path, change: Change, said: str
) -> None:
    change(folder)
    assert said in tensorfiles.problem(folder)
    with pytest.raises(ConfigError) as planned:
        models.locate(str(folder))
    with pytest.raises(ConfigError) as learned:
        hf_folder.read(folder)
    assert said in str(planned.value)
    assert said in str(learned.value)
    if "does not say" not in said:  # the engine reads that file first
        with pytest.raises(EngineError) as served:
            load_weights(folder, torch.device("cpu"))
        assert said in str(served.value)
    assert "\n" not in str(planned.value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floats_are_weights(folder: Path, dtype: torch.dtype) -> None:
    tensors(lambda t: t.update({name: tensor.to(dtype) for name, tensor in t.items()}))(folder)
    assert tensorfiles.problem(folder) == ""
    load_weights(folder, torch.device("cpu"))
    Trainer(folder, OptimConfig())


def test_what_says_the_same_twice_is_no_fault(folder: Path) -> None:
    tensors(lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"].clone()}))(folder)
    tensors(lambda t: t.update({"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}))(folder)
    assert tensorfiles.problem(folder) == ""


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_numbers_that_are_not_finite_are_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, number: str
) -> None:
    tensors(lambda t: t.update({name: tensor.to(dtype) for name, tensor in t.items()}))(folder)
    tensors(lambda t: t[Q][-1].fill_(float(number)))(folder)
    assert tensorfiles.problem(folder) == f"{Q} holds numbers that are not finite"
    monkeypatch.setattr(tensorfiles, "_LOOKED_AT", 0)  # what loads larger ones looks at all of them
    assert tensorfiles.problem(folder) == ""
    for error, load in ((ConfigError, hf_folder.read), (EngineError, lambda at: load_weights(at, torch.device("cpu")))):
        with pytest.raises(error, match=r"q_proj\.weight holds numbers that are not finite"):
            load(folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (fifo("config.json"), "config.json is no regular file"),
        (fifo("tokenizer.json"), "tokenizer.json is no regular file"),
        (fifo("chat_template.jinja"), "chat_template.jinja is no regular file"),
        (beside("vocab.txt", bytes(disk.MODEL)), "what lies next to its weights"),
        (config(num_hidden_layers=1 << 40), "num_hidden_layers is 1099511627776: it is at most 2048"),
        (config(vocab_size=1 << 50), "vocab_size is 1125899906842624: it is at most"),
        (config(architectures=["EvilForCausalLM"]), "a text model of this model_type is Qwen2ForCausalLM"),
        (config(auto_map={"AutoModelForCausalLM": "evil.M"}), "programs of the folder, which are never run"),
    ],
)
def test_what_lies_beside_the_weights_is_bounded(folder: Path, change: Change, said: str) -> None:
    change(folder)
    with pytest.raises(ConfigError) as caught:
        models.locate(str(folder))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b'{"model": 3}', b"\xff\xfe", b'{"version": "1.0", "model": {"type": "?"}}']
)
def test_a_broken_tokenizer_is_refused_at_planning(folder: Path, content: bytes) -> None:
    (folder / "tokenizer.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"tokenizer\.json is no tokenizer") as caught:
        models.locate(str(folder))
    assert "\n" not in str(caught.value)
