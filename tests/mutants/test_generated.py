"""What is mutated, what is not, and when survivors make the verdict bad."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from areas import AREAS
from generated import CAUGHT, ROOT, SURVIVED, UNREACHED, Found, Place, drawn, judge, read_accepted
from mutate import mutants

SOURCE = b'''
"""No decision: 1 < 2."""
MOST = 3


class Taken:
    least: int = 4

    def fits(self, size: int = 5) -> bool:
        """Whether 1 < 2."""
        assert size < 6
        if not size or size >= self.least and size != MOST:
            raise ValueError(f"{size} is not {7 + 8}")
        log.emit(EVENT, size=9)
        self.count += 1
        self.keep(min(size, -self.least))
        rows = db.rows("SELECT a FROM b WHERE c = ? AND d < ?", zip(x, y, strict=True))
        return "a < b", rows is None
'''


def test_no_test_that_catches_mutants_is_left_to_the_longer_proofs() -> None:
    named = {ROOT / file for modules in AREAS.values() for files in modules.values() for file in files}
    tests = named | set((ROOT / "tests/invariants").glob("test_*.py"))
    assert [path.name for path in sorted(tests) if re.search(r"mark\.proof|proofs\(", path.read_text())] == []


def test_decisions_inside_functions_are_mutated_and_nothing_else() -> None:
    changes = {(one.before, one.after) for one in mutants(SOURCE)}
    condition = "if not size or size >= self.least and size != MOST:"
    expected = {
        condition: [
            "if size or size >= self.least and size != MOST:",
            "if not size and size >= self.least and size != MOST:",
            "if not size or size > self.least and size != MOST:",
            "if not size or size >= self.least or size != MOST:",
            "if not size or size >= self.least and size == MOST:",
        ],
        'raise ValueError(f"{size} is not {7 + 8}")': ["pass"],
        "self.count += 1": ["pass", "self.count += 2"],
        "self.keep(min(size, -self.least))": [
            "pass", "self.keep(max(size, -self.least))", "self.keep(min(size, self.least))",
        ],
        'rows = db.rows("SELECT a FROM b WHERE c = ? AND d < ?", zip(x, y, strict=True))': [
            'rows = db.rows("SELECT a FROM b WHERE c != ? AND d < ?", zip(x, y, strict=True))',
            'rows = db.rows("SELECT a FROM b WHERE c = ? OR d < ?", zip(x, y, strict=True))',
            'rows = db.rows("SELECT a FROM b WHERE c = ? AND d <= ?", zip(x, y, strict=True))',
        ],
        'return "a < b", rows is None': ['return "a < b", rows is not None'],
    }  # fmt: skip
    assert changes == {(before, after) for before, afters in expected.items() for after in afters}
    assert {one.function for one in mutants(SOURCE)} == {"Taken.fits"}


@pytest.mark.slow
def test_a_seed_draws_the_same_mutants_and_another_one_others() -> None:
    found = mutants((ROOT / "policy/packing.py").read_bytes())
    assert drawn("a", found, None, 1) == found
    assert drawn("a", found, 5, 1) == drawn("a", found, 5, 1) != drawn("a", found, 5, 2)
    assert len(drawn("a", found, 5, 1)) == 5


def of(outcome: str, line: str) -> Found:
    return Found("losses", Place("m.py", "f", line, "pass"), outcome, 0.1)


def test_a_survivor_needs_a_reason_and_a_reason_a_survivor() -> None:
    places = {line: Place("m.py", "f", line, "pass") for line in "abc"}
    good = [of(CAUGHT, "a")] * 9 + [of(SURVIVED, "b")]
    assert judge(good, {places["b"]: "why"}, set(places.values()), complete=True) == []
    assert "1 mutants survive" in judge(good, {}, set(places.values()), complete=True)[0]
    stale = judge(
        good, {places["b"]: "why", Place("m.py", "f", "d", "pass"): "why"}, set(places.values()), complete=False
    )
    assert [line.partition(":")[0] for line in stale] == ["accepted.txt names what is no mutant any more"]
    needless = judge(good, {places["b"]: "why", places["a"]: "why"}, set(places.values()), complete=True)
    assert [line.partition(":")[0] for line in needless] == ["accepted.txt gives a reason for what is caught"]
    few = judge([of(CAUGHT, "a")] * 8 + [of(SURVIVED, "b")], {places["b"]: "why"}, set(places.values()), complete=True)
    assert few == ["losses: 8 of 9 are caught, less than 90%"]
    part = [of(CAUGHT, "a"), *[of(UNREACHED, "c")] * 2]
    assert judge(part, {}, set(places.values()), complete=False) == []
    assert judge(part[1:], {}, set(places.values()), complete=False) == [
        "the time was over before a mutant had been run"
    ]


def test_every_module_of_an_area_and_its_tests_are_there() -> None:
    named = [one for of_area in AREAS.values() for file, tests in of_area.items() for one in (file, *tests)]
    assert [one for one in named if not (ROOT / one).is_file()] == []


@pytest.mark.parametrize("text", ["m.py f\n- a\n+ b\n= ", "m.py f\n- a\n= b\n+ why", "m.py f\n- a\n+ b"])
def test_what_is_no_reason_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        read_accepted(text)


@pytest.mark.parametrize("patch", sorted((ROOT / "tests" / "mutants").glob("*.patch")), ids=lambda patch: patch.stem)
def test_each_patch_applies_to_the_code_of_today(patch: Path) -> None:
    said = subprocess.run(
        ["git", "apply", "--check", "--whitespace=nowarn", str(patch)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 0, said.stderr
