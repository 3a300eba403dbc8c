"""What the base model is trained on: made-up screens and questions about them.

Invariant: a sequence knows no task. Screens, sentences and calls are drawn at random; what is trained is only what
follows from the text before it: where a named line stands, what a cue is followed by, what a line says.

One sequence is one screen in the prompt's line syntax and many short turns about it, so that a screen's tokens are
paid for once. Names of functions are noise and carry no loss.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from policy.base.words import cased, word
from policy.tokenizer_build import ELEMENTS, TAGS

if TYPE_CHECKING:
    from collections.abc import Callable

    from policy.tokenizer import Tokenizer

CUES = "to with as into from in of by at for on then and under over called named before after the a this".split()  # noqa: SIM905
_ENDS = ("", "", "", ".", ".", "!", "?", ",", " and so on.", " now", " there")
_EXTENSIONS = "txt md csv log dat ini cfg bak old tmp".split()  # noqa: SIM905
_RESULTS = ("None", "Success", "refused: no such name", "refused: not one line", "failed")
_KEYS = "ctrl alt shift tab esc up down left right home end f1 f2 f3 f4 f5 delete space".split()  # noqa: SIM905

Part = tuple[str, bool]  # text, and whether it is trained


class Screen:
    """One random screen: its text, and what the turns may ask about."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        count = rng.randint(4, 14) if rng.random() < 0.75 else rng.randint(15, 40)
        first = 1 if rng.random() < 0.4 else rng.randint(1, ELEMENTS - count + 1)
        shared = [word(rng) for _ in range(4)]  # words that turn up in several names
        self.tags = rng.sample(TAGS, min(len(TAGS), rng.randint(2, 8)))
        names: dict[str, None] = {}
        while len(names) < count:
            names[self._name(shared)] = None
        self.lines = [(f"e{first + i}", rng.choice(self.tags), name) for i, name in enumerate(names)]
        self.windows = [(f"w{i + 1}", _phrase(rng, 1, 3, title=True)) for i in range(rng.randint(1, 3))]
        self.active = rng.randrange(len(self.windows))
        self.cues = rng.sample(CUES, rng.randint(1, 4))
        self.after = {cue: _payload(rng) for cue in self.cues}
        self.target = rng.choice(self.lines)
        self.did = [_call(rng, self) for _ in range(rng.choice((0, 0, 1, 1, 2, 3, 5)))]
        self.last = f"{cased(rng, word(rng))} Success" if rng.random() < 0.6 else rng.choice(_RESULTS)
        self.info = _phrase(rng, 1, 6) if rng.random() < 0.15 else ""
        self.task = self._task()

    def _name(self, shared: list[str]) -> str:
        rng = self.rng
        draw = rng.random()
        if draw < 0.2:
            return f"{word(rng)}.{rng.choice(_EXTENSIONS)}"
        if draw < 0.26:
            return f"{cased(rng, word(rng))} {rng.randint(0, 2100)}"
        words = [rng.choice(shared) if rng.random() < 0.2 else word(rng) for _ in range(rng.choice((1, 1, 1, 2, 2, 3)))]
        return cased(rng, " ".join(words)) + ("..." if rng.random() < 0.04 else "")

    def _task(self) -> str:
        """A sentence of noise that holds every cue with its payload, and the target's name once."""
        rng = self.rng
        parts = [f"{cue} {_quoted(rng, self.after[cue])}" for cue in self.cues]
        place = rng.randint(0, len(parts))
        if place:  # what follows is no cue, so quotation marks have to say where the payload ends
            parts[place - 1] = f"{self.cues[place - 1]} '{self.after[self.cues[place - 1]]}'"
        name = _quoted(rng, self.target[2])
        parts.insert(place, name if rng.random() < 0.5 else f"{word(rng)} {name}")
        return cased(rng, _phrase(rng, 1, 3)) + " " + " ".join(parts) + rng.choice(_ENDS)

    def text(self) -> str:
        """The screen in the prompt's line syntax."""
        lines = [f"task: {self.task}", *(f"did: {call}" for call in self.did), f"app: {word(self.rng)}"]
        lines += [f"{w} {'* ' if i == self.active else ''}{title}" for i, (w, title) in enumerate(self.windows)]
        lines += [f"{e} {tag} {name}" for e, tag, name in self.lines]
        lines += [f"info: {self.info}"] if self.info else []
        return "\n".join([*lines, f"last: {self.last}"])


def _phrase(rng: Random, least: int, most: int, *, title: bool = False) -> str:
    text = " ".join(word(rng) for _ in range(rng.randint(least, most)))
    return cased(rng, text) if title else text


def _payload(rng: Random) -> str:
    draw = rng.random()
    if draw < 0.2:
        return f"{word(rng)}.{rng.choice(_EXTENSIONS)}"
    if draw < 0.28:
        return str(rng.randint(0, 99999))
    return _phrase(rng, 1, 4, title=draw < 0.4)


def _quoted(rng: Random, text: str) -> str:
    mark = rng.choice(("", "", "'", '"'))
    return f"{mark}{text}{mark}"


def _function(rng: Random) -> str:
    return f"{'Agent' if rng.random() < 0.5 else cased(rng, word(rng))}.{rng.choice(('type', 'click', word(rng)))}"


def _call(rng: Random, screen: Screen) -> str:
    """A call-like string about this screen or about nothing."""
    draw = rng.random()
    if draw < 0.35:
        source = rng.choice(list(screen.after.values())) if rng.random() < 0.6 else _phrase(rng, 1, 3)
        return f"{_function(rng)}(text='{source}')"
    if draw < 0.6:
        return f"{_function(rng)}(coordinates={rng.choice(screen.lines)[0]})"
    if draw < 0.8:
        return f"{_function(rng)}(keys=['{rng.choice(_KEYS)}', '{rng.choice('abcdefghijklmnopqrstuvwxyz')}'])"
    return f"{_function(rng)}()"


def _point(screen: Screen) -> tuple[str, list[Part]]:
    """A name, or one word of it, or tag and name -> the thought and the call that points at its line."""
    rng = screen.rng
    element, tag, name = rng.choice(screen.lines)
    full = f"{tag} {name}" if rng.random() < 0.5 else name
    return full, _pointing(screen, element, full, "")


def _pointing(screen: Screen, element: str, full: str, payload: str) -> list[Part]:
    rng = screen.rng
    if rng.random() < 0.15:
        return [(full, True), (" -> ", True), (element, True)]
    verb = word(rng)
    parts: list[Part] = [(full, True), (" -> ", True), (verb, False)]
    if payload:
        parts += [(" ", False), (payload, True)]
    parts += [(f"\n{_function(rng)}(", False), ("coordinates=", False), (element, True)]
    if payload:
        return [*parts, (", text='", False), (payload, True), ("')", True)]
    return [*parts, (")", False)]


def _put(screen: Screen) -> tuple[str, list[Part]]:
    """A line's name and a cue -> point at the line and write there what follows the cue in the sentence."""
    element, tag, name = screen.rng.choice(screen.lines)
    cue = screen.rng.choice(screen.cues)
    return f"{name} {cue}", _pointing(screen, element, f"{tag} {name}", screen.after[cue])


def _cue(screen: Screen) -> tuple[str, list[Part]]:
    """A cue -> what follows it, plain or inside a call."""
    rng = screen.rng
    cue = rng.choice(screen.cues)
    payload = screen.after[cue]
    if rng.random() < 0.4:
        return cue, [(payload, True)]
    thought: list[Part] = [(f"{cue} -> {word(rng)} ", False), (payload, True)]
    return cue, [*thought, (f"\n{_function(rng)}(text='", False), (payload, True), ("')", True)]


def _reverse(screen: Screen) -> tuple[str, list[Part]]:
    """An element's name -> its line."""
    element, tag, name = screen.rng.choice(screen.lines)
    return element, [(f"{element} -> ", False), (f"{tag} {name}", True)]


def _by_tag(screen: Screen) -> tuple[str, list[Part]]:
    """A tag that only one line has -> that line; falls back to a name."""
    tags = [tag for _, tag, _ in screen.lines]
    single = [line for line in screen.lines if tags.count(line[1]) == 1]
    if not single:
        return _point(screen)
    element, tag, _ = screen.rng.choice(single)
    return f"{tag}", _pointing(screen, element, tag, "")


def _look(screen: Screen) -> tuple[str, list[Part]]:
    """Other lines: windows, the active one, what was done last, how much was done, the last result."""
    rng = screen.rng
    choices: list[tuple[str, str]] = [("active", " ".join(screen.windows[screen.active]))]
    choices += [(title, window) for window, title in screen.windows]
    choices += [("how many", str(len(screen.did))), ("last", screen.last)]
    if screen.did:
        choices += [("did", screen.did[-1]), ("first", screen.did[0])]
    if screen.info:
        choices += [("info", screen.info)]
    question, answer = rng.choice(choices)
    return question, [(answer, True)]


_TURNS: tuple[tuple[Callable[[Screen], tuple[str, list[Part]]], int], ...] = (
    (_point, 8), (_put, 4), (_cue, 4), (_reverse, 2), (_by_tag, 1), (_look, 2),
)  # fmt: skip


def _first(screen: Screen) -> list[Part]:
    """The answer to the screen itself: the one line whose name stands in the sentence."""
    element, tag, name = screen.target
    payload = screen.after[screen.cues[-1]] if len(screen.cues) == 1 and screen.rng.random() < 0.7 else ""
    return _pointing(screen, element, f"{tag} {name}", payload)


def sequence(rng: Random, tokenizer: Tokenizer, limit: int = 512) -> tuple[list[int], list[tuple[int, int]]]:
    """One training sequence of at most `limit` tokens (a large screen alone may exceed it) and its trained ranges."""
    screen = Screen(rng)
    ids = tokenizer.prompt_ids(screen.text())
    spans: list[tuple[int, int]] = []
    _append(ids, spans, tokenizer, _first(screen))
    kinds = [kind for kind, _ in _TURNS]
    shares = [share for _, share in _TURNS]
    while len(ids) < limit - 40:
        question, answer = rng.choices(kinds, shares)[0](screen)
        ids += tokenizer.prompt_ids(question)
        _append(ids, spans, tokenizer, answer)
    return ids, spans


def _append(ids: list[int], spans: list[tuple[int, int]], tokenizer: Tokenizer, parts: list[Part]) -> None:
    for text, trained in [*parts]:
        start = len(ids)
        ids += tokenizer.encode(text)
        if trained:
            _extend(spans, start, len(ids))
    ids.append(tokenizer.eos_id)
    _extend(spans, len(ids) - 1, len(ids))


def _extend(spans: list[tuple[int, int]], start: int, end: int) -> None:
    if spans and spans[-1][1] == start:
        spans[-1] = (spans[-1][0], end)
    else:
        spans.append((start, end))
