"""Words for the base model's corpus: common English ones, invented ones and letter soup.

Invariant: a word drawn here depends on the generator handed in alone, and no list is taken from a task suite.
"""

# ruff: noqa: SIM905 - a list of words reads best as words

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

COMMON = tuple(Path(__file__).with_name("words.txt").read_text(encoding="ascii").split())

_ONSETS = tuple(
    "b bl br c ch cl cr d dr f fl fr g gl gr h j k kl l m n p ph pl pr qu r s sc sh sk sl sm sn sp st str t th tr v w "
    "wh y z".split()
)
_VOWELS = tuple("a e i o u a e i o u a e o ai au ea ee ie oa oo ou y".split())
_CODAS = (*"b ck d f g k l ll ld lt m mp n nd ng nk nt p r rd rk rm rn rt s sh sk ss st t th x".split(), *[""] * 24)
_ENDINGS = tuple("al ble ed en er es est ful ing ion ity ive le less ly ment ness or ous s ted ting tion ure y".split())
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def invented(rng: Random) -> str:
    """A word that looks like English and is mostly none."""
    syllables = rng.choice((1, 2, 2, 2, 3))
    word = "".join(rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(syllables))
    if rng.random() < 0.2:
        word += rng.choice(_ENDINGS)
    return word[: rng.randint(5, 12)]


def word(rng: Random) -> str:
    """One word, mostly lower case: common, invented, or letters at random."""
    draw = rng.random()
    if draw < 0.45:
        text = rng.choice(COMMON)
        if rng.random() < 0.15:
            text += rng.choice(_ENDINGS)
    elif draw < 0.9:
        text = invented(rng)
    else:
        text = "".join(rng.choices(_LETTERS, k=rng.randint(2, 7)))
    return text


def cased(rng: Random, text: str) -> str:
    """The text as a label would show it: often with a capital, seldom all in capitals."""
    draw = rng.random()
    if draw < 0.5:
        return text[:1].upper() + text[1:]
    return text.upper() if draw < 0.54 else text
