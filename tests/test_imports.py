"""What modules hold: no ring of imports, of another actor its messages alone, no torch beside actors, no SQL."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import grimp
import pytest

from tests.invariants.product_code import PACKAGES, ROOT, naming, tree_of

ACTORS = ("desktop", "entropulse", "learner", "replay", "sampler")


@cache
def imports() -> dict[str, set[str]]:
    """By module, the modules of the product that it imports; imports for types count."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
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


# -- SQL is a matter of the ledger; one module reads what programs of a desktop have left in databases of their own

LEDGER = ROOT / "actors" / "replay"
OF_DESKTOPS = ROOT / "apis" / "documents" / "read" / "parse.py"
SQL = re.compile(
    r"\bSELECT\s.+\sFROM\s|\bINSERT\s+(OR\s+\w+\s+)?INTO\s|\bUPDATE\s+\w+\s+SET\s|\bDELETE\s+FROM\s"
    r"|\bCREATE\s+(TABLE|INDEX|VIEW|TRIGGER)\s|\bPRAGMA\s|\bBEGIN\s+(IMMEDIATE|EXCLUSIVE|DEFERRED)|^SELECT\s|^BEGIN;?$",
    re.DOTALL,
)


WORDS = ("SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "PRAGMA", "BEGIN", "sqlite3")


def found(path: Path) -> Iterator[str]:
    """SQL and imports of a database in a module."""
    for node in ast.walk(tree_of(path)):
        match node:
            case ast.Constant(value=str(text)) if SQL.search(text):
                yield text
            case ast.Import(names=names) if any(name.name.partition(".")[0] == "sqlite3" for name in names):
                yield "import sqlite3"
            case ast.ImportFrom(module="sqlite3"):
                yield "from sqlite3 import"


@pytest.mark.slow
def test_no_sql_outside_of_the_ledger() -> None:
    others = [path for path in naming(*WORDS) if not path.is_relative_to(LEDGER) and path != OF_DESKTOPS]
    outside = {str(path.relative_to(ROOT)): list(found(path)) for path in others}
    assert {path: sql for path, sql in outside.items() if sql} == {}
    assert list(found(LEDGER / "database" / "queries.py"))


def test_the_ledgers_file_is_named_once() -> None:
    named = naming('"ledger.sqlite"', '/ledger.sqlite"')
    assert [path.name for path in named] == ["ledger_file.py"]
