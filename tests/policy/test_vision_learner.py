"""Pictures in the learner: log-probabilities of transformers and of the engine, steps, exports, resumes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
import torch

from policy import hf_folder
from policy.errors import LearnerError
from policy.megatron.trainer import Trainer
from policy.packing import MicroBatch, PackedSample, SeenPicture
from policy.pictures import placed_in
from policy.settings import LoraConfig, Objective, OptimConfig
from policy.tensorfiles import plain_name
from runtime.errors import StoreError
from tests.policy.engine_tools import make_core, response, run_core
from tests.policy.test_vision_engine import PARTS, pictures_of, prompt_of
from tests.policy.vision_model import (
    logits_with,
    reference_logits,
    style,
    tiny_vision_folder,
    transformers_model,
)


@pytest.fixture(scope="module", params=["qwen", "glm"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_vision_folder(tmp_path_factory.mktemp("seeing") / "model", glm=request.param == "glm")


def sample(folder: Path, name: str, answer: Sequence[int], **fields: object) -> tuple[PackedSample, list[bytes]]:
    """A response to a prompt of `PARTS`, and the prompt's pictures."""
    look = style(folder)
    ids, pngs = prompt_of(PARTS[name], look), pictures_of(PARTS[name])
    places = placed_in(ids, pngs, look)
    pictures = tuple(SeenPicture(at=place.at, digest=place.digest, png=place.png) for place in places)
    made = PackedSample(
        ids=[*ids, *answer],
        response_len=len(answer),
        weight=0.1,
        pictures=pictures,
        **fields,  # type: ignore[arg-type]
    )
    return made, pngs


@pytest.fixture(scope="module")
def trainer(folder: Path) -> Trainer:
    return Trainer(folder, OptimConfig())


def test_logprobs_are_those_of_transformers_however_packed(trainer: Trainer, folder: Path) -> None:
    """Siblings share a prompt with its pictures."""
    names = ["two", "text", "one", "one", "last", "neighbours", "two"]
    made = [sample(folder, name, [30 + n, 40, 50 + n][: 1 + n % 3]) for n, name in enumerate(names)]
    whole, _ = made[2]
    ours = trainer.logprobs(MicroBatch(samples=[one for one, _ in made]))
    for (one, pngs), logprobs in zip(made, ours, strict=True):
        theirs = torch.log_softmax(reference_logits(folder, one.ids, pngs), -1)
        wanted = [float(theirs[at - 1, one.ids[at]]) for at in one.targets()]
        assert logprobs == pytest.approx(wanted, abs=1e-4)
    assert trainer.eyes is not None
    assert trainer.eyes.passes == len({picture.digest for one, _ in made for picture in one.pictures})
    assert trainer.logprobs(MicroBatch(samples=[whole]))[0] == pytest.approx(ours[2], abs=1e-5)


def test_the_engine_agrees(trainer: Trainer, folder: Path) -> None:
    core = make_core(folder, context_length=512)
    for name in PARTS:
        asked, _ = sample(folder, name, [1])
        pictures = placed_in(asked.ids[:-1], [picture.png for picture in asked.pictures], style(folder))
        drawn = response(name, asked.ids[:-1], 8, temperature=1.0, pictures=pictures)
        run_core(core, drawn)
        answered = msgspec.structs.replace(asked, ids=drawn.ids, response_len=8)
        assert trainer.logprobs(MicroBatch(samples=[answered]))[0] == pytest.approx(drawn.logprobs, abs=1e-4)


@pytest.mark.parametrize("wrong", ["none", "moved", "another size", "damaged", "twice"])
def test_a_sample_without_its_pictures_is_refused(trainer: Trainer, folder: Path, wrong: str) -> None:
    one, _ = sample(folder, "one", [30])
    (picture,) = one.pictures
    changed = {
        "none": (),
        "moved": (msgspec.structs.replace(picture, at=picture.at + 1),),
        "another size": (msgspec.structs.replace(picture, png=pictures_of([(56, 56)])[0]),),
        "damaged": (msgspec.structs.replace(picture, png=b"no picture"),),
        "twice": (picture, picture),
    }[wrong]
    with pytest.raises(LearnerError, match="picture"):
        trainer.logprobs(MicroBatch(samples=[msgspec.structs.replace(one, pictures=changed)]))


@pytest.mark.parametrize("lora", [0, 4])
def test_steps_change_the_text_alone_and_go_on_after_a_resume(folder: Path, tmp_path: Path, lora: int) -> None:
    config = OptimConfig(lora=LoraConfig(rank=lora))
    trainer = Trainer(folder, config)
    made = [
        sample(folder, name, [30, 40], advantage=1.0, behaviour_logprobs=[-7.0, -7.0])[0] for name in ("one", "two")
    ]
    batch = [MicroBatch(samples=made)]
    first = trainer.grpo_step(batch, 1e-2, Objective())
    assert first["ok"]
    assert first["grad_norm"] > 0
    trainer.save(tmp_path / "saved")
    trainer.export(tmp_path / "out")
    before, after = hf_folder.read(folder), hf_folder.read(tmp_path / "out")
    same = {name for name, tensor in before.items() if torch.equal(tensor, after[name])}
    assert {name for name in before if name.startswith("visual.")} <= same
    assert not {f"model.layers.0.self_attn.{x}_proj.weight" for x in "qkv"} & same
    assert (tmp_path / "out" / "preprocessor_config.json").read_bytes() == (
        folder / "preprocessor_config.json"
    ).read_bytes()
    again = Trainer.resume(tmp_path / "saved", config)
    assert again.logprobs(batch[0]) == trainer.logprobs(batch[0])
    assert trainer.logprobs(batch[0]) == [
        pytest.approx(of, abs=1e-4) for of in Trainer(tmp_path / "out", OptimConfig()).logprobs(batch[0])
    ]


@pytest.mark.parametrize("part", ["merger", "all"])
def test_a_trained_tower_has_the_gradient_of_transformers(folder: Path, part: str) -> None:
    made = [sample(folder, name, [30, 40]) for name in ("one", "two", "one")]
    trainer = Trainer(folder, OptimConfig(vision=part, clip_grad=1e9))
    trainer.cross_entropy_step([MicroBatch(samples=[one for one, _ in made])], 0.0)
    model = transformers_model(folder)
    model.zero_grad()
    for one, pngs in made:
        logprobs = torch.log_softmax(logits_with(model, folder, one.ids, pngs), -1)
        (-0.1 * sum(logprobs[at - 1, one.ids[at]] for at in one.targets())).backward()
    theirs = {plain_name(name): weight.grad for name, weight in model.named_parameters()}
    trained = {name: weight.main_grad for name, weight in trainer.updater.trained() if name.startswith("visual.")}
    assert set(trained) == {
        name for name in theirs if name.startswith("visual." if part == "all" else "visual.merger.")
    }
    for name, gradient in trained.items():
        torch.testing.assert_close(gradient, theirs[name].view_as(gradient), rtol=1e-3, atol=1e-5, msg=name)


@pytest.mark.parametrize("part", ["merger", "all"])
def test_a_trained_tower_goes_to_engines_and_on_after_a_resume(folder: Path, tmp_path: Path, part: str) -> None:
    config = OptimConfig(vision=part)
    trainer = Trainer(folder, config)
    batch = [MicroBatch(samples=[sample(folder, name, [30, 40])[0] for name in ("one", "two")])]
    trainer.new_reference()
    before = trainer._reference_logprobs(batch)[0].tolist()
    assert trainer.cross_entropy_step(batch, 1e-2)["ok"]
    assert trainer._reference_logprobs(batch)[0].tolist() == before, "the reference has the tower that it began with"
    trainer.save(tmp_path / "saved")
    trainer.export(tmp_path / "out")
    old, new = hf_folder.read(folder), hf_folder.read(tmp_path / "out")
    changed = {name for name in old if name.startswith("visual.") and not torch.equal(old[name], new[name])}
    assert changed == {name for name in old if name.startswith("visual." if part == "all" else "visual.merger.")}
    test_the_engine_agrees(trainer, tmp_path / "out")
    again = Trainer.resume(tmp_path / "saved", config)
    assert again.logprobs(batch[0]) == trainer.logprobs(batch[0])
    for one in (trainer, again):
        one.cross_entropy_step(batch, 1e-2)
    assert again.logprobs(batch[0]) == trainer.logprobs(batch[0])
    with pytest.raises(StoreError, match=f"learner.vision {part}"):
        Trainer.resume(tmp_path / "saved", OptimConfig())


def test_text_is_what_it_is_in_a_model_that_reads_text_alone(trainer: Trainer, folder: Path, tmp_path: Path) -> None:
    """In the learner to the bit: three equal positions are one. The engine's sums depend on where tensors lie."""
    config = json.loads((folder / "config.json").read_text())
    glm = {"model_type": "glm4", "architectures": ["Glm4ForCausalLM"], "attention_bias": True, "head_dim": 16}
    qwen = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
    text = config["text_config"] | (glm if config["model_type"] == "glm4v" else qwen)
    text["rope_parameters"].pop("mrope_section")
    text["tie_word_embeddings"] = config["tie_word_embeddings"]
    files = hf_folder.companions(folder)
    blind = {
        "config.json": json.dumps(text).encode(),
        "tokenizer.json": files["tokenizer.json"],
    }
    words = {name: tensor for name, tensor in hf_folder.read(folder).items() if not name.startswith("visual.")}
    hf_folder.write(tmp_path / "blind", words, blind)
    made = [PackedSample(ids=[*range(9, 40), 5 + n], response_len=1 + n // 2, weight=1.0) for n in range(5)]
    batch = MicroBatch(samples=made)
    assert trainer.logprobs(batch) == Trainer(tmp_path / "blind", OptimConfig()).logprobs(batch)
    answers = [response("a", list(range(9, 40)), 12) for _ in range(2)]
    for answer, model in zip(answers, (folder, tmp_path / "blind"), strict=True):
        run_core(make_core(model, context_length=64), answer)
    assert answers[0].output == answers[1].output
    assert answers[0].logprobs == pytest.approx(answers[1].logprobs, abs=1e-5)
