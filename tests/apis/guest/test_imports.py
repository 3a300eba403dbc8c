"""The guest's modules can be loaded in any order: the office and the agent load them each in its own."""

from __future__ import annotations

import ast
import subprocess
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import apis.guest

FOLDER = Path(str(apis.guest.__file__)).parent


def imported(file: Path) -> set[str]:
    """The modules of the guest that a file imports when it is loaded."""
    found = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.ImportFrom)]
    named = {f"{node.module}.{alias.name}" for node in found for alias in node.names}
    return {name for name in named | {str(node.module) for node in found} if name.startswith("guest.")}


def test_no_module_needs_one_that_needs_it() -> None:
    files = {
        str(file.relative_to(FOLDER.parent).with_suffix("")).replace("/", "."): file for file in FOLDER.rglob("*.py")
    }
    needs = {name: imported(file) & files.keys() for name, file in files.items()}
    try:
        assert list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        raise AssertionError(f"modules import each other: {error.args[1]}") from error


HEAVY = {"PIL.Image", "pyte", "urllib.request", "logging", "dataclasses", "secrets", "shutil", "_hashlib"}


@pytest.mark.desktop
def test_an_agent_begins_without_what_most_desktops_never_need() -> None:
    began = "import sys; sys.path.insert(0, sys.argv[1]); import guest.agent, guest.screen.tree; print(*sys.modules)"
    said = subprocess.run(
        ["/usr/bin/python3", "-I", "-c", began, str(FOLDER.parent)], capture_output=True, text=True, check=True
    )
    assert HEAVY.isdisjoint(said.stdout.split())
