"""From a model's answer to a typed action, or to a refusal that says why in one line.

Invariant: the answer is data. It is scanned, parsed with `ast` and compared with the declared functions. It is never
evaluated. The work that it can cause is bounded before any of it is done. At most `MAX_READ` characters are searched
for reasoning (`apis.actions.reasoning`), which is not counted. Of the rest at most `MAX_ANSWER` bytes are read. At most
`MAX_CODE` characters reach the parser, too few to nest deeply. String literals and a list's digits, commas and spaces
are not counted.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable
from difflib import get_close_matches

import msgspec

from apis.actions.arguments import Shown, Unfit, Unit, check
from apis.actions.gui import LITERALS, AnyAction, Function, Tool, functions_for
from apis.actions.reasoning import spoken
from apis.actions.spaces import ActionSpace
from apis.catalogue import app_of
from apis.observation import SCREEN

MAX_READ = 1 << 20  # characters, reasoning included
MAX_ANSWER = 8 * 1024  # bytes without reasoning
MAX_CODE = 400  # characters of the line outside its string literals, without those that nest nothing
MAX_DEPTH = 8  # open brackets
MAX_REASON = 240  # characters
# What published models call some arguments.
ALIASES = {
    "coordinate": "coordinates", "position": "coordinates", "button": "button_type", "clicks": "num_clicks",
    "start_coordinate": "drag_from_coordinates", "end_coordinate": "drop_on_coordinates", "key": "keys",
}  # fmt: skip


class RefusedAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why an answer is no action; `reason` is one printable line meant for the model."""

    reason: str


class _Refused(Exception):  # noqa: N818 - carries a refusal out of nested checks, it never leaves this module
    pass


def parse(
    answer: str,
    app: str,
    elements: Collection[str] | None = None,
    windows: Collection[str] | None = None,
    form: str = "compact",
    *,
    space: ActionSpace = "both",
    cut: str = "",
    screen: tuple[int, int] = SCREEN,
    unit: Unit = "pixels",
) -> AnyAction | RefusedAnswer:
    """The action of `space` that `answer` asks for while `app` is active.

    `elements` and `windows` are the names in the current observation ("e1", "w2", or window numbers in the published
    form); None means that there is no observation and any well-formed name will do. `form` "published" insists on a
    fenced block, or on `<answer>` around the action; "compact" takes the last line where there is none. `cut` says why
    the answer is not whole, where it is not: then it is no action, for what it would have gone on with is not known.
    Places lie on a `screen` of so many pixels and are written in `unit`. Raises nothing.
    """
    try:
        if cut:
            raise _Refused(f"the answer is not whole: {cut}")
        return _action(_code_line(*_said(answer, form)), app, space, Shown(elements, windows, screen, unit))
    except (_Refused, Unfit) as refused:
        return RefusedAnswer(_printable(str(refused)))


def _printable(reason: str) -> str:
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in reason[: 2 * MAX_REASON])
    return text if len(text) <= MAX_REASON else text[: MAX_REASON - 3] + "..."


# A fence begins or ends a line, so that backticks within a text that is typed are none; what else its opening line may
# hold is a label.
_OPENING = re.compile(r"^[ \t]*```|^[^`\n]*```(?=[ \t]*\w*[ \t]*\r?$)|^[^`'\"\n]*```(?=[^\n]*```)", re.MULTILINE)
_CLOSING = re.compile(r"^[ \t]*```|```(?=[ \t]*\r?$)", re.MULTILINE)
_LABEL = re.compile(r"[ \t]*(?:[A-Za-z]\w*[ \t]*\r?(?=\n\s*\S)|(?:python|py)[ \t])", re.IGNORECASE)


# What some models put it in: it begins a line or follows the end of a sentence, and ends its line.
_ANSWER = re.compile(r"(?:^|(?<=[.!?:>]))[ \t]*<answer>(.*?)</answer>[ \t]*\r?$", re.DOTALL | re.MULTILINE)
_OPEN_ANSWER = re.compile(r"^[ \t]*<answer>(.*)\Z", re.DOTALL | re.MULTILINE)  # of a server that stops at its end
_LINE_END = re.compile(r"\r\n|\r|\n")  # no other sign ends a line of Python


def _lines(text: str) -> list[str]:
    """The lines that are not empty, without white space around them."""
    return [line for whole in _LINE_END.split(text) if (line := whole.strip())]


def _said(answer: str, form: str) -> tuple[str, str]:
    """The answer without its reasoning, and the form to read it in: `<answer>` tags serve as the fence."""
    if len(answer) > MAX_READ:
        raise _Refused(f"the answer is longer than {MAX_ANSWER} bytes")
    outside, thought, unclosed = spoken(answer)
    if unclosed:
        raise _Refused(f"the reasoning that {unclosed} begins does not end: close it, then give the action")
    if len(outside) > MAX_ANSWER or len(outside.encode("utf-8", "surrogatepass")) > MAX_ANSWER:
        raise _Refused(f"the answer is longer than {MAX_ANSWER} bytes")
    fenced = _ANSWER.findall(outside)
    if not fenced and "</answer>" not in outside:
        fenced = _OPEN_ANSWER.findall(outside)
    if fenced:
        outside, form = fenced[-1], "compact"
    if thought and not outside.strip():
        raise _Refused("nothing stands after the reasoning: end it with one line like Agent.wait()")
    return outside, form


def _code_line(answer: str, form: str) -> str:
    """The one line of code in an answer."""
    opening = _OPENING.search(answer)
    start = opening.end() if opening else answer.find("```") + 3 if form == "published" and "```" in answer else -1
    if start < 0:
        if form == "published":
            raise _Refused("there is no ```python block with the action")
        lines = _lines(answer)
        if not lines:
            raise _Refused("the answer is empty: end it with one line like Agent.wait()")
        _refuse_broken(lines)
        return lines[-1]
    end_of_line = start + len(answer[start:].partition("\n")[0])
    end = answer.find("```", start, end_of_line)  # a block on one line
    if end < 0:
        closing = _CLOSING.search(answer, end_of_line)
        end = closing.start() if closing else answer.find("```", end_of_line)
    if end < 0:
        raise _Refused("the code block is not closed with ```")
    block = answer[start:end]
    label = _LABEL.match(block)
    lines = _lines(block[label.end() if label else 0 :])
    _refuse_broken(lines)
    if len(lines) != 1:
        raise _Refused(f"the code block holds {len(lines)} lines: write exactly one")
    return lines[0]


def _action(code: str, app: str, space: ActionSpace, shown: Shown) -> AnyAction:
    if code in LITERALS:
        return LITERALS[code]
    call = _call(_bounded(code))
    name = _called(call)
    functions = functions_for(app, space)
    function = functions.get(name)
    if function is None:
        elsewhere = app_of(name)
        if name in functions_for(app) or (elsewhere and space == "gui"):
            raise _Refused(f"{name} is not allowed; {_allowed(functions.values())}")
        if elsewhere:
            raise _Refused(f"there is no function {name} here: bring a window of {elsewhere} to the front first")
        raise _Refused(f"there is no function {name}{_nearest(name, functions)}")
    return _bind(function, call, shown)


_FLAT = frozenset("0123456789, ")  # they nest nothing, and no more do:
_VALUES = re.compile(r"\b(?:True|False|None)\b|(?<=\d)\.(?=\d)|(?:(?<=[\[,])|(?<=[\[,] ))-(?=\d)", re.ASCII)
_ESCAPES = frozenset("\\'\"abfnrtv01234567xNuU")
_OCTAL = re.compile(r"\\[4-7][0-7][0-7]")
_LONG_NUMBER = re.compile(r"(?:(?<!\w)(\w{1,64}) ?= ?)?-?(\d{1000,})", re.ASCII)  # Python reads at most 4300 digits


_HEX = re.compile(r"0x[0-9A-Fa-f]{1,8}(?!\w)", re.ASCII)


def _bounded(code: str) -> str:
    """`code` with its stray backslashes doubled (what Python means by them, without its warning), or a refusal."""
    out: list[str] = []
    outside = depth = braces = at = 0
    flat = {place for value in _VALUES.finditer(code) for place in range(*value.span())}
    while at < len(code):
        char = code[at]
        if char in "'\"":
            raw = code[at - 1 : at] in ("r", "R") and not (at > 1 and (code[at - 2].isalnum() or code[at - 2] == "_"))
            if at and not raw and (code[at - 1].isalnum() or code[at - 1] == "_"):
                raise _Refused(_stray_quote(code, at))
            mark = char * 3 if code.startswith(char * 3, at) else char
            opened, at = at, _copy_string(code, at, mark, out, raw=raw)
            if after := _AFTER_STRING.match(code, at):
                raise _Refused(_ended_early(code[opened:at], after[0].strip(), mark))
            continue
        outside += char not in _FLAT and at not in flat
        depth += (char in "([{") - (char in ")]}")
        if outside > MAX_CODE or depth > MAX_DEPTH:
            raise _Refused("the line is too long or too deeply nested for one call")
        word = char.isdigit() and at + 1 < len(code) and code[at + 1].isalpha() and not _in_name(code, at)
        if word and not _HEX.match(code, at):
            raise _Refused("a number is written with digits only")
        braces += (char == "{") - (char == "}")
        if char in _CURLY:
            raise _Refused(f"{char!r} is no quotation mark of Python: strings stand in straight ' or \"")
        if code.startswith("</answer>", at):
            raise _Refused("more follows </answer> on its line: write one <answer> with one action, at the end")
        if not (char.isascii() and (char.isalnum() or char in "_.,=()[]{}- \t" or (char == ":" and braces))):
            raise _Refused(f"the character {char!r} has no place in a call with literal arguments")
        out.append(char)
        at += 1
    return "".join(out)


_CALL = re.compile(r"[A-Za-z_]\w*\.[A-Za-z_]\w*\(", re.ASCII)
_CURLY = frozenset(
    "\u2018\u2019\u201a\u201b\u201c\u201d\u201e\u201f\u00ab\u00bb\u2039\u203a\u300c\u300d\u300e\u300f`\u00b4"
)
_AFTER_STRING = re.compile(r"[ \t]*[^\s,)\]}:'\"][^'\"]*")  # where a comma or a bracket belongs
_JOINED = re.compile(r"[ \t]*[-+*/%.=<>|&\[({]|[ \t]+(?:if|for|in|and|or|not|is|else)\b")  # an expression goes on
_PREFIX = re.compile(r"(?<!\w)(?:[fubrt]|fr|rf|br|rb|tr|rt)\Z", re.IGNORECASE)


def _stray_quote(code: str, at: int) -> str:
    """Why no string begins at `at`, right after a word."""
    if _PREFIX.search(code, max(0, at - 3), at):
        return "strings are written without a prefix: 'text' or \"text\""
    word = re.search(r"\w{1,20}\Z", code[max(0, at - 20) : at])
    return f'the quote after {word[0] if word else ""} opens no string: the whole text stands in quotes, as in "it\'s"'


def _ended_early(string: str, after: str, mark: str) -> str:
    """What follows a string that has ended where a comma or a bracket belongs."""
    shown = string if len(string) <= 40 else string[:36] + "..."
    if _JOINED.match(after) or mark not in ("'", '"'):
        return f"{after[:20]!r} after the string {shown} has no place in a call with literal arguments"
    return f"the string {shown} ends before {after[:20]!r}: a {mark} inside a string in {mark} is written \\{mark}"


def _refuse_broken(lines: list[str]) -> None:
    """Raise _Refused where the last call of `lines` goes on after a line break within one of its strings."""
    calls = [number for number, line in enumerate(lines) if _CALL.match(line)]
    if calls and calls[-1] < len(lines) - 1 and _string_left_open(lines[calls[-1]]):
        raise _Refused("a string is not closed on its line: a line break inside a string is written \\n")


def _string_left_open(line: str) -> bool:
    """Whether `line` ends inside a string literal."""
    at = 0
    while at < len(line):
        if line[at] not in "'\"":
            at += 1
            continue
        mark = line[at] * 3 if line.startswith(line[at] * 3, at) else line[at]
        try:
            at = _copy_string(line, at, mark, [], raw=True)
        except _Refused:
            return True
    return False


def _in_name(code: str, at: int) -> bool:
    while at and code[at].isdigit():
        at -= 1
    return code[at].isalpha() or code[at] == "_"


def _copy_string(code: str, at: int, mark: str, out: list[str], *, raw: bool) -> int:
    """Append the string literal that opens at `at` to `out`; the index after it.

    In a raw one, as regular expressions are written, every backslash is itself.
    """
    out.append(mark)
    at += len(mark)
    while at < len(code):
        if code.startswith(mark, at):
            out.append(mark)
            return at + len(mark)
        if code[at] == "\\" and at + 1 < len(code):
            if not raw and _OCTAL.match(code, at):
                raise _Refused(f"the escape {code[at : at + 4]} is no character")
            known = raw or code[at + 1] in _ESCAPES
            out.append(code[at : at + 2] if known else "\\" + code[at : at + 2])
            at += 2
            continue
        out.append(code[at])
        at += 1
    raise _Refused("a string is not closed")


def _call(code: str) -> ast.Call:
    try:
        tree = ast.parse(code, mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        if long := _LONG_NUMBER.search(code):
            raise _Refused(f"{long[1] or 'a number'}: {len(long[2])} digits are too many: write a number") from error
        why = error.msg if isinstance(error, SyntaxError) else type(error).__name__
        raise _Refused(f"the action's line is not one Python call like Agent.wait() ({why})") from error
    if not isinstance(tree.body, ast.Call):
        raise _Refused("the action's line is not a call: write one like Agent.wait()")
    return tree.body


def _called(call: ast.Call) -> str:
    func = call.func
    if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
        return f"{func.value.id}.{func.attr}"
    if isinstance(func, ast.Name):
        return func.id
    raise _Refused("only calls like Agent.click(...) exist")


def _allowed(functions: Iterable[Function]) -> str:
    """`Agent has open_app, click; CalcTools has save`."""
    names: dict[str, list[str]] = {}
    for function in functions:
        names.setdefault(function.owner, []).append(function.name)
    return "; ".join(f"{owner} has {', '.join(listed)}" for owner, listed in names.items())


def _nearest(name: str, known: Collection[str]) -> str:
    close = get_close_matches(name[:80], known, n=1, cutoff=0.3)
    return f": did you mean {close[0]}?" if close else f": there are {', '.join(sorted(known))}"


def _bind(function: Function, call: ast.Call, shown: Shown) -> AnyAction:
    """Pair arguments with parameters and check each one. The refusal names the argument and what would be right."""
    name = f"{function.owner}.{function.name}"
    if len(call.args) > len(function.params):
        raise _Refused(
            f"{name} takes at most {len(function.params)} arguments, not {len(call.args)}: {function.signature}"
        )
    by_name = {param.name: param for param in function.params}
    given = dict(zip(by_name, call.args, strict=False))
    for keyword in call.keywords:
        argument = keyword.arg if keyword.arg in by_name else ALIASES.get(keyword.arg or "", keyword.arg)
        if argument is None or argument not in by_name:
            raise _Refused(f"{name} has no argument {argument or '**'}{_nearest_argument(argument, by_name)}")
        if argument in given:
            raise _Refused(f"{name}: the argument {argument} is given twice")
        given[argument] = keyword.value
    missing = [param.name for param in function.params if param.required and param.name not in given]
    if missing:
        raise _Refused(f"{name} needs the argument {missing[0]}: {function.signature}")
    values = {arg: check(by_name[arg], node, shown) for arg, node in given.items()}
    if function.action is Tool:
        defaults = {param.name: param.default for param in function.params if not param.required}
        return Tool(owner=function.owner, name=function.name, arguments=defaults | values)
    action: AnyAction = msgspec.convert(values | {"function": function.name}, function.action, strict=True)  # type: ignore[assignment]
    return action


def _nearest_argument(argument: str | None, known: Collection[str]) -> str:
    if not known:
        return ": it takes none"
    return _nearest(argument, known) if argument else ""
