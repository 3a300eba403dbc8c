"""What is to be mutated and its tests are there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.mutants.areas import AREAS
from tests.mutants.generated import ROOT


def test_no_test_that_catches_mutants_is_left_to_the_longer_proofs() -> None:
    named = {ROOT / file for modules in AREAS.values() for files in modules.values() for file in files}
    tests = named | set((ROOT / "tests/invariants").glob("test_*.py"))
    assert [path.name for path in sorted(tests) if re.search(r"mark\.proof|proofs\(", path.read_text())] == []


def test_every_module_of_an_area_and_its_tests_are_there() -> None:
    named = [one for of_area in AREAS.values() for file, tests in of_area.items() for one in (file, *tests)]
    assert [one for one in named if not (ROOT / one).is_file()] == []


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
