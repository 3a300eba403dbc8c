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
REFUSED_NODES = (ast.AsyncFunctionDef, ast.ClassDef, ast.Global, ast.Nonlocal, ast.MatchClass)
_PLAIN = (ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.expr_context, ast.UnaryOp, ast.USub)


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
    functions = {node.name: node.args for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        constant = isinstance(node, ast.Assign | ast.Expr) and all(isinstance(x, _PLAIN) for x in ast.walk(node.value))
        if not constant and not isinstance(node, ast.FunctionDef | ast.Import | ast.ImportFrom):
            yield f"line {node.lineno}: a source has imports, constants and functions alone"
    if name not in functions:
        yield f"it defines no function {name}"
    elif not _takes(functions[name], params):
        yield f"{name} takes exactly these parameters, in this order: {', '.join(params) or 'none'}"
    for each in ast.walk(tree):
        yield from _of_node(each, imports)


def _takes(arguments: ast.arguments, params: list[str]) -> bool:
    other = arguments.posonlyargs, arguments.vararg, arguments.kwonlyargs, arguments.kwarg
    return [each.arg for each in arguments.args] == params and not any(other)


def _of_node(node: ast.AST, imports: list[str]) -> Iterator[str]:
    parts: list[str] = []
    if isinstance(node, ast.Import | ast.ImportFrom):
        names = [each.name for each in node.names]
        modules, parts = (names, []) if isinstance(node, ast.Import) else ([node.module or "."], names)
        strange = [module for module in modules if module.partition(".")[0] not in imports]
        yield from (f"imports {module}; allowed: {', '.join(imports)}" for module in strange)
    elif isinstance(node, ast.Attribute):
        parts = [node.attr]
        if not isinstance(node.ctx, ast.Load):
            yield f"changes {node.attr}"
    elif isinstance(node, ast.Name) and (node.id in REFUSED_NAMES or node.id.startswith("__")):
        yield f"uses {node.id}"
    elif isinstance(node, REFUSED_NODES):
        yield f"uses {type(node).__name__}"
    yield from (f"uses {part}" for part in parts if part in REFUSED_PARTS or part.startswith(INNER))


def mutants(tree: ast.Module, name: str) -> list[list[str]]:
    """Sources with one change each: the body does nothing, lacks its last call, or has one decision changed."""
    same, made = ast.unparse(tree), {}
    nodes: list[Any] = list(ast.walk(tree))
    for label, wanted, which, change in CHANGES:
        places = [at for at, node in enumerate(nodes) if wanted(node, name)]
        for at in sorted(places, key=lambda at: nodes[at].lineno)[which]:
            node = list(ast.walk(other := copy.deepcopy(tree)))[at]
            change(node)
            source = ast.unparse(ast.fix_missing_locations(other))
            if source != same or not made:  # a body that does nothing has itself to be tried
                made.setdefault(source, label.format(nodes[at].lineno))
    return [[label, source] for source, label in made.items()][:MUTANTS_MAX]


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == name


def _calls(node: ast.AST, _: str) -> bool:
    return isinstance(node, ast.Expr) and any(isinstance(part, ast.Call) for part in ast.walk(node))


def _two(node: Any, _: str) -> bool:
    return isinstance(node, ast.Call) and len(node.args) == 2 and ast.dump(node.args[0]) != ast.dump(node.args[1])


def _more(node: Any) -> None:
    node.value += 1


_PAIRS = ((ast.Eq, ast.NotEq), (ast.Lt, ast.GtE), (ast.Gt, ast.LtE), (ast.In, ast.NotIn), (ast.Is, ast.IsNot))
_OPPOSITE = {a: b for pair in _PAIRS for a, b in (pair, pair[::-1])}


def _turn(node: Any) -> None:
    node.ops[0] = _OPPOSITE[type(node.ops[0])]()


# What is done, to which nodes, to how many of them, and how.
CHANGES: tuple[tuple[str, Any, slice, Any], ...] = (
    ("does nothing", _is, slice(1), lambda node: setattr(node, "body", [ast.Return(ast.Constant("done"))])),
    ("lacks the call of line {}", _calls, slice(-1, None), lambda node: setattr(node, "value", ast.Constant(None))),
    ("two arguments change places in line {}", _two, slice(2), lambda node: node.args.reverse()),
    ("a number is one more in line {}", lambda node, _: type(getattr(node, "value", 0.0)) is int, slice(2), _more),
    ("a comparison is turned in line {}", lambda node, _: len(getattr(node, "ops", [])) == 1, slice(2), _turn),
)
