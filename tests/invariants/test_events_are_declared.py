"""Invariant 10: an event's name and fields are declared once; code and catalogue are held together."""

from __future__ import annotations

import ast
import importlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from runtime.errors import ProtocolError
from runtime.logs import events
from runtime.logs.events import RESERVED, declare, declare_struct
from runtime.logs.writer import host_log, log_file
from tests.invariants.product_code import ROOT, called, module_name, naming, place, tree_of

DECLARE = {f"{events.__name__}.{way.__name__}" for way in (declare, declare_struct)}


@dataclass(frozen=True)
class Declared:
    """`NAME = declare("event", "level", field=type, ...)` in a module."""

    event: str
    level: str
    fields: frozenset[str]
    where: str


def declarations() -> dict[tuple[str, str], Declared]:
    """(module, name) -> what is declared there. Fails on a declaration that is not a plain module-level constant."""
    found = {}
    for path in naming("declare"):
        for node in ast.walk(tree_of(path)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            if imported(path).get(node.func.id) not in DECLARE:
                continue
            outer = node.parent  # type: ignore[attr-defined]
            assert isinstance(outer, ast.Assign), f"{place(path, node)}: declare(...) is a module-level assignment"
            assert isinstance(outer.parent, ast.Module), place(path, node)  # type: ignore[attr-defined]
            (target,) = outer.targets
            event, level = (ast.literal_eval(argument) for argument in node.args[:2])
            assert isinstance(target, ast.Name)
            assert target.id.isupper(), f"{place(path, node)}: {target.id} is a constant"
            fields = frozenset(keyword.arg or "**" for keyword in node.keywords)
            if node.func.id == "declare_struct":
                name = ast.unparse(node.args[2])
                module, _, name = imported(path).get(name, f"{module_name(path)}.{name}").rpartition(".")
                fields = frozenset(getattr(importlib.import_module(module), name).__struct_fields__)
            assert "**" not in fields, f"{place(path, node)}: fields are written out"
            found[module_name(path), target.id] = Declared(
                event, level, fields, f"{path.relative_to(ROOT)}:{target.id}"
            )
    return found


@cache
def imported(path: Path) -> dict[str, str]:
    """Local name -> dotted name, from the file's import statements."""
    names = {}
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.asname or alias.name: alias.name for alias in node.names}
    return names


def resolve(path: Path, node: ast.expr) -> list[tuple[str, str]] | None:
    """The (module, constant) that an expression names; both of `A if x else B`; None for a variable."""
    if isinstance(node, ast.IfExp):
        branches = [resolve(path, node.body), resolve(path, node.orelse)]
        return None if None in branches else [found for branch in branches for found in branch or []]
    dotted = ast.unparse(node)
    head, _, rest = dotted.partition(".")
    if not dotted.replace("_", "").replace(".", "").isalnum() or not dotted.split(".")[-1].isupper():
        return None
    full = imported(path).get(head)
    if full is None:
        return [(module_name(path), dotted)]
    module, _, name = f"{full}.{rest}".rstrip(".").rpartition(".")
    return [(module, name)]


def emits(path: Path) -> list[ast.Call]:
    """All calls of a method called `emit`."""
    return [
        node
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and called(node) == "emit" and isinstance(node.func, ast.Attribute)
    ]


def is_relay(call: ast.Call) -> bool:
    """`log.emit(event, **fields)`: passes on what an `emit` elsewhere was given; checked when it runs."""
    return len(call.args) == 1 and all(keyword.arg in (None, "trace") for keyword in call.keywords)


@pytest.mark.slow
def test_events_are_declared_where_they_are_emitted():
    known, used, wrong = declarations(), set(), []
    for path in naming("emit"):
        for call in emits(path):
            names = resolve(path, call.args[0]) if call.args else None
            where = f"{place(path, call)} line {call.lineno}"
            if names is None:
                if not is_relay(call):
                    wrong.append(f"{where}: what is emitted is not a declared constant")
                continue
            given = {keyword.arg for keyword in call.keywords} - {"trace"}
            for name in names:
                declared = known.get(name)
                used.add(name)
                if declared is None:
                    wrong.append(f"{where}: {'.'.join(name)} is not declared")
                elif None not in given and given != declared.fields:
                    wrong.append(f"{where}: {declared.event} has fields {sorted(declared.fields ^ given)} of one side")
                elif None in given and not (given - {None}) <= declared.fields:
                    wrong.append(f"{where}: {declared.event} has no fields {sorted(given - {None} - declared.fields)}")
    assert wrong == []
    assert sorted(d.where for name, d in known.items() if name not in used) == [], "declared but never emitted"


@pytest.mark.slow
def test_events_are_declared_once():
    by_event: dict[str, list[str]] = {}
    for declared in declarations().values():
        by_event.setdefault(declared.event, []).append(declared.where)
    assert {event: where for event, where in by_event.items() if len(where) > 1} == {}
    assert len(by_event) > 10
    for declared in declarations().values():
        assert not declared.fields & RESERVED, declared.where


def test_events_are_declared_and_nothing_else_is_logged():
    """No other way to a log: no actor touches the standard logging."""
    engine = ROOT / "policy" / "engine"  # a program of its own; the sampler that starts it reads what it says
    # A library's own log, which a hostile file or client would fill.
    quiets = {ROOT / "apis" / "documents" / "read" / "pdf.py", ROOT / "runtime" / "http.py"}
    for path in naming("logging"):
        names = set(imported(path).values())
        if engine not in path.parents and path not in quiets:
            assert not {name for name in names if name.split(".")[0] == "logging"}, path


KNOWN = declare("invariant_test_event", "info", n=int)


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (KNOWN, {}),
        (KNOWN, {"n": "1"}),
        (KNOWN, {"n": 1, "m": 2}),
        (KNOWN, {"m": 1}),
        ("invariant_test_event", {"n": 1}),
    ],
)
def test_events_are_declared_or_refused_at_run_time(tmp_path, event, fields):
    log = host_log(tmp_path, "a")
    with pytest.raises(ProtocolError):
        log.emit(event, **fields)
    log.emit(KNOWN, n=1)
    log.close()
    (line,) = log_file(tmp_path, "a").read_text().splitlines()
    assert set(json.loads(line)) - RESERVED == {"n"}
