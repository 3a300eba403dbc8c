"""Adapters beside frozen weights: PEFT computes the same, and a resume is exact."""

import json
from pathlib import Path

import msgspec
import pytest
import torch
from torch.distributed.checkpoint import FileSystemReader

from actors.learner.config import LearnerConfig
from policy.engine.model import load_weights
from policy.errors import EngineError
from policy.megatron.trainer import OptimConfig, Trainer
from policy.packing import MicroBatch, PackedSample
from policy.settings import LoraConfig, Objective, ParallelConfig
from runtime.errors import ConfigError, StoreError
from tests.policy import tiny_models
from tests.policy.adapted import adapted

LORA = LoraConfig(rank=3, alpha=12.0)
IDS = [5, 9, 33, 60, 7, 7, 2, 41]
BATCH = [
    MicroBatch(
        samples=[PackedSample(ids=IDS, response_len=4, weight=0.25, advantage=1.0, behaviour_logprobs=[-4.5] * 4)]
    )
]
KL = Objective(kl_coef=0.1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.write(tmp_path_factory.mktemp("lora") / "model", "qwen2")


def trainer_of(folder: Path, **options: object) -> Trainer:
    return Trainer(folder, OptimConfig(**{"lora": LORA, **options}))  # type: ignore[arg-type]


def taught(folder: Path, **options: object) -> Trainer:
    """A trainer whose adapters are no longer zero."""
    trainer = trainer_of(folder, **options)
    for _ in range(3):
        trainer.cross_entropy_step(BATCH, 0.02)
    return trainer


def logits_of(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([IDS])).logits[0, -5:-1]


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing.:FutureWarning")  # peft asks transformers so
@pytest.mark.parametrize(
    ("style", "targets"),
    [("qwen2", ()), ("qwen3", ("q_proj", "v_proj", "down_proj")), ("glm4", ("k_proj", "gate_up_proj"))],
)
@pytest.mark.slow
def test_peft_and_the_merged_weights_compute_what_the_learner_does(
    tmp_path: Path, style: str, targets: tuple[str, ...]
) -> None:
    import transformers

    base = tiny_models.write(tmp_path / "base", style, tied=style == "qwen2")
    trainer = taught(base, lora=msgspec.structs.replace(LORA, targets=targets))
    (ours,) = tiny_models.logits(trainer, BATCH[0])
    trainer.export(tmp_path / "out")
    assert torch.equal(tiny_models.logits(trainer, BATCH[0])[0], ours), "an export changes nothing of what is trained"
    plain = transformers.AutoModelForCausalLM.from_pretrained(base)
    assert float((logits_of(plain) - ours).abs().max()) > 1e-2
    merged = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    torch.testing.assert_close(logits_of(merged), ours, rtol=0, atol=1e-5)
    peft = pytest.importorskip("peft")
    adapted = peft.PeftModel.from_pretrained(plain, str(tmp_path / "out" / "adapter"))
    torch.testing.assert_close(logits_of(adapted), ours, rtol=0, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_resume_goes_on_to_the_bit(model: Path, tmp_path: Path, dtype: str) -> None:
    trainer = taught(model, dtype=dtype)
    trainer.new_reference()
    trainer.grpo_step(BATCH, 0.01, KL)
    trainer.save(tmp_path / "saved", "0.4")
    stored = FileSystemReader(tmp_path / "saved" / "shards").read_metadata().state_dict_metadata
    assert "decoder.layers.self_attention.linear_proj.lora.reference_a.o_proj" in stored  # as in older checkpoints
    resumed = Trainer.resume(tmp_path / "saved", trainer.config)
    for _ in range(2):
        ours, theirs = (one.grpo_step(BATCH, 0.01, KL) for one in (trainer, resumed))
        assert {k: v for k, v in ours.items() if not k.endswith("_s")} == {
            k: v for k, v in theirs.items() if not k.endswith("_s")
        }
    with pytest.raises(StoreError, match=r"learner\.lora\.rank 3"):
        Trainer.resume(tmp_path / "saved", OptimConfig(dtype=dtype))


def test_recomputed_layers_give_adapters_the_same_gradient(model: Path) -> None:
    norms = [
        trainer_of(model, recompute=recompute).cross_entropy_step(BATCH, 0.01)["grad_norm"]
        for recompute in ("none", "selective", "full")
    ]
    assert norms[0] > 0
    assert norms == pytest.approx([norms[0]] * 3, rel=1e-5)


def test_settings_that_cant_be_are_refused_by_their_key(model: Path) -> None:
    with pytest.raises(ConfigError, match=r"learner\.lora\.targets: 'query' is not one of q_proj"):
        trainer_of(model, lora=LoraConfig(rank=2, targets=("query",)))
    with pytest.raises(ConfigError, match=r"learner\.parallel\.pipeline is 2.*learner\.lora\.rank"):
        LearnerConfig(lora=LORA, parallel=ParallelConfig(pipeline=2))


@pytest.mark.parametrize("style", ["qwen2", "qwen3", "glm4"])
@pytest.mark.slow
def test_the_engine_merges_an_adapter_to_the_very_weights_that_the_learner_merges(tmp_path: Path, style: str) -> None:
    base = tiny_models.write(tmp_path / "base", style)
    merged, adapter, digest = next(adapted(base, tmp_path, 1))
    device = torch.device("cpu")
    ours, theirs = load_weights(base, device, adapter=adapter), load_weights(merged, device)
    assert ours.digest == digest
    for layer, other in zip(ours.layers, theirs.layers, strict=True):
        assert torch.equal(layer.qkv, other.qkv)
        assert torch.equal(layer.gate_up, other.gate_up)
        assert torch.equal(layer.down, other.down)
    assert not torch.equal(ours.layers[0].qkv, load_weights(base, device).layers[0].qkv)


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"use_dora": True}, "use_dora"),
        ({"peft_type": "IA3"}, "IA3"),
        ({"r": 0}, "r is 0"),
        ({"r": "x"}, "int"),
    ],
)
def test_an_adapter_of_another_kind_is_refused(
    model: Path, tmp_path: Path, changes: dict[str, object], cause: str
) -> None:
    _, adapter, _ = next(adapted(model, tmp_path, 1))
    file = adapter / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(EngineError, match=cause):
        load_weights(model, torch.device("cpu"), adapter=adapter)


def test_an_adapter_of_another_shape_is_refused(model: Path, tmp_path: Path) -> None:
    _, adapter, _ = next(adapted(model, tmp_path, 1))
    other = tiny_models.write(tmp_path / "other", "qwen2", hidden_size=64)
    with pytest.raises(EngineError, match="gets another shape"):
        load_weights(other, torch.device("cpu"), adapter=adapter)
    shallow = tiny_models.write(tmp_path / "shallow", "qwen2", layers=1)
    with pytest.raises(EngineError, match=r"model\.layers\.1.* belongs to no tensor"):
        load_weights(shallow, torch.device("cpu"), adapter=adapter)
