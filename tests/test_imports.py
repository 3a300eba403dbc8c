"""What modules import: nothing in a ring, of another actor its messages alone, no torch beside other actors."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[1]
TOPS = ("actors", "apis", "policy", "runtime")
ACTORS = ("desktop", "entropulse", "learner", "replay", "sampler")


@cache
def imports() -> dict[str, set[str]]:
    """By module, the modules of the product that it imports; imports for types count."""
    graph = grimp.build_graph(*TOPS, cache_dir=None)
    return {name: graph.find_modules_directly_imported_by(name) for name in graph.modules}


def circle() -> list[str]:
    """Modules that import each other in a ring, the first again at the end; none where there is no ring."""
    try:
        TopologicalSorter(imports()).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def actor_of(module: str) -> str:
    """The actor that a module belongs to; empty for one that belongs to none."""
    top, _, rest = module.partition(".")
    actor = rest.partition(".")[0]
    return actor if top == "actors" and actor in ACTORS else ""


def test_no_import_leads_back() -> None:
    assert len(imports()) > 300
    assert not circle(), " <- ".join(circle())


def test_an_actor_imports_of_another_one_only_its_messages() -> None:
    found = [
        f"{module}: {other}"
        for module, others in imports().items()
        for other in others
        if actor_of(module) and actor_of(other) not in ("", actor_of(module))
        if other.split(".")[2:3] != ["messages"]
    ]
    assert found == []


@pytest.mark.parametrize("module", ["actors.learner.actor", "actors.learner.config", "actors.learner.rank"])
@pytest.mark.slow
def test_the_learner_beside_all_other_actors_loads_no_tensor_library(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules or 'megatron' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
