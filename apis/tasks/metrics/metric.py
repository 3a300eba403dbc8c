"""What a metric of published task files is, and how it is asked.

Invariant: a metric is a pure function of what was read. What the policy left behind never raises: it scores 0 with its
reason. What the task file itself has wrong is a ConfigError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from apis.documents.read import parse
from apis.documents.read.bounds import Bounds, RefusedError
from apis.tasks.metrics import rules
from apis.tasks.verify.verify import KINDS, FileView, bounded
from runtime.errors import ConfigError

SOLVED = 1.0
TEXT_MAX = 8 << 20  # bytes of a file that is read as text
DOCUMENT_MAX = 32 << 20  # bytes of an office file
# Kinds whose parsers are no Python, or have no bounds of their own: hostile bytes need their own process.
NATIVE = frozenset({"database", "workbook"})


class Score(msgspec.Struct, frozen=True):
    """How far a task is solved, from 0 to 1, and in a sentence why."""

    value: float
    reason: str

    @property
    def solved(self) -> bool:
        """Whether nothing is missing."""
        return self.value >= SOLVED


# A result or an expectation: of a getter of files a FileView, or a list of them where the getter names several; of a
# rule its `rules`; of a command its text; else the JSON value that the getter is known for.
Value = Any
Options = Mapping[str, Any]
Metric = Callable[[Value, Value, Options], Score]  # result, expected, options


class UnreadableResult(ValueError):  # noqa: N818 - what the policy left, not an error of the program
    """What a metric was to look at can't be looked at, with the reason."""


class Declared(msgspec.Struct, frozen=True):
    """A metric by its published name; where it differs from the published one, `instead` says how."""

    name: str
    run: Metric
    instead: str = ""
    reads: str = "bytes"  # what a file of the desktop is read as, in a process of its own: bytes, or one of `KINDS`
    lacks: Callable[[Options], str] = lambda _: ""  # which of the published options is not here, "" where all are
    differs: Callable[[Options], bool] = lambda _: False  # whether a right result is another than what is expected
    types: frozenset[str] = frozenset()  # what a rule's `type` may say; empty where it says nothing

    def lacking(self, options: Options, rule: Any = None) -> str:
        """Which option, type of rule or method of these is not here; "" where all are. Names with a "_" say nothing."""
        asked = {name: value for name, value in options.items() if not name.startswith("_")}
        return self.lacks(asked) or lacking_rule(self.types, rule) or lacking_rule(frozenset(), options)


def lacking_rule(types: frozenset[str], rule: Any) -> str:
    """Of a task's rule the type that is none of `types`, or the method that is not known; "" where all are."""
    kind = rule.get("type") if isinstance(rule, dict) else None
    if types and kind not in types:
        return f"rule type {kind}"
    return next((f"method {method}" for method in _methods(rule) if not rules.known(method)), "")


def _methods(rule: Any) -> Iterator[str]:
    """The methods that a rule names, however deep."""
    if isinstance(rule, dict):
        if isinstance(rule.get("method"), str) and "ref" in rule:
            yield rule["method"]
        for part in rule.values():
            yield from _methods(part)
    elif isinstance(rule, list):
        for part in rule:
            yield from _methods(part)


def is_(same: bool, yes: str, no: str) -> Score:
    """1 with the reason `yes`, or 0 with the reason `no`."""
    return Score(SOLVED, yes) if same else Score(0.0, no)


def data(value: Value, most: int = TEXT_MAX) -> bytes:
    """The bytes of a file. Raises UnreadableResult for anything else, and for more than `most` bytes."""
    if not isinstance(value, FileView):
        raise UnreadableResult("it is no file")
    found, trouble = bounded(value, most)
    if found is None:
        raise UnreadableResult(trouble)
    return found


def text(value: Value, most: int = TEXT_MAX) -> str:
    """A text as it is, or that of a file in UTF-8, lines ending in a newline alone. Raises UnreadableResult."""
    if isinstance(value, str):
        return value
    try:
        return data(value, most).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise UnreadableResult("it is not UTF-8 text") from None


def document(value: Value, kind: str) -> Any:
    """The document of `kind` (one of `KINDS`) in a file: read before, or from its bytes. Raises UnreadableResult.

    Bytes of the desktop are not read here as one of `NATIVE`.
    """
    if isinstance(value, FileView) and value.kind == kind:
        return getattr(value, kind)
    if kind in NATIVE and isinstance(value, FileView) and value.kind == "file" and not value.of_task:
        raise UnreadableResult(f"the desktop's file was not read as a {kind} in a process of its own")
    try:
        return msgspec.convert(parse.PARSERS[kind](data(value, DOCUMENT_MAX), Bounds()), KINDS[kind])
    except RefusedError as error:
        raise UnreadableResult(f"it can't be read as a {kind.replace('_', ' ')}: {error}") from None


def gold(value: Value, kind: str) -> Any:
    """The document that a task file expects. Raises LookupError where it is none: the task is at fault."""
    try:
        return document(value, kind)
    except UnreadableResult as error:
        raise LookupError(f"what is expected: {error}") from None


def gold_text(value: Value) -> str:
    """The text that a task file expects. Raises LookupError as `gold` does."""
    try:
        return text(value)
    except UnreadableResult as error:
        raise LookupError(f"what is expected: {error}") from None


def scored(metric: Declared, result: Value, expected: Value, options: Options) -> Score:
    """What `metric` gives `result`; 0 where it is unreadable. Raises ConfigError where the task's own part is wrong."""
    try:
        return metric.run(result, expected, options)
    except UnreadableResult as error:
        return Score(0.0, str(error))
    except TimeoutError:
        return Score(0.0, "a pattern takes too long to be looked for in it")
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ConfigError(f"{metric.name} can't take this task's expectation: {error}") from error


def together(scores: list[Score], conj: str) -> Score:
    """The score of several metrics: the best of them with "or"; with "and" 0 as soon as there is a 0, else the mean.

    As published: `DesktopEnv.evaluate`.
    """
    if conj == "or":
        return max(scores, key=lambda score: score.value)
    lowest = min(scores, key=lambda score: score.value)
    if lowest.value <= 0:
        return lowest
    return Score(sum(score.value for score in scores) / len(scores), lowest.reason)
