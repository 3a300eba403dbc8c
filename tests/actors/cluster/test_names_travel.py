"""A setting keeps its name wherever it travels: from the deploy file into actors' settings, messages and plans."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# File -> names of what holds settings there.
CARRIERS = {
    "actors/cluster/runs/compose.py": ("deploy",),
    "actors/cluster/config/schema.py": ("prompt",),
    "actors/learner/broadcast.py": ("settings",),
    "actors/replay/ledger/episodes.py": ("tx.settings", "tx.rules"),
    "actors/replay/database/transaction.py": ("self.settings", "self.rules"),
    "actors/entropulse/actor.py": ("self.config",),
}
# (Field, setting) that differ on purpose, and why.
OTHERWISE = {
    ("adapters", "deploy.weight_sync.transport"): "whether adapters are what travels",
    ("rules", "deploy.replay"): "a section as a whole; `replay` is the ledger's actor in every settings",
    ("tasks", "self.config.eval_tasks"): "a round has no other tasks",
}


def chain(node: ast.expr) -> str | None:
    """`a.b.c` of names and attributes, else None."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (head := chain(node.value)) is not None:
        return f"{head}.{node.attr}"
    return None


def aliases(function: ast.AST, roots: tuple[str, ...]) -> dict[str, str]:
    """Local name -> the setting that it stands for."""
    found: dict[str, str] = {}
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            pairs = [(target, node.value)]
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = list(zip(target.elts, node.value.elts, strict=True))
            for name, value in pairs:
                path = chain(value)
                if isinstance(name, ast.Name) and path is not None and is_setting(path, roots):
                    found[name.id] = path
    return found


def makes(call: ast.Call) -> bool:
    """Whether it makes settings, a message or a plan."""
    name = (chain(call.func) or "").rpartition(".")[2]
    return name[:1].isupper() or name == "replace"


def is_setting(path: str, roots: tuple[str, ...]) -> bool:
    return any(path.startswith(f"{root}.") for root in roots)


def carried(source: str, roots: tuple[str, ...]) -> Iterator[tuple[str, str, int]]:
    """Field, setting and line of each setting that a struct is made with, as it is or compared with something."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        known = aliases(function, roots)
        for call in ast.walk(function):
            for keyword in call.keywords if isinstance(call, ast.Call) and makes(call) else ():
                value = keyword.value.left if isinstance(keyword.value, ast.Compare) else keyword.value
                path = chain(value)
                if path is None or keyword.arg is None:
                    continue
                head, _, rest = path.partition(".")
                path = f"{known[head]}.{rest}".removesuffix(".") if head in known else path
                if is_setting(path, roots):
                    yield keyword.arg, path, call.lineno


@pytest.mark.parametrize("file", CARRIERS)
def test_a_setting_keeps_its_name_where_it_travels(file: str) -> None:
    found = list(carried((ROOT / file).read_text("utf-8"), CARRIERS[file]))
    assert found
    other = [
        f"{file}:{line}: {path} travels as {keyword}"
        for keyword, path, line in found
        if path.rpartition(".")[2] != keyword and (keyword, path) not in OTHERWISE
    ]
    assert other == []


def test_a_new_name_on_the_way_is_found() -> None:
    source = """
def plan(deploy):
    engine, phases = deploy.samplers, deploy.entropulse
    heat = deploy.sampling.temperature
    return Ledger(apart=engine.sglang, keeps=phases.pulse == "reset", signal=deploy.learner.advantage, warmth=heat,
                  temperature=heat, pulse=phases.pulse)
"""
    wrong = [(keyword, path) for keyword, path, _ in carried(source, ("deploy",)) if path.split(".")[-1] != keyword]
    assert wrong == [
        ("apart", "deploy.samplers.sglang"), ("keeps", "deploy.entropulse.pulse"),
        ("signal", "deploy.learner.advantage"), ("warmth", "deploy.sampling.temperature"),
    ]  # fmt: skip
