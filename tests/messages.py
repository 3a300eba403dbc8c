"""Sentences that users read, kept in one file: `messages.yaml`.

A test asks the fixture `message` whether a sentence is the stored one. Where only the key or file matters that an error
names, `match=` on that name is enough. After a change of wording:

    MESSAGES=write pytest -n 0 tests/policy    # rewrites the sentences of the tests that ran; look at the diff

`*` in a stored sentence stands for any text on one line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

FILE = Path(__file__).with_name("messages.yaml")
WRITE = os.environ.get("MESSAGES") == "write"
Stored = dict[str, dict[str, list[str]]]  # by file and test, in the order that the test asks


def stored() -> Stored:
    """All sentences."""
    return yaml.safe_load(FILE.read_text(encoding="utf-8")) or {}


class Messages:
    """The sentences of one test."""

    def __init__(self, file: str, test: str, places: dict[str, str]) -> None:
        self._file, self._test, self._places = file, test, places
        self._wanted = [] if WRITE else stored().get(file, {}).get(test, [])
        self._asked: list[str] = []

    def __call__(self, sentence: object) -> None:
        """Assert that this is the test's next stored sentence; the test's own folder reads `TMP`."""
        text = str(sentence)
        for place, name in self._places.items():
            text = text.replace(place, name)
        number = len(self._asked)
        self._asked.append(text)
        if WRITE:
            return
        assert number < len(self._wanted), f"messages.yaml has no sentence {number + 1} of {self._test}: {text!r}"
        wanted = self._wanted[number]
        pattern = ".*".join(map(re.escape, wanted.split("*")))
        assert re.fullmatch(pattern, text), f"{text!r} is not {wanted!r} of messages.yaml"

    @contextmanager
    def raised(self, kind: type[BaseException]) -> Iterator[pytest.ExceptionInfo[BaseException]]:
        """Within it an error of this kind is raised, with the next stored sentence."""
        with pytest.raises(kind) as caught:
            yield caught
        self(caught.value)

    def done(self) -> None:
        """Write what was asked, where that is wanted."""
        if WRITE and self._asked:
            kept = stored()
            kept.setdefault(self._file, {})[self._test] = self._asked
            ordered = {file: dict(sorted(tests.items())) for file, tests in sorted(kept.items())}
            FILE.write_text(yaml.safe_dump(ordered, sort_keys=False, allow_unicode=True, width=110), encoding="utf-8")


def of_test(request: pytest.FixtureRequest, folder: Path) -> Messages:
    """The sentences of the test that runs."""
    file, _, test = request.node.nodeid.partition("::")
    return Messages(file, test, {str(folder): "TMP"})
