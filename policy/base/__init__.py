"""The small base model that ships with the project, and exercises of the kind that it learned from."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

MODEL = Path(__file__).with_name("model")  # a Hugging Face folder
EXERCISES = 8192
_FILE = Path(__file__).with_name("exercises.npz")

Exercise = tuple[list[int], list[tuple[int, int]]]  # ids, and the ranges [start, end) of them that are trained on


class Corpus:
    """The exercises, in ids of the base model's vocabulary. The base model was not trained on these."""

    def __init__(self) -> None:
        with np.load(_FILE) as stored:
            self._ids = np.split(stored["ids"], stored["lengths"].cumsum()[:-1])
            self._spans = np.split(stored["spans"].reshape(-1, 2), stored["counts"].cumsum()[:-1])

    def take(self, numbers: Sequence[int]) -> list[Exercise]:
        """The exercises of these numbers, each below `EXERCISES`."""
        return [(self._ids[n].tolist(), [(start, end) for start, end in self._spans[n].tolist()]) for n in numbers]
