"""Small changes of a module's source, each of which its tests should notice.

Invariant: pure and in order of the source, so that a seed names the same mutants each time; every mutant parses and
says something else than the source. Only what runs inside functions is changed, and neither docstrings, annotations,
assertions nor what is logged or said in an error: those are no decisions.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass

SWAPPED = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "is": "is not", "is not": "is", "in": "not in",
    "not in": "in", "and": "or", "or": "and", "+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "*",
}  # fmt: skip
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "minimum": "maximum", "maximum": "minimum"}
SYMBOLS = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is",
    ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in", ast.And: "and", ast.Or: "or", ast.Add: "+", ast.Sub: "-",
    ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
}  # fmt: skip
SQL = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE)\b")
# What is swapped in a statement; equality only where it chooses rows.
IN_SQL = {
    " < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > ", " != ": " = ", " AND ": " OR ", " OR ": " AND ",
    "MAX(": "MIN(", "MIN(": "MAX(", "max(": "min(", "min(": "max(", " DESC": "", " NOT IN ": " IN ",
    "IS NULL": "IS NOT NULL", "IS NOT NULL": "IS NULL", " + 1": " - 1", " = ": " != ",
}  # fmt: skip
CHOOSES = re.compile(r"\b(WHERE|ON|WHEN)\b")
UNSAID = ("emit",)  # calls whose only effect is a line in a log


@dataclass(frozen=True, order=True)
class Mutant:
    """One change. Names of places hold without line numbers, so that they stay when a file grows."""

    start: int  # bytes of the source that are replaced
    end: int
    put: bytes
    function: str  # qualified name
    before: str  # the line where it begins, stripped, and what it becomes
    after: str

    def of(self, source: bytes) -> bytes:
        """The mutated source."""
        return source[: self.start] + self.put + source[self.end :]


def mutants(source: bytes) -> list[Mutant]:
    """All mutants of a module, in order of their places."""
    tree = ast.parse(source)
    walk = _Walk(source)
    walk.visit(tree)
    same = ast.dump(tree)
    found = []
    for one in sorted(walk.found):
        try:
            changed = ast.parse(one.of(source))
        except SyntaxError:  # a name that happens to look like a statement's part
            continue
        if ast.dump(changed) != same:
            found.append(one)
    return found


class _Walk(ast.NodeVisitor):
    def __init__(self, source: bytes) -> None:
        self._source = source
        self._lines = [0]
        for line in source.split(b"\n"):
            self._lines.append(self._lines[-1] + len(line) + 1)
        self._names: list[str] = []
        self._functions = 0
        self.found: list[Mutant] = []

    # -- where

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.stmt) -> int:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._lines[node.end_lineno - 1] + node.end_col_offset

    def _put(self, start: int, end: int, put: str) -> None:
        if not self._functions:
            return
        text = put.encode()
        first = self._source.rfind(b"\n", 0, start) + 1
        last = self._source.find(b"\n", end)
        before = self._source[first : self._source.find(b"\n", start)]
        after = (self._source[first:start] + text + self._source[end:last]).split(b"\n")[0]
        self.found.append(
            Mutant(start, end, text, ".".join(self._names), before.decode().strip(), after.decode().strip())
        )

    def _between(self, left: ast.expr, right: ast.expr, symbol: str) -> None:
        """Swap the operator that stands between two operands."""
        start, end = self._end(left), self._start(right)
        word = symbol.replace(" ", r"\s+") if symbol[0].isalpha() else re.escape(symbol)
        found = re.search(rf"\b{word}\b" if symbol[0].isalpha() else word, self._source[start:end].decode())
        if found is not None and symbol in SWAPPED:
            self._put(start + found.start(), start + found.end(), SWAPPED[symbol])

    # -- what

    def _scope(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, functions: int) -> None:
        self._names.append(node.name)
        self._functions += functions
        for statement in node.body:
            self.visit(statement)
        self._functions -= functions
        self._names.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._scope(node, 1)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._scope(node, 1)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._scope(node, 0)

    def visit_Assert(self, node: ast.Assert) -> None:
        """What can't be otherwise."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._delete(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call) and not _said(call):
            self._delete(node)
            self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._delete(node)
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._delete(node)

    def visit_Break(self, node: ast.Break) -> None:
        self._delete(node)

    def _delete(self, node: ast.stmt) -> None:
        self._put(self._start(node), self._end(node), "pass")

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for left, operator, right in zip(operands, node.ops, operands[1:], strict=False):
            self._between(left, right, SYMBOLS[type(operator)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, SYMBOLS[type(node.op)])
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in SYMBOLS and not isinstance(node.left, ast.Constant | ast.JoinedStr):
            self._between(node.left, node.right, SYMBOLS[type(node.op)])
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        negative = isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant)
        if isinstance(node.op, ast.Not) or negative:
            self._put(self._start(node), self._start(node.operand), "")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in NAMES:
            end = self._end(node.func)
            self._put(end - len(name), end, NAMES[name])
        if not _said(node):
            self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":  # of `zip`: an assertion
            self.visit(node.value)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._put(self._start(node), self._end(node), str(not node.value))
        elif isinstance(node.value, int | float):
            self._put(self._start(node), self._end(node), repr(node.value + 1))
        elif isinstance(node.value, str):
            self._statement(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        self._statement(node)

    def _statement(self, node: ast.expr) -> None:
        """A database's statement; other texts are no decisions."""
        start = self._start(node)
        text = self._source[start : self._end(node)].decode()
        if not SQL.search(text):
            return
        for old, new in IN_SQL.items():
            for found in re.finditer(rf"(?<!NOT){re.escape(old)}" if old == " IN " else re.escape(old), text):
                if old != " = " or CHOOSES.search(text[: found.start()]):
                    at = start + len(text[: found.start()].encode())
                    self._put(at, at + len(old.encode()), new)


def _said(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in UNSAID
