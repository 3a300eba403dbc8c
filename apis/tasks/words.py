"""Words and whole numbers for generated tasks, in two halves by their hash: no split draws one of the other."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from random import Random

TRAIN, HELD_OUT = "train", "held-out"
SPLITS = (TRAIN, HELD_OUT)

_ENDINGS = ("txt", "md", "log")  # of names of text files
_COMMON = (files("apis.tasks") / "common_words.txt").read_text("ascii").split()
_ONSETS = (*"bcdfghjklmnprstvwz", "br", "cr", "dr", "fl", "gr", "kl", "pl", "pr", "sk", "sl", "st", "tr")
_VOWELS = (*"aeiou", "ai", "ea", "oo")
_CODAS = ("", "", "", *"nrlstmk")
LEAST, MOST = 10, 999  # of numbers


def split_of(word: str) -> str:
    """Which half `word` belongs to; a fifth of all words is held out."""
    return HELD_OUT if hashlib.blake2b(word.encode(), digest_size=2).digest()[0] % 5 == 0 else TRAIN


def word(random: Random, split: str) -> str:
    """A word of 3 to 8 letters: a common one, or a made-up one."""
    while True:
        drawn = random.choice(_COMMON) if random.random() < 0.4 else _made_up(random)
        if split_of(drawn) == split:
            return drawn


def words(random: Random, split: str, count: int) -> list[str]:
    """`count` different words, none of which begins another."""
    drawn: list[str] = []
    while len(drawn) < count:
        new = word(random, split)
        if not any(new.startswith(old) or old.startswith(new) for old in drawn):
            drawn.append(new)
    return drawn


def text_file(random: Random, stem: str) -> str:
    """The name of a text file: `stem` with an ending of one."""
    return f"{stem}.{random.choice(_ENDINGS)}"


def _made_up(random: Random) -> str:
    while True:
        made = "".join(random.choice(_ONSETS) + random.choice(_VOWELS) for _ in range(random.choice((1, 2, 2, 3))))
        made += random.choice(_CODAS)
        if 3 <= len(made) <= 8:
            return made


def split_of_number(number: int) -> str:
    """Which half `number` belongs to; a fifth of all numbers is held out."""
    drawn = hashlib.blake2b(f"number {number}".encode(), digest_size=2).digest()[0]
    return HELD_OUT if drawn % 5 == 0 else TRAIN


def number(random: Random, split: str, least: int = LEAST, most: int = MOST) -> int:
    """A number of that half from `least` to `most`; there must be one."""
    while True:
        drawn = random.randint(least, most)
        if split_of_number(drawn) == split:
            return drawn


def numbers(random: Random, split: str, count: int) -> list[int]:
    """`count` different numbers."""
    drawn: dict[int, None] = {}
    while len(drawn) < count:
        drawn[number(random, split)] = None
    return list(drawn)
