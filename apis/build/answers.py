"""A model's answers as typed and bounded values: interfaces, cases, and the text of a function.

Invariant: an answer is data. JSON becomes declared values or is refused with a line for the model. Code stays text: it
is neither parsed nor compiled here, but looked at and run in a desktop alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from apis import built
from apis.apps.check.case import Case, Step
from apis.build.profile import Profile
from apis.built import Name, Params, Sentence
from apis.functions.declaration import Function
from apis.functions.values import Unfit, fit

ANSWER_BYTES, CODE_BYTES = 64 << 10, 8 << 10
T = TypeVar("T")
Short = Annotated[str, msgspec.Meta(max_length=2000)]
Scalar = str | int | float | bool | None
Value = Scalar | Annotated[list[Scalar], msgspec.Meta(max_length=100)]
REPLACED = ("{home}", "{answer}", "{function}")  # what `apis.apps.check.steps` writes other texts in place of
READ, PUT = "(read)", "(put)"  # steps of a profile's snippets: no function is called so


class AnswerRefusedError(Exception):
    """An answer is not taken; the text says why, for the model."""


class Interface(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A function as it is declared; `serves` are numbers of exemplars, from 1."""

    name: Name
    does: Sentence
    params: Params = {}
    serves: Annotated[list[int], msgspec.Meta(max_length=200)] = []

    def function(self, owner: str) -> Function:
        """The declaration that prompts, the grammar and calls read."""
        return built.declared(owner, self.name, self.does, self.params)


class Effect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is read after a call, by a profile's name or in a file below HOME, and what it has to be."""

    read: str = ""
    file: Annotated[str, msgspec.Meta(max_length=200)] = ""
    equals: Short | None = None
    has: Annotated[list[Short], msgspec.Meta(max_length=8)] = []
    lacks: Annotated[list[Short], msgspec.Meta(max_length=8)] = []


class Right(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call that does what it should: what is prepared, the arguments, part of what is said, and the effects."""

    arguments: dict[str, Value] = {}
    puts: dict[str, Value] = {}
    says: Annotated[str, msgspec.Meta(max_length=300)] = ""
    effects: Annotated[list[Effect], msgspec.Meta(max_length=6)] = []


class Wrong(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call that is refused, and part of the refusal."""

    arguments: dict[str, Value]
    refusal: Annotated[str, msgspec.Meta(max_length=200)] = ""


class Cases(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The cases of one function."""

    right: Annotated[list[Right], msgspec.Meta(min_length=2, max_length=6)]
    wrong: Annotated[list[Wrong], msgspec.Meta(max_length=4)] = []


class _Interfaces(msgspec.Struct, forbid_unknown_fields=True):
    functions: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=40)]


class _Plans(msgspec.Struct, forbid_unknown_fields=True):
    plans: dict[int, Annotated[list[dict[str, Value]], msgspec.Meta(max_length=4)]]


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
    words = {word for text in exemplars for word in _words(text)}
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
    if why := built.unsound(made.name, made.params):
        raise AnswerRefusedError(why)
    for name, takes in made.params.items():
        default = takes.default
        if isinstance(default, str) and (own := _words(default) & words):
            raise AnswerRefusedError(f"{name}: its default has {min(own)!r} of an exemplar: leave the default out")


def _words(text: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[^\W\d_]{6,}", text)}


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
    sound(made, interface, profile)
    return made


def sound(made: Cases, interface: Interface, profile: Profile) -> None:
    """Raises AnswerRefusedError for cases that are not of this function and profile."""
    function = interface.function(profile.owner)
    for number, right in enumerate(made.right, 1):
        checked(function, right.arguments)
        if not right.effects and not right.says:
            raise AnswerRefusedError(f"right call {number} has neither an effect nor a part of what is said")
        for effect in right.effects:
            _readable(effect, profile)
        if unknown := sorted(set(right.puts) - set(profile.puts)):
            raise AnswerRefusedError(f"puts {unknown[0][:40]!r}; known: {', '.join(profile.puts)}")
        texts = msgspec.json.encode((right.effects, right.puts)).decode()
        if bad := [each for each in REPLACED if each in texts]:
            raise AnswerRefusedError(f"right call {number}: {bad[0]} can't be in a text")


def _readable(effect: Effect, profile: Profile) -> None:
    if bool(effect.read) == bool(effect.file):
        raise AnswerRefusedError("an effect has either `read` or `file`")
    if effect.read and effect.read not in profile.reads:
        raise AnswerRefusedError(f"read {effect.read[:40]!r}; known: {', '.join(profile.reads)}")
    if effect.file.startswith(("/", "~")) or ".." in effect.file.split("/"):
        raise AnswerRefusedError("an effect's file is a path below the home folder")
    if effect.equals is None and not effect.has and not any(effect.lacks):
        raise AnswerRefusedError("an effect says what it equals, has or lacks")


def plans(answer: str, function: Function, count: int) -> dict[int, list[dict[str, Any]]]:
    """By numbers of `count` tasks, from 1, the arguments of the calls that do them or a step of them.

    Raises AnswerRefusedError.
    """
    made = _decoded(block(answer, "json"), _Plans).plans
    if strange := [number for number in made if not 1 <= number <= count]:
        raise AnswerRefusedError(f"there is no task {strange[0]}")
    return {number: [checked(function, given) for given in calls] for number, calls in sorted(made.items()) if calls}


def as_cases(interface: Interface, made: Cases, profile: Profile) -> list[Case]:
    """The cases in the form that `apis check` runs: each right call with a wrong one."""
    wrongs = [*made.wrong] or [Wrong({"nothing": 1}, "no argument nothing")]
    done = []
    for number, right in enumerate(made.right):
        wrong = wrongs[number % len(wrongs)]
        read_back = any(each.file for each in right.effects)
        saving = [Step(tool=PUT, given={"what": "", "value": None})] if read_back else []
        effect = [*saving, *map(_step, right.effects)]
        before = [Step(tool=PUT, given={"what": name, "value": value}) for name, value in right.puts.items()]
        rest: dict[str, Any] = {"effect": effect, "before": before, "wrong": wrong.arguments, "refusal": wrong.refusal}
        done.append(Case(interface.name, right.arguments, right.says, **rest))
    return done


def _step(effect: Effect) -> Step:
    wants: dict[str, Any] = {"has": list(effect.has), "lacks": list(effect.lacks), "equals": effect.equals}
    if effect.file:
        return Step(file=effect.file, wait=True, **wants)
    return Step(tool=READ, given={"what": effect.read}, **wants)
