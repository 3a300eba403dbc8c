"""Docstrings are plain, the glossary is short, a public class's name has one meaning, stored sentences have a test.

Invariant: what is counted here needs no import of what it counts, so it takes a second.
"""

from __future__ import annotations

import ast
import functools
import itertools
import re
import tokenize
from collections import defaultdict
from pathlib import Path

import pytest

from tests import messages

ROOT = Path(__file__).resolve().parents[1]
TOPS = ("actors", "apis", "deploy", "policy", "runtime")
GUEST = "apis/guest"  # runs on desktops, imports no host module and has short names of its own
MOST_WORDS = 25  # in nine of ten sentences of a package's module docstrings
MOST_TERMS = 40
BANNED = re.compile(r"\b(?:whoever|nobody)\b", re.IGNORECASE)

PATHS = [path.relative_to(ROOT).as_posix() for top in TOPS for path in sorted((ROOT / top).rglob("*.py"))]


@functools.cache
def modules() -> dict[str, ast.Module]:
    """Every module of the program by its path. Each worker collects this file, and only the first test parses."""
    return {path: ast.parse((ROOT / path).read_text()) for path in PATHS}


def package(path: str) -> str:
    """The package that a module's docstring counts for."""
    parts = path.split("/")
    of_two = parts[0] == "actors" or parts[:2] in (["apis", "guest"], ["apis", "tasks"])
    return "/".join(parts[:2]) if of_two and len(parts) > 2 else parts[0]


PACKAGES = sorted({package(path) for path in PATHS})


def sentences(text: str) -> list[str]:
    """The sentences of a docstring. A paragraph and an entry of a list each end the sentence before."""
    blocks = re.split(r"\n\s*\n|\n\s*(?=[-*] |\d+\. )", text)
    found = itertools.chain.from_iterable(re.split(r"(?<=[.!?])\s+", block.strip()) for block in blocks)
    return [sentence for sentence in found if sentence]


def ninetieth(counts: list[int]) -> int:
    """The 90th percentile: nine of ten counts are at most that."""
    return sorted(counts)[max(0, -(-9 * len(counts) // 10) - 1)]


def docstrings(tree: ast.Module) -> list[str]:
    """The docstrings of a module, its classes and its functions."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, kinds)]


def comments(path: str) -> list[str]:
    """The comments of a module."""
    with (ROOT / path).open("rb") as file:
        return [token.string for token in tokenize.tokenize(file.readline) if token.type == tokenize.COMMENT]


def public_classes() -> dict[str, list[str]]:
    """Where the host side's public classes of each name stand."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, tree in modules().items():
        if package(path) == GUEST:
            continue
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path)
    return places


@pytest.mark.slow
@pytest.mark.parametrize("name", PACKAGES)
def test_module_docstrings_have_short_sentences(name: str) -> None:
    texts = {path: ast.get_docstring(tree) or "" for path, tree in modules().items() if package(path) == name}
    counts = {(path, text): len(text.split()) for path in texts for text in sentences(texts[path])}
    longest = sorted(counts, key=lambda key: -counts[key])[:5]
    listed = "\n".join(f"{counts[key]:3d} words, {key[0]}: {' '.join(key[1].split())}" for key in longest)
    assert ninetieth(list(counts.values()) or [0]) <= MOST_WORDS, f"the longest sentences of {name}:\n{listed}"


@pytest.mark.slow
@pytest.mark.parametrize("name", PACKAGES)
def test_docstrings_and_comments_name_their_subjects(name: str) -> None:
    said = [
        f"{path}: {' '.join(text.split())}"
        for path, tree in modules().items()
        if package(path) == name
        for text in [*docstrings(tree), *comments(path)]
        if BANNED.search(text)
    ]
    assert not said, "say who does it, in place of whoever and nobody:\n" + "\n".join(said)


@pytest.mark.slow
def test_two_public_classes_share_no_name() -> None:
    shared = {name: places for name, places in public_classes().items() if len(places) > 1}
    assert not shared, f"a name has one meaning; rename all of each but one: {shared}"


def test_the_glossary_is_short_and_has_one_row_for_each_term() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text().partition("\n## Glossary\n")[2]
    rows = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")][1:]
    terms = [term.strip() for row in rows for term in row.split(",")]
    assert 0 < len(terms) <= MOST_TERMS
    assert len(set(terms)) == len(terms)


def test_each_stored_sentence_has_its_test() -> None:
    for file, tests in messages.stored().items():
        source = (ROOT / file).read_text()
        for name in tests:
            function = re.split(r"\[", name.split("::")[-1])[0]
            assert f"def {function}(" in source, f"messages.yaml: {file} has no {function}"
