"""The base model: its corpus knows no task, its recipe repeats, and the shipped files do what they say."""

from __future__ import annotations

import ast
import hashlib
import json
import re
from pathlib import Path
from random import Random

import pytest
import torch
from safetensors.torch import load_file

from apis.tasks.registry import FAMILIES
from deploy.recipes import base_model
from deploy.recipes.base_model import Recipe, build, measure, write_start
from deploy.recipes.base_tokenizer import build_tokenizer
from policy import tokenizer
from policy.base import MODEL, corpus
from policy.base.corpus import ELEMENTS, TAGS
from policy.tokenizer import Tokenizer

SOURCES = [Path(corpus.__file__), *Path(base_model.__file__).parent.glob("base_*.py")]
MAX_BYTES = 8 * 2**20


@pytest.fixture(scope="module")
def shipped() -> Tokenizer:
    return Tokenizer.load(MODEL)


def _words_around_holes(template: str) -> list[str]:
    """The fixed stretches of a template that say something: three words or more."""
    return [part for part in re.split(r"\{\w*\}", template.lower()) if len(re.findall(r"[a-z]+", part)) >= 3]


@pytest.mark.slow
def test_base_imports_nothing_from_apis() -> None:
    for file in [*SOURCES, Path(tokenizer.__file__)]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.split(".")[0] in {"apis", "actors"}], file


@pytest.mark.slow
def test_corpus_holds_no_task_template(shipped: Tokenizer) -> None:
    stretches: set[str] = set()
    whole: set[str] = set()  # wordings with anything in their holes; some have no stretch that says something
    for family in FAMILIES.values():
        wordings = [text for kinds in family.templates.values() for texts in kinds.values() for text in texts]
        own = {part.strip() for text in wordings for part in _words_around_holes(text)}
        assert own, f"{family.name} has no wording to look for"
        stretches |= own
        whole |= {r"\S.*".join(map(re.escape, re.split(r"\{\w*\}", text.lower()))) for text in wordings}
    rng = Random(7)
    sources = " ".join(path.read_text(encoding="utf-8") for path in SOURCES).lower()
    text = "\n".join(shipped.decode(corpus.sequence(rng, shipped)[0]) for _ in range(400)).lower()
    assert not [part for part in stretches if part in text or part in sources]
    asked = re.findall(r"task: (.+)", text)
    assert len(asked) >= 300
    assert not [wording for wording in whole if re.search(wording, "\n".join(asked))]


def test_a_sequence_trains_answers_only(shipped: Tokenizer) -> None:
    rng = Random(3)
    for _ in range(50):
        ids, spans = corpus.sequence(rng, shipped)
        text = shipped.decode(ids)
        assert text.startswith("<|user|>task: ")
        assert ids[-1] == shipped.eos_id
        assert spans == sorted(spans)
        answer = text.index("<|assistant|>")
        assert shipped.decode(ids[: spans[0][0]]).startswith(text[:answer])
        assert all(0 < start < end <= len(ids) for start, end in spans)
        assert not {2, 3, 4} & {ids[i] for start, end in spans for i in range(start, end)}


@pytest.mark.slow
def test_what_a_call_kept_is_pointed_at(shipped: Tokenizer) -> None:
    """A line whose name a call done before kept is meant, whatever lines the sentence names."""
    rng, kept = Random(5), 0
    for _ in range(300):
        screen, answer = shipped.decode(corpus.sequence(rng, shipped)[0]).split("<|assistant|>")[:2]
        names = {m[2]: m[1] for m in re.finditer(r"^(e\d+) [a-z-]+ (.*?)(?: \*)?$", screen, re.MULTILINE)}
        calls = re.findall(r"^did: .*\(content='(.*)'\)$", screen, re.MULTILINE)
        noted = [names[text] for text in calls if text in names]
        pointed = re.match(r"(e\d+) ", answer)  # otherwise it quotes
        if noted and pointed:
            kept += 1
            assert pointed[1] in noted, (screen, answer)
    assert kept > 20


@pytest.mark.slow
def test_parts_meet_at_token_borders(shipped: Tokenizer) -> None:
    """What is trained piecewise must be tokenised as the same text is when it stands whole.

    A word that is also a tag takes its spaces with it, so that a part that begins or ends with one (of 100 sequences
    one or two have such a part) is cut otherwise.
    """
    rng = Random(4)
    for _ in range(50):
        ids, _ = corpus.sequence(rng, shipped)
        for turn in re.split(r"<\|\w+\|>", shipped.decode(ids)):
            if {*TAGS} & {*turn.split(" ")[:1], *turn.split(" ")[2:]}:
                continue
            whole = shipped.encode(turn)
            assert " ".join(map(str, whole)) in " ".join(map(str, ids))


@pytest.mark.proof
def test_one_seed_gives_one_start(tmp_path: Path) -> None:
    digests = set()
    for name in ("a", "b"):
        write_start(tmp_path / name, Recipe())
        digests.add(hashlib.sha256((tmp_path / name / "model.safetensors").read_bytes()).hexdigest())
    assert len(digests) == 1


@pytest.mark.slow
def test_shipped_files_are_small_and_belong_together(shipped: Tokenizer) -> None:
    sizes = {path.name: path.stat().st_size for path in MODEL.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "recipe.json"} <= set(sizes)
    assert sum(sizes.values()) <= MAX_BYTES
    config = json.loads((MODEL / "config.json").read_text())
    assert config["vocab_size"] == shipped.largest_id + 1
    assert config["eos_token_id"] == shipped.eos_id
    recipe = Recipe(**json.loads((MODEL / "recipe.json").read_text()))
    assert recipe == Recipe(), "the shipped model was made by another recipe than the one in the code"
    assert json.loads((MODEL / "tokenizer.json").read_text()) == json.loads(build_tokenizer(recipe.seed).to_str())
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
def test_shipped_model_points_and_copies(shipped: Tokenizer) -> None:
    from policy.megatron.trainer import OptimConfig, Trainer

    figures = measure(Trainer(MODEL, OptimConfig()), shipped, seed=99, sequences=24)
    assert figures["point_accuracy"] > 0.8  # of questions that name a line, its tag only, or the next one of a sentence
    assert figures["copy_accuracy"] > 0.95
    assert figures["sentence_accuracy"] > 0.8


@pytest.mark.proof
def test_shipped_model_is_as_good_as_readme_says(shipped: Tokenizer) -> None:
    from policy.megatron.trainer import OptimConfig, Trainer

    figures = measure(Trainer(MODEL, OptimConfig()), shipped, seed=0)
    assert figures["point_accuracy"] > 0.77  # of questions that name a line, its tag only, or a sentence's next one
    assert figures["copy_accuracy"] > 0.965
    assert figures["sentence_accuracy"] > 0.89


@pytest.mark.proof
def test_a_short_build_learns(tmp_path: Path) -> None:
    from policy.megatron.trainer import OptimConfig, Trainer

    heard: list[dict[str, float]] = []
    recipe = Recipe(steps=50, tokens=1024, limit=256)
    build(tmp_path / "m", recipe, heard.append)
    fresh = base_model._batch(Random(99), Tokenizer.load(tmp_path / "m"), recipe)
    write_start(tmp_path / "start", recipe)
    before, after = (Trainer(tmp_path / one, OptimConfig()).evaluate(fresh)["loss"] for one in ("start", "m"))
    assert after < before - 0.5, "nats per trained token, on sequences that it was not trained on"
    assert {"point_accuracy", "copy_accuracy", "sentence_accuracy", "cpu_s"} <= set(heard[-1])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "start"]
    assert len(Tokenizer.load(tmp_path / "m").encode(f"e{ELEMENTS}")) == 1
