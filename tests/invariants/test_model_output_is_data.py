"""Invariant 1: an answer of the model becomes a typed action or a refusal; it is never evaluated and never code."""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from apis.actions.grammar import RefusedAnswer, parse
from apis.actions.gui import Action, OpenApp, Quote, Type
from apis.applications import APPS
from apis.catalogue import call
from apis.observation import Element, Observation, Window
from apis.plans.action import plan
from tests.invariants.product_code import GUEST, ROOT, called, place, sources, tree_of

SCREEN = Observation(
    windows=(Window(42, "Mousepad", "a.txt", True),),
    elements=(Element("text", "", "hello", 0, 40, 200, 100, ("sen", "edt"), 0),),
)
COMMANDS = [list(app.argv) for app in APPS]
HARMLESS = {"compile"}  # `ast.parse` reports itself as this; what it makes is a tree, nothing runs

_watching: list[tuple[int, set[str]]] = []


def _hook(event: str, _: object) -> None:
    for thread, seen in _watching or ():  # None when the interpreter ends
        if thread == get_ident():
            seen.add(event)


sys.addaudithook(_hook)  # can't be taken away again; outside of `watched` it does nothing


@contextmanager
def watched() -> Iterator[set[str]]:
    """This thread's audit events while the block runs, without any of what an earlier test left to be collected."""
    seen: set[str] = set()
    watching = (get_ident(), seen)
    gc.disable()
    _watching.append(watching)
    try:
        yield seen
    finally:
        _watching.remove(watching)
        gc.enable()


PAYLOADS = [
    "__import__('os').system('touch canary')",
    "Agent.type(text=open('canary', 'w').write('x'))",
    "Agent.type(text=str(7))",
    "Agent.type(text=__import__('os').getcwd())",
    "Agent.click([int('3'), 4])",
    "Agent.click(coordinates=[len('ab'), 2])",
    "Agent.exit(success=bool(1))",
    "Agent.hotkey([chr(97)])",
    "Agent.hotkey(keys=list('ab'))",
    "Agent.wait(exit())",
    "Agent.quote(content=globals())",
    "Agent.quote(f'{open(1)}')",
    "Agent.click.__call__([1, 2])",
    "Agent.__class__.__base__.__subclasses__()",
    "getattr(Agent, 'click')([1, 2])",
    "(lambda: Agent.wait())()",
    "[Agent.wait() for _ in range(10**9)]",
    "Agent.type(text='a'*10**9)",
    "Agent.scroll([9**9**9, 1], 'up')",
    "exec('import os')",
    "CalcTools.set_cell_value(cell='A1', value=open('canary', 'w').write('x'))",
    "CalcTools.set_column_values(column_name='A', data=[len('ab'), 2])",
    "CalcTools.set_column_values(column_name='A', data=list('ab'))",
    "```python\nimport os\n```",
    "```python\nAgent.wait() if open('canary', 'w') else 0\n```",
]


@pytest.mark.parametrize("answer", PAYLOADS)
def test_model_output_is_data_and_no_payload_runs(answer: str) -> None:
    parse(answer, "libreoffice_calc", ["e1"], ["w1"])  # imports that only the first call makes are over
    with watched() as events:
        result = parse(answer, "libreoffice_calc", ["e1"], ["w1"])
    assert isinstance(result, RefusedAnswer)
    assert events <= HARMLESS


PIECES = st.sampled_from(
    [
        *"()[]{}'\"\\.,=:@*+-",
        "Agent.type(",
        "text=",
        "Agent.click(",
        "open('canary','w')",
        "lambda:",
        "e1",
        "exec",
        "__import__('os')",
    ]
)


@given(st.lists(PIECES | st.text(max_size=4), max_size=30).map("".join))
def test_model_output_is_data_for_any_text(answer: str) -> None:
    with watched() as events:
        result = parse(answer, "terminal", ["e1"], ["w1"])
    assert isinstance(result, Action | RefusedAnswer)
    assert events <= HARMLESS | {"import", "open"}  # unicodedata and the like, at their first use
    if isinstance(result, Action):
        assert all(type(value) in (str, int, bool, tuple, type(None)) for value in msgspec.structs.astuple(result))


@given(
    st.text(st.characters(exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff"), min_size=1, max_size=60)
)
@example("vs code")
def test_model_output_is_data_for_the_guest_too(text: str) -> None:
    """What the model wrote reaches the agent as the one value it is: never in a command line, never in another text."""
    calls = plan(Type(coordinates="e1", text=text, enter=True), SCREEN).calls
    assert [made.args for made in calls if made.method == "type_text"] == [{"text": text}]
    assert {made.method for made in calls} == {"click", "settle", "type_text", "hotkey"}
    tool = plan(call("CalcTools", "set_cell_value", cell="A1", value=text), SCREEN).calls
    typed = {"owner": "CalcTools", "name": "set_cell_value", "arguments": {"cell": "A1", "value": text}}
    assert (tool[0].method, tool[0].args) == ("tool", typed)
    assert not plan(Quote(content=text), SCREEN).calls
    opened = [made.args["argv"] for made in plan(OpenApp(app_name=text), SCREEN).calls if made.method == "open_window"]
    assert all(argv in COMMANDS for argv in opened), "a name of ours, drawn by chance, starts what we wrote for it"
    assert isinstance(parse(f"Agent.hotkey({[f'no {text}']!r})", "terminal"), RefusedAnswer)


@pytest.mark.slow
def test_model_output_is_data_because_nothing_here_evaluates() -> None:
    """No module that handles answers or actions evaluates, compiles, imports by name, unpickles or starts a shell."""
    forbidden = {"eval", "exec", "compile", "literal_eval", "__import__", "system", "popen", "loads", "Popen", "run"}
    forbidden |= {"import_module", "check_output", "check_call", "create_subprocess_exec", "create_subprocess_shell"}
    forbidden |= {
        f"{kind}{ending}" for kind in ("exec", "spawn") for ending in ("l", "le", "lp", "v", "ve", "vp", "vpe")
    }
    owners = ("os", "subprocess", "pickle", "marshal", "ast", "importlib", "asyncio")
    folders = [ROOT / "apis", ROOT / "actors" / "desktop"]
    # These start sandboxes and readers, find our own modules or those of installed packages, ask the published metrics
    # in a sandbox, or read the literals of a task file's snippet, which is no answer; none of them sees an action.
    allowed = {"actors/desktop/providers", "actors/desktop/files", "apis/tasksets/commands.py"}
    allowed |= {"apis/tasksets/published.py", "apis/tasksets/published_worker.py"}
    allowed |= {"apis/entries.py", "apis/applications.py", "actors/desktop/network.py"}
    for path in sources():
        relative = str(path.relative_to(ROOT))
        if not any(folder in path.parents for folder in folders) or any(relative.startswith(a) for a in allowed):
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call):
                bare = isinstance(node.func, ast.Name)
                owner = getattr(getattr(node.func, "value", None), "id", "")
                risky = called(node) in forbidden and (bare or owner in owners)
                assert not risky, f"{place(path, node)} calls {called(node)}"


def glued(node: ast.AST | None) -> bool:
    """Whether a text is put together here."""
    return isinstance(node, ast.JoinedStr | ast.BinOp) or (isinstance(node, ast.Call) and called(node) == "format")


WORKER = GUEST / "built" / "worker.py"  # runs functions that a person accepted, in a process made for it; no answer


def written_here(path: Path, text: ast.expr) -> bool:
    """Whether a text is the module's own: a literal, or a name that it binds while it is imported and never again."""
    bound = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.Name) and node.id == _name_of(text)]
    stored = [node for node in bound if isinstance(node.ctx, ast.Store)]
    imported = [each for node in tree_of(path).body if isinstance(node, ast.Assign) for each in node.targets]
    return isinstance(text, ast.Constant) or (len(stored) == 1 and stored[0] in imported)


def _name_of(text: ast.expr) -> str:
    return text.id if isinstance(text, ast.Name) else ""


@pytest.mark.slow
def test_model_output_is_data_inside_the_desktop_and_on_its_way_there() -> None:
    """Programs get their words one by one: no shell reads what was glued together, and nothing is evaluated."""
    desktop = ROOT / "actors" / "desktop"
    for path in (*sorted(GUEST.rglob("*.py")), *(path for path in sources() if desktop in path.parents)):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.List | ast.Tuple):
                for shell, flag, text in zip(node.elts, node.elts[1:], node.elts[2:], strict=False):
                    words = [one.value if isinstance(one, ast.Constant) else "" for one in (shell, flag)]
                    spoken = str(words[0]).endswith("sh") and words[1] == "-c"
                    assert not spoken or written_here(path, text), f"{place(path, node)} has a shell read {text}"
            if isinstance(node, ast.Call):
                name, owner = called(node), getattr(getattr(node.func, "value", None), "id", "")
                bare = isinstance(node.func, ast.Name) and name in {"eval", "exec", "compile", "__import__"}
                assert not bare or path == WORKER, place(path, node)
                assert (owner, name) not in {("os", "system"), ("os", "popen")}, place(path, node)
                assert "shell" not in {keyword.arg for keyword in node.keywords}, place(path, node)
                if name in {"Popen", "run", "create_process", "create_subprocess_shell", "check_output", "call"}:
                    first = node.args[0] if node.args else None
                    assert not glued(first), f"{place(path, node)} starts a line that was glued together"
