"""The product's size and its words. Numbers here only fall, but for a capability whose plan names its allowance.

`python -m tests.test_budget` prints the table as the tree stands.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOPS = ("actors", "apis", "deploy", "policy", "runtime")
LONGEST_FILE = 500

# Package: most lines, most files of Python, and of TOML that it reads.
BUDGET: dict[str, tuple[int, int]] = {
    "actors": (132, 3),
    "actors/cluster": (14068, 71),
    "actors/desktop": (10994, 47),
    "actors/entropulse": (810, 5),
    "actors/front": (1397, 10),
    "actors/learner": (2350, 10),
    "actors/replay": (6005, 28),
    "actors/sampler": (3101, 14),
    "apis": (941, 6),
    "apis/actions": (824, 6),
    "apis/apps": (742, 6),
    "apis/build": (328, 4),
    "apis/documents": (1614, 14),
    "apis/functions": (492, 3),
    "apis/guest": (11060, 65),
    "apis/plans": (203, 3),
    "apis/prompts": (472, 6),
    "apis/tasks": (6889, 40),
    "apis/tasksets": (2912, 13),
    "deploy": (184, 8),
    "policy": (3467, 17),
    "policy/base": (25, 1),
    "policy/engine": (2383, 11),
    "policy/megatron": (2425, 10),
    "policy/vision": (272, 3),
    "runtime": (2726, 15),
    "runtime/hosts": (2107, 9),
    "runtime/logs": (502, 4),
    "runtime/messaging": (570, 4),
}

# Comments that fight the formatter, and words that engineers elsewhere do not use: most uses in the product's Python.
WORDS: dict[str, int] = {
    "fmt: skip": 219,
    "told": 29,
    "anew": 0,
    "stands": 15,
    "beside": 32,
    "Invariant:": 151,
}


def product() -> list[Path]:
    """The product's files of Python and TOML."""
    return [path for top in TOPS for kind in ("py", "toml") for path in sorted((ROOT / top).rglob(f"*.{kind}"))]


def package(path: Path) -> str:
    """The package whose budget a file counts for: two levels of actors, apis and policy, else one."""
    parts = path.relative_to(ROOT).parts
    depth = 2 if parts[0] in ("actors", "apis", "policy", "runtime") and len(parts) > 2 else 1
    return "/".join(parts[:depth])


def sizes() -> tuple[Counter[str], Counter[str]]:
    """Lines and files by package."""
    lines, files = Counter[str](), Counter[str]()
    for path in product():
        lines[package(path)] += len(path.read_text().splitlines())
        files[package(path)] += 1
    return lines, files


def words() -> Counter[str]:
    """How often each counted word comes in the product's Python."""
    text = "\n".join(path.read_text() for path in product())
    counts = {word: len(re.findall(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE)) for word in WORDS}
    return Counter(counts)


@pytest.mark.parametrize("name", sorted(BUDGET))
def test_a_package_keeps_its_budget(name: str) -> None:
    lines, files = sizes()
    most_lines, most_files = BUDGET[name]
    assert lines[name] <= most_lines, (
        f"{name}: take out what the change replaces, or another {lines[name] - most_lines}"
    )
    assert files[name] <= most_files


def test_every_package_has_a_budget() -> None:
    assert set(sizes()[0]) == set(BUDGET)


def test_no_file_is_longer_than_can_be_read_at_once() -> None:
    long = {
        str(path.relative_to(ROOT)): n
        for path in product()
        if path.suffix == ".py" and (n := len(path.read_text().splitlines())) > LONGEST_FILE
    }
    assert not long


@pytest.mark.parametrize("word", sorted(WORDS))
def test_a_word_that_is_to_go_only_gets_rarer(word: str) -> None:
    assert words()[word] <= WORDS[word]


if __name__ == "__main__":
    lines, files = sizes()
    for name in sorted(lines):
        print(f'    "{name}": ({lines[name]}, {files[name]}),')  # noqa: T201 - to be pasted above
    for word, count in words().items():
        print(f'    "{word}": {count},')  # noqa: T201
    print(f"{sum(lines.values())} lines in {sum(files.values())} files")  # noqa: T201
