"""Looks at a generated function without running it, and makes the mutants that its cases have to notice."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from typing import Any

MUTANTS_MAX = 8
MUTANT_CHARS = 20_000  # the host takes no longer one
REFUSED_NAMES = frozenset(
    "eval exec compile getattr setattr delattr globals locals vars breakpoint input help exit quit memoryview".split()  # noqa: SIM905
)
# Attributes, and parts of modules, that lead out of the modules allowed, or end the process.
REFUSED_PARTS = frozenset(("sys", "os", "builtins", "bltns", "modules", "gi", "kill", "abort", "fork", "eval", "exec"))
INNER = ("_", "f_", "gi_", "cr_", "ag_", "tb_", "co_")


def examined(source: str, name: str, params: list[str], imports: list[str]) -> dict[str, Any]:
    """What is wrong with the source of function `name`, and its mutants: [what was changed, source]."""
    try:
        tree = ast.parse(source)
        wrong = [text[:200] for text in problems(tree, name, params, imports)][:8]
        changed = [] if wrong else mutants(tree, name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        wrong, changed = [f"it is no Python, or too deep: {str(error)[:200]}"], []
    if any(len(text) > MUTANT_CHARS for _, text in changed):
        wrong, changed = ["it is too long"], []
    return {"wrong": wrong, "mutants": changed}


def problems(tree: ast.Module, name: str, params: list[str], imports: list[str]) -> Iterator[str]:
    """Why a source is not taken."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        plain = isinstance(node, ast.FunctionDef | ast.Import | ast.ImportFrom)
        if not plain and not (isinstance(node, ast.Assign) and _constant(node.value)) and not _docstring(node):
            yield f"line {node.lineno}: a source has imports, constants and functions alone"
    if name not in functions:
        yield f"it defines no function {name}"
    elif [each.arg for each in functions[name].args.args] != params or _others(functions[name].args):
        yield f"{name} takes exactly these parameters, in this order: {', '.join(params) or 'none'}"
    for node in ast.walk(tree):
        yield from _named(node, imports)


def _named(node: ast.AST, imports: list[str]) -> Iterator[str]:
    modules: list[str] = []
    parts: list[str] = []
    if isinstance(node, ast.Import):
        modules = [each.name for each in node.names]
    elif isinstance(node, ast.ImportFrom):
        modules, parts = [node.module or "."], [each.name for each in node.names]
    elif isinstance(node, ast.Attribute):
        parts = [node.attr]
        if not isinstance(node.ctx, ast.Load):
            yield f"changes {node.attr}"
    for module in modules:
        if module.partition(".")[0] not in imports:
            yield f"imports {module}; allowed: {', '.join(imports)}"
    if isinstance(node, ast.Name) and (node.id in REFUSED_NAMES or node.id.startswith("__")):
        yield f"uses {node.id}"
    for part in parts:
        if part in REFUSED_PARTS or part.startswith(INNER):
            yield f"uses {part}"
    if isinstance(node, ast.AsyncFunctionDef | ast.ClassDef | ast.Global | ast.Nonlocal | ast.MatchClass):
        yield f"uses {type(node).__name__}"


def _others(args: ast.arguments) -> bool:
    return bool(args.posonlyargs or args.kwonlyargs or args.vararg or args.kwarg)


def _docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


_PLAIN = (ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.expr_context, ast.UnaryOp, ast.USub)


def _constant(node: ast.expr) -> bool:
    return all(isinstance(each, _PLAIN) for each in ast.walk(node))


def mutants(tree: ast.Module, name: str) -> list[list[str]]:
    """Sources with one change each: the body does nothing, lacks its last call, or has one decision changed."""
    made = [["does nothing", _empty(tree, name)]]
    made += [[label, source] for label, source in _without_last_call(tree, name)]
    for change in CHANGES:
        made += [[label, source] for label, source in _changed(tree, *change)]
    unique = {source: label for label, source in reversed(made)}
    same = ast.unparse(tree)
    changed = [[label, source] for source, label in reversed(unique.items()) if source != same or label == made[0][0]]
    return changed[:MUTANTS_MAX]


def _function(tree: ast.Module, name: str) -> ast.FunctionDef:
    return next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)


def _empty(tree: ast.Module, name: str) -> str:
    other = copy.deepcopy(tree)
    _function(other, name).body = [ast.Return(ast.Constant("done"))]
    return ast.unparse(ast.fix_missing_locations(other))


def _without_last_call(tree: ast.Module, name: str) -> Iterator[tuple[str, str]]:
    other = copy.deepcopy(tree)
    bodies = [node.body for node in ast.walk(_function(other, name)) if isinstance(getattr(node, "body", None), list)]
    lines = [(body, each) for body in bodies for each in body if isinstance(each, ast.Expr)]
    calls = [pair for pair in lines if any(isinstance(part, ast.Call) for part in ast.walk(pair[1]))]
    if calls:
        body, last = max(calls, key=lambda pair: pair[1].lineno)
        body[body.index(last)] = ast.Pass()
        yield f"lacks the call of line {last.lineno}", ast.unparse(ast.fix_missing_locations(other))


def _changed(tree: ast.Module, kind: type, wanted: Any, change: Any, label: str) -> Iterator[tuple[str, str]]:
    places = [number for number, node in enumerate(ast.walk(tree)) if isinstance(node, kind) and wanted(node)]
    for number in places[:2]:
        other = copy.deepcopy(tree)
        node = next(each for at, each in enumerate(ast.walk(other)) if at == number)
        change(node)
        yield f"{label} in line {getattr(node, 'lineno', 0)}", ast.unparse(other)


def _one_more(node: Any) -> None:
    node.value += 1


_PAIRS = ((ast.Eq, ast.NotEq), (ast.Lt, ast.GtE), (ast.Gt, ast.LtE), (ast.In, ast.NotIn), (ast.Is, ast.IsNot))
_OPPOSITE = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}


def _turn(node: Any) -> None:
    node.ops[0] = _OPPOSITE[type(node.ops[0])]()


def _two(node: Any) -> bool:
    return len(node.args) == 2 and ast.dump(node.args[0]) != ast.dump(node.args[1])


# The kind of node, which of them, what is done to it, and how that is called.
CHANGES: tuple[tuple[type, Any, Any, str], ...] = (
    (ast.Call, _two, lambda node: node.args.reverse(), "two arguments change places"),
    (ast.Constant, lambda node: type(node.value) is int, _one_more, "a number is one more"),
    (ast.Compare, lambda node: len(node.ops) == 1, _turn, "a comparison is turned"),
)
