"""What is taken of a model's answers: interfaces, the text of a function, its cases, and plans of calls.

Invariant: an answer is data. JSON becomes declared values or is refused with a line for the model. Code stays text
here: it is neither parsed nor compiled, but looked at and run in a desktop alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from apis.built import CODE_BYTES, Api, BuiltFunction, Cases, Value
from apis.functions.values import fitted

ANSWER_BYTES = 64 << 10
T = TypeVar("T")


class AnswerRefusedError(ValueError):
    """An answer is not taken; the text says why, for the model."""


class _Interfaces(msgspec.Struct, forbid_unknown_fields=True):
    functions: Annotated[list[dict[str, Any]], Meta(max_length=40)]


class _Plans(msgspec.Struct, forbid_unknown_fields=True):
    plans: dict[int, Annotated[list[dict[str, Value]], Meta(max_length=4)]]


def block(answer: str, kind: str) -> str:
    """The text of the last fenced block of a kind. Raises AnswerRefusedError."""
    if len(answer.encode("utf-8", "surrogatepass")) > ANSWER_BYTES:
        raise AnswerRefusedError(f"an answer has at most {ANSWER_BYTES} bytes")
    blocks = re.findall(rf"^```{kind}[ \t]*\n(.*?)^```", answer, re.DOTALL | re.MULTILINE)
    if not blocks:
        raise AnswerRefusedError(f"give one ```{kind} block")
    return str(blocks[-1])


def code(answer: str) -> str:
    """The source in an answer. Raises AnswerRefusedError."""
    source = block(answer, "python")
    if len(source.encode("utf-8", "surrogatepass")) > CODE_BYTES:
        raise AnswerRefusedError(f"a function has at most {CODE_BYTES} bytes of code")
    if any(not c.isprintable() and c not in "\n\t" for c in source):
        raise AnswerRefusedError("the code has control characters")
    return source


def _decoded(answer: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(block(answer, "json").encode("utf-8", "surrogatepass"), type=kind)
    except AnswerRefusedError:
        raise
    except (ValueError, RecursionError) as error:
        raise AnswerRefusedError(f"the JSON is not of the form asked for: {str(error)[:200]}") from error


def interfaces(
    answer: str, exemplars: Iterable[str], taken: Collection[str]
) -> tuple[list[BuiltFunction], list[tuple[str, str]]]:
    """The interfaces of an answer, and those refused with their reasons. Raises AnswerRefusedError."""
    words = {word for text in exemplars for word in _words(text)}
    kept: list[BuiltFunction] = []
    refused: list[tuple[str, str]] = []
    for raw in _decoded(answer, _Interfaces).functions:
        try:
            made = msgspec.convert({**raw, "code": "", "cases": None}, BuiltFunction)
            if made.name in {*taken, *(each.name for each in kept)}:
                raise AnswerRefusedError("there is a function of this name")
            for name, takes in made.params.items():
                if own := _words(str(takes.default)) & words:
                    raise AnswerRefusedError(f"{name}: its default has {min(own)!r} of an exemplar: leave it out")
            kept.append(made)
        except ValueError as error:
            refused.append((str(raw.get("name", ""))[:60], str(error)[:200]))
    return kept, refused


def _words(text: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[^\W\d_]{6,}", text)}


def mended(answer: str, about: str, made: BuiltFunction, api: Api) -> BuiltFunction:
    """The function with the code or the cases of an answer, whichever was asked for. Raises AnswerRefusedError."""
    if about == "either":
        if "```python" in answer and "```json" in answer:
            raise AnswerRefusedError("an answer changes the code or the cases, and not both")
        about = "cases" if "```json" in answer else "code"
    if about == "code":
        return replace(made, code=code(answer))
    changed = replace(made, cases=_decoded(answer, Cases))
    try:
        replace(api, functions=[changed])  # they are of this function, and of what the profile reads
    except ValueError as error:
        raise AnswerRefusedError(str(error)) from error
    return changed


def plans(answer: str, made: BuiltFunction, api: Api, count: int) -> dict[int, list[dict[str, Any]]]:
    """By numbers of `count` tasks, from 1, the arguments of the calls that do them or a step of them.

    Raises AnswerRefusedError.
    """
    planned, function = _decoded(answer, _Plans).plans, made.function(api.owner)
    if strange := [number for number in planned if not 1 <= number <= count]:
        raise AnswerRefusedError(f"there is no task {strange[0]}")
    try:
        return {number: [fitted(function, given) for given in calls] for number, calls in planned.items() if calls}
    except ValueError as error:
        raise AnswerRefusedError(str(error)) from error
