"""What a model thinks first, apart from what it says: the one place that knows the marks of reasoning.

Invariant: text inside reasoning is never said. Reasoning has not ended where it was opened more often than closed. An
answer that closes more than it opened began inside it. Marks within a call's own string literals are text. The work is
bounded: so long a line is no call, and an answer of more than `MOST_MARKS` marks says nothing.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import NamedTuple

# Words that models' templates mark reasoning with, alone or as a part of a longer one: antThinking, seed:think,
# inner_monologue, begin_of_thought.
_WORDS = (
    r"think(?:ing|s)?|thoughts?|reason(?:ing|s)?|analysis|analyze|scratch[_ -]?pad|reflect(?:ion|ions)?|rationale|"
    r"monologue|deliberat(?:e|ion)|chain[_ -]of[_ -]thoughts?|cot|brainstorm(?:ing)?"
)
_GAP = r"[_:▁ -]"
_BEFORE = rf"(?:\w{{1,16}}?{_GAP}){{0,3}}(?:ant|my|inner|pre)?"
_AFTER = rf"(?:{_GAP}\w{{1,16}}){{0,2}}"
_MARK = re.compile(
    rf"""
      (?:<[|｜]?|◁|&lt;|⟨|〈|＜) \s{{0,3}} (?P<close>/|[|]/|(?:end|stop|close)(?:{_GAP}of)?{_GAP})? \s{{0,3}}
          (?:{_BEFORE}) (?P<name>{_WORDS}) (?:{_AFTER})
          (?: \s[^<>\n]{{0,200}})? (?P<empty>/)? \s{{0,3}} (?:[|｜]?>|▷|&gt;|⟩|〉|＞)
    | \[ \s? (?P<close2>/|end[_ ])? \s? (?P<name2>{_WORDS}) \s? \] (?!\()
    | <[|] \s? channel \s? [|]?> \s? (?P<channel>\w{{0,20}}) [^<\n]{{0,80}} (?:<[|]message[|]>)?
    | (?P<end><channel[|]>|<unused95>|<[|]/?(?:end|return|call)[|]>)
    | (?P<start><unused94>(?:thought)?|\A\s*analysis(?=[A-Z]))
    | (?P<said>assistant(?:<[|]channel[|]>)?final(?=\W|[A-Z]|\Z))
    """,
    re.VERBOSE | re.IGNORECASE,
)
_SAID_ALOUD = frozenset(("final", "answer", "response"))  # channels that are the answer
_LITERAL = re.compile(r"'(?:[^'\\\n]|\\.)*+'|\"(?:[^\"\\\n]|\\.)*+\"")
_CALL = re.compile(r"[ \t]*(?:```(?:\w+[ \t])?[ \t]*)?[A-Za-z_]\w{0,60}\.[A-Za-z_]\w{0,60}\(")
_BLOCK = re.compile(
    rf"^[ \t]*```[ \t]*(?:{_WORDS})[ \t]*\r?\n(?:(?![ \t]*```[ \t]*\r?$).*\n)*(?P<end>[ \t]*```[ \t]*\r?$)?",
    re.MULTILINE | re.IGNORECASE,
)
MOST_MARKS = 200  # of an answer that is looked into
MOST_LINE = 8192  # characters of a line that may be a call


class Spoken(NamedTuple):
    """An answer in its parts."""

    said: str  # what is outside its reasoning
    thought: str  # what is inside
    unclosed: str  # the mark of reasoning that does not end, "" where all of it does


def spoken(answer: str) -> Spoken:
    """`answer` without its reasoning, however that is marked. Without any mark all of it is said. Pure."""
    outside: list[str] = []
    thought: list[str] = []
    opened: list[tuple[str, str]] = []  # name and mark, outermost first
    literals = _Literals(answer)
    at = 0
    marks = _marks(answer)
    if len(marks) > MOST_MARKS:
        return Spoken("", answer, marks[0][1])
    for name, mark, kind, start, end in marks:
        if not opened and literals.hold(start, at):
            continue
        (thought if opened else outside).append(answer[at:start])
        at = end
        if kind == "open":
            opened.append((name, mark))
        elif kind == "block":
            thought.append(mark)
        elif opened:
            same = [number for number, (other, _) in enumerate(opened) if other == name]
            del opened[same[-1] if same else -1 :]
            if kind == "said":
                opened.clear()
        elif kind != "end":  # the answer began inside reasoning
            thought += outside
            outside.clear()
    (thought if opened else outside).append(answer[at:])
    return Spoken("".join(outside), "".join(thought).strip(), opened[0][1] if opened else "")


def _marks(answer: str) -> list[tuple[str, str, str, int, int]]:
    """Name, mark, kind, start and end of each mark, in order; blocks labelled as reasoning go with what they hold."""
    marks = [_read(mark) for mark in islice(_MARK.finditer(answer), MOST_MARKS + 1)]
    for block in islice(_BLOCK.finditer(answer), MOST_MARKS + 1):
        start, end = block.span()
        marks = [mark for mark in marks if not start <= mark[3] < end]
        kind = "block" if block["end"] else "open"
        marks.append(("block", block[0] if block["end"] else block[0].partition("\n")[0], kind, start, end))
    return sorted((mark for mark in marks if mark[2]), key=lambda mark: mark[3])


def _read(mark: re.Match[str]) -> tuple[str, str, str, int, int]:
    parts = mark.groupdict()
    kind, name = "open", (parts["name"] or parts["name2"] or "channel").lower()
    if parts["said"]:
        kind = "said"
    elif parts["channel"] is not None:
        kind = "said" if parts["channel"].lower() in _SAID_ALOUD else "open"
    elif parts["end"]:
        kind = "end" if parts["end"].startswith("<|") else "close"
    elif parts["empty"]:
        kind = ""
    elif parts["close"] or parts["close2"]:
        kind = "close"
    return name, mark[0].strip()[:40], kind, mark.start(), mark.end()


class _Literals:
    """String literals of lines that begin like a call."""

    def __init__(self, answer: str) -> None:
        self._answer = answer
        self._line = (-1, -1)
        self._spans: list[tuple[int, int]] = []

    def hold(self, at: int, since: int) -> bool:
        """Whether the sign at `at` is in one; what comes before `since` is not looked at."""
        start = max(self._answer.rfind("\n", 0, at) + 1 if at >= self._line[1] else self._line[0], since)
        if start != self._line[0]:
            end = self._answer.find("\n", at)
            self._line = (start, end if end >= 0 else len(self._answer))
            self._spans = []
            if self._line[1] - start <= MOST_LINE and _CALL.match(self._answer, start, self._line[1]):
                self._spans = [literal.span() for literal in _LITERAL.finditer(self._answer, *self._line)]
        return any(first < at < last for first, last in self._spans)
