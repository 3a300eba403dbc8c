"""Stored sentences belong to tests that exist, and a changed one is found."""

from __future__ import annotations

import re

import pytest

from tests import messages

ROOT = messages.FILE.parents[1]


def test_each_stored_sentence_has_its_test() -> None:
    for file, tests in messages.stored().items():
        source = (ROOT / file).read_text()
        for name in tests:
            function = re.split(r"\[", name.split("::")[-1])[0]
            assert f"def {function}(" in source, f"messages.yaml: {file} has no {function}"


@pytest.mark.skipif(messages.WRITE, reason="sentences are being written")
def test_another_sentence_and_one_too_many_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "stored", lambda: {"f": {"t": ["TMP/x: *: a.b is not c"]}})
    kept = messages.Messages("f", "t", {"/tmp/17": "TMP"})
    kept("/tmp/17/x: line 3: a.b is not c")
    with pytest.raises(AssertionError, match="no sentence 2"):
        kept("more")
    with pytest.raises(AssertionError, match="is not"):
        messages.Messages("f", "t", {})("TMP/x: 1: a.b is no c")
