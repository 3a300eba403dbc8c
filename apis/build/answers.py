"""A model's answers as typed and bounded values: interfaces, cases, and the text of a function.

Invariant: an answer is data. JSON becomes declared values or is refused with a line for the model. Code stays text: it
is neither parsed nor compiled here, but looked at and run in a desktop alone.
"""

# ruff: noqa: SIM905 - a list of words reads best as words

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from apis.apps.check.case import Case, Step
from apis.build.profile import Profile
from apis.functions.declaration import Function, Parameter, Tool
from apis.functions.values import Unfit, fit

ANSWER_BYTES, CODE_BYTES = 64 << 10, 8 << 10
T = TypeVar("T")
Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]{2,39}$")]
Sentence = Annotated[str, msgspec.Meta(min_length=4, max_length=300)]
Short = Annotated[str, msgspec.Meta(max_length=2000)]
# How many limits a parameter of each kind has, at least and at the most.
KINDS: Mapping[str, tuple[int, int]] = {
    "integer": (2, 2),
    "number": (2, 2),
    "boolean": (0, 0),
    "choice": (2, 30),
    "text": (1, 1),
    "line": (1, 1),
    "path": (0, 8),
    "folder": (0, 0),
    "cell": (0, 0),
    "range": (0, 0),
    "column": (0, 0),
}
NUMBERS = ("integer", "number", "text", "line")  # kinds whose limits are numbers
KEYWORDS = frozenset(
    "and as assert async await break class continue def del elif else except finally for from global if import in is "
    "lambda nonlocal not or pass raise return try while with yield app".split()
)


class AnswerRefusedError(Exception):
    """An answer is not taken; the text says why, for the model."""


class Interface(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A function as it is declared; `serves` are numbers of exemplars, from 1."""

    name: Name
    does: Sentence
    params: Annotated[dict[Name, Parameter], msgspec.Meta(max_length=6)] = {}
    serves: Annotated[list[int], msgspec.Meta(max_length=200)] = []

    def function(self, owner: str) -> Function:
        """The declaration that prompts, the grammar and calls read."""
        params = tuple(takes.named(name) for name, takes in self.params.items())
        return Function(owner, self.name, Tool, params, self.does)


class Effect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is read after a call, by a profile's name or in a file below HOME, and what it has to be."""

    read: str = ""
    file: Annotated[str, msgspec.Meta(max_length=200)] = ""
    equals: Short | None = None
    has: Annotated[list[Short], msgspec.Meta(max_length=8)] = []
    lacks: Annotated[list[Short], msgspec.Meta(max_length=8)] = []


class Right(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call that does what it should: what is prepared, the arguments, part of what is said, and the effects."""

    arguments: dict[str, Any] = {}
    puts: dict[str, Any] = {}
    says: Annotated[str, msgspec.Meta(max_length=300)] = ""
    effects: Annotated[list[Effect], msgspec.Meta(max_length=6)] = []


class Wrong(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call that is refused, and part of the refusal."""

    arguments: dict[str, Any]
    refusal: Annotated[str, msgspec.Meta(max_length=200)] = ""


class Cases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The cases of one function."""

    right: Annotated[list[Right], msgspec.Meta(min_length=2, max_length=6)]
    wrong: Annotated[list[Wrong], msgspec.Meta(max_length=4)] = []


class _Interfaces(msgspec.Struct, forbid_unknown_fields=True):
    functions: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=40)]


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
    if not source.isprintable() and any(not c.isprintable() and c not in "\n\t" for c in source):
        raise AnswerRefusedError("the code has control characters")
    return source


def _decoded(text: str, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text.encode("utf-8", "surrogatepass"), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise AnswerRefusedError(f"the JSON is not of the form asked for: {str(error)[:200]}") from error


def interfaces(
    answer: str, exemplars: Iterable[str], taken: Collection[str]
) -> tuple[list[Interface], list[tuple[str, str]]]:
    """The interfaces of an answer, and those refused with their reasons. Raises AnswerRefusedError."""
    words = {word.lower() for text in exemplars for word in re.findall(r"[^\W\d_]{6,}", text)}
    kept: list[Interface] = []
    refused: list[tuple[str, str]] = []
    for raw in _decoded(block(answer, "json"), _Interfaces).functions:
        name = str(raw.get("name", ""))[:60]
        try:
            made = msgspec.convert(raw, Interface)
            _soundly(made, words, {*taken, *(each.name for each in kept)})
            kept.append(made)
        except msgspec.ValidationError as error:
            refused.append((name, str(error)[:200]))
        except AnswerRefusedError as error:
            refused.append((name, str(error)))
    return kept, refused


def _soundly(made: Interface, words: set[str], taken: Collection[str]) -> None:
    if made.name in taken:
        raise AnswerRefusedError("there is a function of this name")
    if bad := KEYWORDS & {made.name, *made.params}:
        raise AnswerRefusedError(f"{min(bad)} can't be a name")
    for name, takes in made.params.items():
        low, high = KINDS.get(takes.kind, (1, 0))
        if takes.kind not in KINDS:
            raise AnswerRefusedError(f"{name}: kind {takes.kind[:40]!r}; known: {', '.join(KINDS)}")
        if not low <= len(takes.limits) <= high:
            raise AnswerRefusedError(f"{name}: a {takes.kind} has {low} to {high} limits")
        numbers = all(type(limit) in (int, float) for limit in takes.limits)
        if numbers != (takes.kind in NUMBERS) and takes.limits:
            limits = "texts" if numbers else "numbers"
            raise AnswerRefusedError(f"{name}: the limits of a {takes.kind} are {limits}")
        if takes.kind in ("text", "line") and not 1 <= float(takes.limits[0]) <= 4000:
            raise AnswerRefusedError(f"{name}: a {takes.kind} has at most 4000 characters")
        default = takes.default
        if default is not msgspec.UNSET:
            _fitting(made.function("Owner").params[list(made.params).index(name)], default)
        if isinstance(default, str) and (own := {w.lower() for w in re.findall(r"[^\W\d_]{6,}", default)} & words):
            raise AnswerRefusedError(f"{name}: its default has {min(own)!r} of an exemplar: leave the default out")


def _fitting(param: Any, value: Any) -> Any:
    try:
        return fit(param, value)
    except Unfit as error:
        raise AnswerRefusedError(str(error)) from error


def checked(function: Function, given: Mapping[str, Any]) -> dict[str, Any]:
    """`given` as the guest gets it, defaults filled in, as the grammar would. Raises AnswerRefusedError."""
    known = {param.name for param in function.params}
    if unknown := sorted(set(given) - known):
        raise AnswerRefusedError(f"no argument {unknown[0]}")
    values = {}
    for param in function.params:
        if param.name not in given and param.required:
            raise AnswerRefusedError(f"{param.name} is missing")
        values[param.name] = _fitting(param, given[param.name]) if param.name in given else param.default
    return values


def cases(answer: str, interface: Interface, profile: Profile) -> Cases:
    """The cases of an answer. Raises AnswerRefusedError."""
    made = _decoded(block(answer, "json"), Cases)
    function = interface.function(profile.owner)
    for number, right in enumerate(made.right, 1):
        checked(function, right.arguments)
        if not right.effects and not right.says:
            raise AnswerRefusedError(f"right call {number} has neither an effect nor a part of what is said")
        for effect in right.effects:
            _readable(effect, profile)
    for each in made.right:
        if unknown := sorted(set(each.puts) - set(profile.puts)):
            raise AnswerRefusedError(f"puts {unknown[0]!r}; known: {', '.join(profile.puts)}")
    return made


def _readable(effect: Effect, profile: Profile) -> None:
    if bool(effect.read) == bool(effect.file):
        raise AnswerRefusedError("an effect has either `read` or `file`")
    if effect.read and effect.read not in profile.reads:
        raise AnswerRefusedError(f"read {effect.read[:40]!r}; known: {', '.join(profile.reads)}")
    if effect.file.startswith(("/", "~")) or ".." in effect.file.split("/"):
        raise AnswerRefusedError("an effect's file is a path below the home folder")
    if effect.equals is None and not effect.has and not any(effect.lacks):
        raise AnswerRefusedError("an effect says what it equals, has or lacks")


def as_cases(interface: Interface, made: Cases, profile: Profile) -> list[Case]:
    """The cases in the form that `apis check` runs: each right call with a wrong one."""
    wrongs = [*made.wrong] or [Wrong({"nothing": 1}, "no argument nothing")]
    done = []
    for number, right in enumerate(made.right):
        wrong = wrongs[number % len(wrongs)]
        read_back = any(each.file for each in right.effects)
        saving = [Step(tool="put", given={"what": "", "value": None})] if read_back else []
        done.append(
            Case(
                interface.name,
                right.arguments,
                right.says,
                effect=[*saving, *map(_step, right.effects)],
                before=[Step(tool="put", given={"what": name, "value": value}) for name, value in right.puts.items()],
                wrong=wrong.arguments,
                refusal=wrong.refusal,
            )
        )
    return done


def _step(effect: Effect) -> Step:
    wants: dict[str, Any] = {"has": list(effect.has), "lacks": list(effect.lacks), "equals": effect.equals}
    if effect.file:
        return Step(file=effect.file, wait=True, **wants)
    return Step(tool="read", given={"what": effect.read}, **wants)
