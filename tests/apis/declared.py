"""What tests of every application's declared functions ask alike: of the guest, the prompt, the grammar and calls."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

import apis.guest
from apis.actions.grammar import RefusedAnswer, parse
from apis.actions.gui import Tool
from apis.catalogue import call
from apis.functions.declaration import Function, Param
from apis.functions.values import COLOURS, Unfit, fit
from apis.observation import Observation
from apis.plans.action import SETTLE, Call, plan
from apis.prompts.published import render_published

Functions = Mapping[str, Function]  # an application's, by name
Strategies = dict[str, st.SearchStrategy[Any]]  # by kind of parameter
NOTHING = Observation((), ())
TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "List": "array", "Dict": "object"}
PYTHON = {
    "integer": "int", "rgb": "int", "number": "float", "boolean": "bool", "scalars": "list[Any]",
    "letters": "list[str]", "names": "list[str]", "indices": "list[int]", "lines": "list[int]",
    "extent": "dict[str, float]", "spot": "str | dict[str, float]",
}  # fmt: skip
TYPED = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=40)
NAMES = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20)


def published(function: Function, kinds: Mapping[str, str] | None = None) -> str:
    """The function as the list of published ones has it; `kinds` are types that this list gives to some kinds."""
    parts = []
    for param in function.params:
        written = TYPES[param.published_type.removeprefix("Optional[").removesuffix("]")]
        written = (kinds or {}).get(param.kind, written)
        parts.append(f"{param.name}: {written}" + ("" if param.required else f" = {param.default!r}"))
    return f"{function.name}({', '.join(parts)})"


def arguments_of(functions: Functions) -> dict[str, list[tuple[str, str]]]:
    """Names and types of the arguments of each function, as the guest's methods must have them."""
    return {
        name: [(p.name, PYTHON.get(p.kind, "str") + (" | None" if p.default is None else "")) for p in function.params]
        for name, function in functions.items()
    }


def methods_of(app: str, owner: str = "") -> dict[str, list[tuple[str, str]]]:
    """Public methods of the classes (called `owner`, if given) in the guest's folder `app`, from their source.

    With names and types of their arguments. Every argument is a keyword, annotated and without a default: defaults
    stand in the declaration only.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    for path in sorted((Path(str(apis.guest.__file__)).parent / app).glob("*.py")):
        classes = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
        asked = [node for node in classes if not owner or node.name == owner]
        for method in (m for node in asked for m in node.body if isinstance(m, ast.FunctionDef)):
            if method.name.startswith("_"):
                continue
            assert method.name not in found
            assert [arg.arg for arg in method.args.args] == ["self"]
            assert not any(method.args.kw_defaults)
            given_as = [(a.arg, ast.unparse(a.annotation)) for a in method.args.kwonlyargs if a.annotation]
            assert len(given_as) == len(method.args.kwonlyargs)
            found[method.name] = given_as
    return found


def prompt(app: str) -> str:
    """The system's part of a prompt with that application in front."""
    return str(render_published("t", app, [], NOTHING, None)[0]["content"])


def prompt_shows(app: str, functions: Functions) -> None:
    """Every function and every argument stands in the prompt, with what it means."""
    text = prompt(app)
    for function in functions.values():
        assert f"    def {function.signature.removeprefix(f'{function.owner}.')}:\n" in text
        assert function.description in text
        assert all(f"{param.name}: {param.meaning}" in text and param.meaning for param in function.params)


def carried_out(answer: str, app: str, arguments: dict[str, Any]) -> Tool:
    """The call that the answer is, which reaches the guest with those very arguments."""
    action = parse(answer, app)
    assert isinstance(action, Tool)
    assert action.arguments == arguments
    sent = Call("tool", {"owner": answer.partition(".")[0], "name": action.name, "arguments": arguments})
    assert plan(action, NOTHING).calls == (sent, SETTLE)
    return action


def refusal(answer: str, app: str) -> str:
    """Why the answer is none with that application in front."""
    refused = parse(answer, app)
    assert isinstance(refused, RefusedAnswer)
    return refused.reason


def params_of(functions: Functions) -> list[Param]:
    """The different parameters of all functions, in an order of their own."""
    return sorted({param for function in functions.values() for param in function.params}, key=repr)


def fit_once(param: Param, value: Any) -> Any:
    """The value made fit, which makes no further difference; None where it is refused, each time and by name."""
    try:
        once = fit(param, value)
    except Unfit:
        with pytest.raises(Unfit, match=f"^{param.name}: "):
            fit(param, value)
        return None
    assert fit(param, once) == once
    return once


def values(param: Param, own: Callable[[Param], Strategies]) -> st.SearchStrategy[Any]:
    """Values that the parameter takes; `own` has those of kinds that only one application has."""
    low, high = param.limits if param.kind in ("integer", "number") else (0, 0)
    common: Strategies = {
        "integer": st.integers(low, high),
        "number": st.floats(low, high) if param.kind == "number" else st.none(),
        "boolean": st.booleans(),
        "text": TYPED,
        "choice": st.sampled_from(param.limits or ("",)),
        "colour": st.sampled_from(sorted(COLOURS)) | st.integers(0, 0xFFFFFF).map("#{:06X}".format),
    }
    strategy = (common | own(param))[param.kind]
    return strategy if param.default is not None else strategy | st.none()


@st.composite
def calls(draw: st.DrawFn, functions: Iterable[Function], own: Callable[[Param], Strategies]) -> Tool:
    """Calls of the functions, with any of the arguments that may be left out."""
    function = draw(st.sampled_from(tuple(functions)))
    named = {p.name: draw(values(p, own)) for p in function.params if p.required or draw(st.booleans())}
    return call(function.owner, function.name, **named)
