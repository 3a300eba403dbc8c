"""Builds the base model's tokenizer.

Every text survives encode and decode. A word's pieces depend on the word alone, which makes copying learnable.

Text is cut at `[A-Za-z]+|\\d{1,2}|[^A-Za-z0-9]+`; byte-level BPE merges letters only, in pieces of at most four. Added
tokens come on top: element and window names (`e12`, `w1`) as a token each, and the glue of observation lines and of
Python calls.
"""

# ruff: noqa: SIM905 - a list of words reads best as words

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from policy.base.corpus import ELEMENTS, TAGS, cased, word
from policy.tokenizer import SPECIAL_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator

VOCAB_SIZE = 1088  # a multiple of 64, so that it divides among tensor-parallel ranks
WINDOWS = 8
_MAX_PIECE = 4

_LINE_HEADS = ["task: ", "\ndid: ", "\napp: ", "\ninfo: ", "\nlast: "]
_WINDOW_NAMES = [f"w{i}" for i in range(1, WINDOWS + 1)]
# Tokens that begin a line of a prompt, besides the first one and the elements' names.
LINE_STARTS = [*_LINE_HEADS[1:], *_WINDOW_NAMES]
_CALLS = "click type drag_and_drop scroll open_app switch_window hotkey quote wait exit".split()
_CALL_GLUE = [
    " -> ", "\nAgent.", "Agent.", "coordinates=", "text='", ", text='", "keys=['", "app_name='", "window_id=",
    "direction='", "content='", "num_clicks=", "button_type='", "success=", "overwrite=", "enter=",
    "', overwrite=", "', enter=", ", enter=", "True", "False", "None", "', '", "', ", "')", "'])", "()", "ctrl",
    "shift", " Success", "refused", "\\n",
]  # fmt: skip


def element_names() -> list[str]:
    """`e1`, `e2` and so on: every name that is one token."""
    return [f"e{i}" for i in range(1, ELEMENTS + 1)]


def glue() -> list[str]:
    """The added tokens besides element and window names."""
    tags = [f" {tag}{end}" for tag in TAGS for end in ("", " ")]
    return [*_LINE_HEADS, " * ", *tags, *(f"{call}(" for call in _CALLS), *_CALL_GLUE]


def _training_words(seed: int, count: int) -> Iterator[str]:
    rng = Random(seed)  # noqa: S311 - data, no secret
    for _ in range(count):
        text = word(rng)
        yield cased(rng, text) if rng.random() < 0.3 else text


def build_tokenizer(seed: int = 0, words: int = 60_000) -> Tokenizer:
    """Train on generated words; the same seed gives the same file, of exactly VOCAB_SIZE tokens."""
    names = [*element_names(), *_WINDOW_NAMES]
    added = glue()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"[A-Za-z]+|\d{1,2}|[^A-Za-z0-9]+"), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])  # fmt: skip
    tokenizer.decoder = decoders.ByteLevel()
    pairs = [f"{i:02d}" for i in range(100)] * (words // 20)  # frequent enough to be merged
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(names) - len(added),
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        max_token_length=_MAX_PIECE,
        show_progress=False,
    )
    tokenizer.train_from_iterator([*pairs, *_training_words(seed, words)], trainer)
    tokenizer.add_tokens([AddedToken(name, single_word=True, normalized=False) for name in names])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in added])
    return tokenizer
