"""The base model and its exercises: they know no task, belong together, and do what their README says."""

from __future__ import annotations

import json
import re

import pytest
import torch
from safetensors.torch import load_file

from apis.tasks.registry import FAMILIES
from policy.base import EXERCISES, MODEL, Corpus
from policy.packing import Aggregation, pack_cross_entropy
from policy.tokenizer import Tokenizer

MAX_BYTES = 8 * 2**20


@pytest.fixture(scope="module")
def shipped() -> Tokenizer:
    return Tokenizer.load(MODEL)


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return Corpus()


def _words_around_holes(template: str) -> list[str]:
    """The fixed stretches of a template that say something: three words or more."""
    return [part for part in re.split(r"\{\w*\}", template.lower()) if len(re.findall(r"[a-z]+", part)) >= 3]


@pytest.mark.slow
def test_exercises_hold_no_task_template(shipped: Tokenizer, corpus: Corpus) -> None:
    stretches: set[str] = set()
    whole: set[str] = set()  # wordings with anything in their holes; some have no stretch that says something
    for family in FAMILIES.values():
        wordings = [text for kinds in family.templates.values() for texts in kinds.values() for text in texts]
        own = {part.strip() for text in wordings for part in _words_around_holes(text)}
        assert own, f"{family.name} has no wording to look for"
        stretches |= own
        whole |= {r"\S.*".join(map(re.escape, re.split(r"\{\w*\}", text.lower()))) for text in wordings}
    text = "\n".join(shipped.decode(ids) for ids, _ in corpus.take(range(400))).lower()
    assert not [part for part in stretches if part in text]
    asked = re.findall(r"task: (.+)", text)
    assert len(asked) >= 300
    assert not [wording for wording in whole if re.search(wording, "\n".join(asked))]


def test_an_exercise_trains_answers_only(shipped: Tokenizer, corpus: Corpus) -> None:
    exercises = corpus.take(range(EXERCISES))
    assert len({tuple(ids) for ids, _ in exercises}) == EXERCISES
    assert max(max(ids) for ids, _ in exercises) <= shipped.largest_id
    for ids, spans in exercises[:50]:
        text = shipped.decode(ids)
        assert text.startswith("<|user|>task: ")
        assert ids[-1] == shipped.eos_id
        assert spans == sorted(spans)
        assert shipped.decode(ids[: spans[0][0]]).startswith(text[: text.index("<|assistant|>")])
        assert all(0 < start < end <= len(ids) for start, end in spans)
        assert not {2, 3, 4} & {ids[i] for start, end in spans for i in range(start, end)}


def test_shipped_files_are_small_and_belong_together(shipped: Tokenizer) -> None:
    sizes = {path.name: path.stat().st_size for path in MODEL.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} == set(sizes)
    assert sum(sizes.values()) <= MAX_BYTES
    config = json.loads((MODEL / "config.json").read_text())
    assert config["vocab_size"] == shipped.largest_id + 1
    assert config["eos_token_id"] == shipped.eos_id
    assert sum(t.numel() for t in load_file(MODEL / "model.safetensors").values()) < 4_000_000


def test_shipped_model_loads_in_transformers(shipped: Tokenizer) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(str(MODEL), dtype=torch.float32)
    prompt = "task: x\napp: a\nw1 * y\ne1 menu File\nlast: None"
    ids = shipped.prompt_ids(prompt)
    logits = model(torch.tensor([ids])).logits
    assert logits.shape == (1, len(ids), shipped.largest_id + 1)
    assert bool(torch.isfinite(logits).all())
    theirs = AutoTokenizer.from_pretrained(str(MODEL))
    message = [{"role": "user", "content": prompt}]
    assert theirs.apply_chat_template(message, add_generation_prompt=True, return_dict=False) == ids
    assert theirs.eos_token_id == shipped.eos_id


@pytest.mark.slow
def test_shipped_model_points_and_copies(shipped: Tokenizer, corpus: Corpus) -> None:
    from policy.megatron.trainer import OptimConfig, Trainer

    names = {shipped.encode(f"e{number}")[0] for number in range(1, 61)}
    trainer, exercises = Trainer(MODEL, OptimConfig()), corpus.take(range(96))
    for pointing, least in ((True, 0.72), (False, 0.95)):
        trained = [(ids, [(i, i + 1) for span in spans for i in range(*span)]) for ids, spans in exercises]
        chosen = [(ids, [at for at in places if (ids[at[0]] in names) is pointing]) for ids, places in trained]
        batches = pack_cross_entropy([row for row in chosen if row[1]], 4096, Aggregation.TOKEN_MEAN)
        accuracy = trainer.evaluate(batches)["accuracy"]
        assert accuracy > least, (pointing, accuracy)
