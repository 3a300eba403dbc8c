"""Makes the base model of `policy/base/model` again: tokenizer, designed starting weights, then training.

    python -P -m deploy.recipes.base_model DIR --steps 2400 --seed 0

One recipe and one seed give one model. Every optimizer step is Megatron's, as in any other training here.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from deploy.recipes.base_tokenizer import LINE_STARTS, TAGS, VOCAB_SIZE, build_tokenizer, element_names
from deploy.recipes.base_weights import BaseShape, Marked, initial_weights
from policy.base.corpus import sequence
from policy.packing import Aggregation, MicroBatch, pack_cross_entropy
from policy.tokenizer import ASSISTANT, CHAT_TEMPLATE, END, PAD, USER, Tokenizer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from policy.megatron.trainer import Trainer

_BYTES = ("\u0120", "\u010a")  # a space and the end of a line, as byte-level vocabularies write them
_FRESH = 1_000_003  # seed offset of the sequences that figures are taken on; training never draws them


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What decides the result, besides the code."""

    seed: int = 0
    layers: int = 3
    steps: int = 2400
    tokens: int = 4096  # of a step's sequences, at least
    limit: int = 512  # tokens of a sequence
    lr: float = 4e-4
    warmup: int = 10
    final_lr: float = 0.1  # share of `lr` that the cosine ends at

    def rate(self, step: int) -> float:
        """The learning rate of 0-based `step`: linear warm-up, then a cosine."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        done = (step - self.warmup) / max(self.steps - self.warmup, 1)
        return self.lr * (self.final_lr + (1 - self.final_lr) * 0.5 * (1 + math.cos(math.pi * done)))


def build(folder: Path, recipe: Recipe | None = None, report: Callable[[dict[str, float]], None] | None = None) -> None:
    """Write the base model's Hugging Face folder to `folder`.

    `report` gets the figures of every 50th step. At the end it gets those of `measure` on fresh sequences, and `cpu_s`:
    the CPU seconds of the whole recipe.
    """
    from policy.megatron.trainer import OptimConfig, Trainer

    recipe = recipe or Recipe()
    report = report or (lambda figures: None)
    began = time.process_time()
    start = folder.with_name(f".{folder.name}.start")
    tokenizer = write_start(start, recipe)
    trainer = Trainer(start, OptimConfig(seed=recipe.seed))
    rng = Random(recipe.seed)  # noqa: S311 - data, no secret
    for step in range(recipe.steps):
        figures = trainer.cross_entropy_step(_batch(rng, tokenizer, recipe), recipe.rate(step))
        if (step + 1) % 50 == 0:
            report({"step": step + 1, "cpu_s": time.process_time() - began, **figures})
    trainer.export(folder)
    store_half(folder)
    shutil.rmtree(start)
    last = measure(trainer, tokenizer, recipe.seed)
    report({"step": recipe.steps, "cpu_s": time.process_time() - began, **last})


def write_start(folder: Path, recipe: Recipe) -> Tokenizer:
    """Write a folder with the tokenizer and the designed, untrained weights."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    backend = build_tokenizer(recipe.seed)
    backend.save(str(folder / "tokenizer.json"))
    shape = BaseShape(vocab=VOCAB_SIZE, layers=recipe.layers)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": PAD,
        "model_max_length": shape.context,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    for name, content in (
        ("config.json", shape.hf_config()),
        ("tokenizer_config.json", settings),
        ("recipe.json", asdict(recipe)),
    ):
        (folder / name).write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    vocabulary = backend.get_vocab(with_added_tokens=True)
    weights = initial_weights(shape, recipe.seed, marked_tokens(vocabulary))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return Tokenizer.load(folder)


def marked_tokens(vocabulary: Mapping[str, int]) -> Marked:
    """The tokens that the starting weights treat apart."""
    return Marked(
        rest=vocabulary[USER],
        task=vocabulary["task: "],
        elements=[vocabulary[name] for name in element_names()],
        starts=[vocabulary[text] for text in LINE_STARTS],
        answers=[vocabulary[ASSISTANT]],
        points=[vocabulary["coordinates="]],
        sides=[vocabulary[text] for text in ("'", '"', *_BYTES, *(f" {tag} " for tag in TAGS))],
    )


def store_half(folder: Path) -> None:
    """Keep the weights as float16, at half the size; the config goes on asking for float32 arithmetic."""
    import torch
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    halves = {name: value.to(torch.float16) for name, value in load_file(path).items()}
    save_file(halves, path, metadata={"format": "pt"})


def _batch(rng: Random, tokenizer: Tokenizer, recipe: Recipe) -> list[MicroBatch]:
    sequences, tokens = [], 0
    while tokens < recipe.tokens:
        sequences.append(sequence(rng, tokenizer, recipe.limit))
        tokens += len(sequences[-1][0])
    return pack_cross_entropy(sequences, 2 * tokens, Aggregation.TOKEN_MEAN)


def measure(trainer: Trainer, tokenizer: Tokenizer, seed: int, sequences: int = 64) -> dict[str, float]:
    """Share of right arg-max tokens on fresh sequences.

    `point_accuracy` is of element names, `copy_accuracy` of all other tokens. `sentence_accuracy` is of the element
    name that an answer to a screen begins with. Only the screen's sentence or a kept name says which it is.
    """
    rng = Random(seed + _FRESH)  # noqa: S311 - data, no secret
    names = {tokenizer.encode(name)[0] for name in element_names()}
    answers = tokenizer.prompt_ids("")[-1]
    kinds: dict[str, list[tuple[list[int], list[tuple[int, int]]]]] = {
        "point_accuracy": [],
        "copy_accuracy": [],
        "sentence_accuracy": [],
    }
    for ids, spans in (sequence(rng, tokenizer) for _ in range(sequences)):
        trained = [i for start, end in spans for i in range(start, end)]
        for key, wanted in (("point_accuracy", True), ("copy_accuracy", False)):
            places = [(i, i + 1) for i in trained if (ids[i] in names) is wanted]
            if places:
                kinds[key].append((ids, places))
        first = ids.index(answers) + 1
        if first == trained[0] and ids[first] in names:
            kinds["sentence_accuracy"].append((ids, [(first, first + 1)]))
    return {
        key: trainer.evaluate(pack_cross_entropy(rows, 4096, Aggregation.TOKEN_MEAN))["accuracy"]
        for key, rows in kinds.items()
    }


def main() -> None:
    """Build the model that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -P -m deploy.recipes.base_model", description="Make the base model.")
    parser.add_argument("folder", type=Path, help="folder to make")
    parser.add_argument("--steps", type=int, default=Recipe.steps, help="optimizer steps")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if args.folder.exists() or args.steps < 1:
        parser.error(f"{args.folder} exists already" if args.folder.exists() else "--steps counts from 1")
    build(args.folder.absolute(), Recipe(steps=args.steps, seed=args.seed), lambda figures: print(json.dumps(figures)))  # noqa: T201


if __name__ == "__main__":
    main()
