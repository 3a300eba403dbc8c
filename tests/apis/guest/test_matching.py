"""Regular expressions of a model: found as Python finds them, or ended with their process."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis.guest.matching import MOST, Match, Unmatched, matched, search

TEXTS = st.lists(st.text("ab \n\u00e9\U0001f600", max_size=12), max_size=5)


@given(TEXTS, st.sampled_from(["a", "(a)(b)?", "^", "$", "b*", r"\s+", "[^a]+"]), st.sampled_from(["", "x", r"\g<0>y"]))
def test_matches_are_those_of_a_substitution(texts: list[str], pattern: str, new: str) -> None:
    found = search(pattern, new, texts)
    for at, text in enumerate(texts):
        said = text
        for match in reversed([each for each in found if each.at == at]):
            said = said[: match.start] + str(match.new) + said[match.end :]
        assert said == re.sub(pattern, new, text)
    only = [Match(each.at, each.start, each.end, None) for each in found if each.start < each.end]
    assert search(pattern, None, texts) == only


@pytest.mark.parametrize(
    ("pattern", "replacement", "said"),
    [
        ("(", None, "pattern: '(' is no regular expression: missing ), unterminated subpattern"),
        ("a{9999999999999}", None, "pattern: 'a{9999999999999}' is no regular expression"),
        ("(?a)(?u)x", None, "pattern: '(?a)(?u)x' is no regular expression: ASCII and UNICODE flags are incompatible"),
        ("a", r"\1", "replacement: invalid group reference 1"),
        ("a", r"\q", "replacement: bad escape"),
        ("a", "\\", "replacement: bad escape"),
        ("", None, ""),
        ("x*", "y" * 3000, "replacement: more than 200000 characters in all"),
    ],
)
def test_says_which_argument_is_wrong(pattern: str, replacement: str | None, said: str) -> None:
    if not said:
        assert search(pattern, replacement, ["a"]) == []
        return
    with pytest.raises(Unmatched, match=f"^{re.escape(said)}"):
        search(pattern, replacement, ["a" * 100])


def test_matches_are_bounded() -> None:
    with pytest.raises(Unmatched, match=f"^pattern: it matches in more than {MOST} places"):
        search("a", None, ["a" * MOST, "a"])


def test_a_search_that_never_ends_ends_with_its_process() -> None:
    assert matched("b", None, ["ab"]) == [Match(0, 1, 2, None)]
    assert matched(r"(\w)", r"\1\n", ["\U0001f600e"]) == [Match(0, 1, 2, "e\n")]
    began = time.monotonic()
    with pytest.raises(Unmatched, match=r"^pattern: matching took longer than 0.2 s: write a simpler expression$"):
        matched("(a+)+$", None, ["a" * 60 + "b"], limit_s=0.2)
    assert time.monotonic() - began < 20
    with pytest.raises(Unmatched, match=r"^pattern: '\(' is no"):
        matched("(", None, ["ab"])


def test_a_search_that_takes_too_much_memory_ends_with_its_process() -> None:
    with pytest.raises(Unmatched, match=r"^pattern: matching took too much memory"):
        matched("((((((((.|a)*)*)*)*)*)*)*)*x", None, ["a" * 4_000_000], limit_s=60)
