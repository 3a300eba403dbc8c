"""What the base model is trained on: made-up screens and questions about them.

A sequence knows no task: screens, sentences and calls are drawn at random, and no word list is taken from a task suite.
Only what follows from the text before it is trained: where a named line is, what follows a cue, what a line says.

A sequence is a screen in the prompt's line syntax. Its sentence names some of its lines, or quotes some words. The
answer points at a line that the sentence names, among lines that it does not name. In some sequences an earlier call
has kept the name of the line that is meant (`content='...'`). A policy has to learn here to use what it noted
elsewhere. It can't learn that from its own trials as long as nothing it does depends on it. Every fifth sequence goes
on with many short turns about the screen, so that its tokens are paid for once. Names of functions are noise and carry
no loss.
"""

# ruff: noqa: SIM905 - a list of words reads best as words

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from policy.tokenizer import Tokenizer

ELEMENTS = 60  # names like e12 that are a token each
# The accessibility roles that toolkits use, as tags of observation lines.
TAGS = tuple(
    """alert application canvas check-box check-menu-item combo-box dialog document-text document-web entry filler
    heading icon image label layered-pane link list list-item menu menu-bar menu-item page-tab panel paragraph
    password-text push-button radio-button radio-menu-item scroll-bar section slider spin-button static status-bar
    table table-cell table-column-header terminal text toggle-button tool-bar tree-item window""".split()
)
COMMON = tuple(Path(__file__).with_name("words.txt").read_text(encoding="ascii").split())


CUES = "to with as into from in of by at for on then and under over called named before after the a this".split()
_ENDS = ("", "", "", ".", ".", "!", "?", ",", " and so on.", " now", " there")
_EXTENSIONS = "txt md csv log dat ini cfg bak old tmp".split()
_RESULTS = ("None", "Success", "refused: no such name", "refused: not one line", "failed")
_KEYS = "ctrl alt shift tab esc up down left right home end f1 f2 f3 f4 f5 delete space".split()

_KEPT = 0.25  # share of the other sequences, those with tables aside, in which a call kept a line's name
_CUED = 0.2  # share of sequences with many turns; they are some three times as long as the others

Part = tuple[str, bool]  # text, and whether it is trained

_ONSETS = tuple(
    "b bl br c ch cl cr d dr f fl fr g gl gr h j k kl l m n p ph pl pr qu r s sc sh sk sl sm sn sp st str t th tr v w "
    "wh y z".split()
)
_VOWELS = tuple("a e i o u a e i o u a e o ai au ea ee ie oa oo ou y".split())
_CODAS = (*"b ck d f g k l ll ld lt m mp n nd ng nk nt p r rd rk rm rn rt s sh sk ss st t th x".split(), *[""] * 24)
_ENDINGS = tuple("al ble ed en er es est ful ing ion ity ive le less ly ment ness or ous s ted ting tion ure y".split())
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def invented(rng: Random) -> str:
    """A word that looks like English and is mostly none."""
    syllables = rng.choice((1, 2, 2, 2, 3))
    word = "".join(rng.choice(_ONSETS) + rng.choice(_VOWELS) + rng.choice(_CODAS) for _ in range(syllables))
    if rng.random() < 0.2:
        word += rng.choice(_ENDINGS)
    return word[: rng.randint(5, 12)]


def word(rng: Random) -> str:
    """One word, mostly lower case: common, invented, or letters at random."""
    draw = rng.random()
    if draw < 0.45:
        text = rng.choice(COMMON)
        if rng.random() < 0.15:
            text += rng.choice(_ENDINGS)
    elif draw < 0.9:
        text = invented(rng)
    else:
        text = "".join(rng.choices(_LETTERS, k=rng.randint(2, 7)))
    return text


def cased(rng: Random, text: str) -> str:
    """The text as a label would show it: often with a capital, seldom all in capitals."""
    draw = rng.random()
    if draw < 0.5:
        return text[:1].upper() + text[1:]
    return text.upper() if draw < 0.54 else text


class Screen:
    """One random screen: its text, and what the turns may ask about."""

    def __init__(self, rng: Random, *, cued: bool) -> None:
        self.rng = rng
        count = rng.randint(4, 14) if rng.random() < 0.75 else rng.randint(15, 40)
        first = 1 if rng.random() < 0.4 else rng.randint(1, ELEMENTS - count + 1)
        self.shared = [word(rng) for _ in range(4)]  # words that turn up in several names
        self.tags = rng.sample(TAGS, min(len(TAGS), rng.randint(2, 8)))
        names: dict[str, None] = {}
        while len(names) < count:
            names[self._name()] = None
        lines = [(rng.choice(self.tags), name) for name in names]
        at = rng.randint(0, count)
        self.lines = [(f"e{first + i}", *line) for i, line in enumerate(lines[:at])]
        first += at
        self.grid, self.note = ({}, []) if rng.random() < 0.6 or first + count > 20 else (_grid(rng), [])
        if not self.grid and rng.random() < 0.3 and first < 20:
            self.note = [(word(rng), _payload(rng)) for _ in range(rng.randint(2, 4))]
        cells = [("table-cell", f"{address} {text}".rstrip()) for address, text in self.grid.items()]
        cells += [("text", "\\n".join(f"{key}: {value}" for key, value in self.note))] if self.note else []
        self.extra = [(f"e{first + i}", *cell) for i, cell in enumerate(cells)]
        after = first + len(cells)
        self.lines += [(f"e{after + i}", *line) for i, line in enumerate(lines[at:])]
        self.marked = rng.choice([*self.lines, *self.extra])[0] if rng.random() < 0.5 else ""
        self.windows = [(f"w{i + 1}", _phrase(rng, 1, 3, title=True)) for i in range(rng.randint(1, 3))]
        self.active = rng.randrange(len(self.windows))
        self.cues = rng.sample(CUES, rng.randint(1, 4)) if cued else []
        self.after = {cue: _payload(rng) for cue in self.cues}
        self.targets = rng.sample(self.lines, 1 if cued else rng.choice((1, 1, 2, 3)))  # as the sentence orders them
        self.cell = self.sought = ("", "", "")
        if self.grid and not cued:
            self._seek()
        self.kept = rng.choice(self.lines) if not cued and not self.cell[0] and rng.random() < _KEPT else ("", "", "")
        if self.kept[0]:
            self.targets = [line for line in self.targets if line is not self.kept]
        self.quotation = "" if cued or rng.random() < 0.5 else _payload(rng)
        self.did = [_call(rng, self) for _ in range(rng.choice((0, 0, 1, 1, 2, 3, 5)))]
        if self.kept[0]:
            self.did.insert(rng.randint(0, len(self.did)), f"{_function(rng)}(content='{self.kept[2]}')")
        self.last = f"{cased(rng, word(rng))} Success" if rng.random() < 0.6 else rng.choice(_RESULTS)
        self.info = _phrase(rng, 1, 6) if rng.random() < 0.15 else ""
        self.task = self._cued_task() if cued else self._plain_task()

    def _name(self) -> str:
        rng = self.rng
        draw = rng.random()
        if draw < 0.2:
            return f"{word(rng)}.{rng.choice(_EXTENSIONS)}"
        if draw < 0.26:
            return f"{cased(rng, word(rng))} {rng.randint(0, 2100)}"
        words = [
            rng.choice(self.shared) if rng.random() < 0.2 else word(rng) for _ in range(rng.choice((1, 1, 1, 2, 2, 3)))
        ]
        return cased(rng, " ".join(words)) + ("..." if rng.random() < 0.04 else "")

    def _seek(self) -> None:
        """Choose a cell: the sentence names it by its address, or by what comes first in its row and its column."""
        rng = self.rng
        address = rng.choice([place for place in self.grid if place[0] != "A" and place[1] != "1"])
        self.cell = next(line for line in self.extra if line[2].split(" ")[0] == address)
        if rng.random() < 0.5:
            self.sought = (address, self.grid[f"A{address[1]}"], self.grid[f"{address[0]}1"])
        self.targets = []

    def _cued_task(self) -> str:
        """A sentence of noise that holds every cue with its payload, and the target's name once."""
        rng = self.rng
        parts = [f"{cue} {_quoted(rng, self.after[cue])}" for cue in self.cues]
        place = rng.randint(0, len(parts))
        if place:  # what follows is no cue, so quotation marks have to say where the payload ends
            parts[place - 1] = f"{self.cues[place - 1]} '{self.after[self.cues[place - 1]]}'"
        name = _quoted(rng, self.targets[0][2])
        parts.insert(place, name if rng.random() < 0.5 else f"{word(rng)} {name}")
        return cased(rng, _phrase(rng, 1, 3)) + " " + " ".join(parts) + rng.choice(_ENDS)

    def _plain_task(self) -> str:
        """A sentence of noise that names the targets and, between quotation marks, the quotation."""
        rng = self.rng
        noise = [_phrase(rng, 1, 3) for _ in range(rng.randint(0 if self.targets else 1, 3))]
        noise += rng.sample(CUES, rng.randint(0, 3))
        noise += [self._name()] if rng.random() < 0.4 else []  # looks like a name, and is nowhere on the screen
        noise += [f"'{self.quotation}'"] if self.quotation else []
        if self.sought[0]:
            noise += [_quoted(rng, self.sought[1]), _quoted(rng, self.sought[2])]
        elif self.cell[0]:
            noise.append(self.cell[2].split(" ")[0])
        words = [*noise, *[""] * len(self.targets)]
        rng.shuffle(words)
        names = iter(self.targets)
        start = words[0] if self.cell[0] else cased(rng, words[0])  # a name keeps its case
        return " ".join([start or next(names)[2], *(text or next(names)[2] for text in words[1:])]) + rng.choice(_ENDS)

    def text(self) -> str:
        """The screen in the prompt's line syntax."""
        lines = [f"task: {self.task}", *(f"did: {call}" for call in self.did), f"app: {word(self.rng)}"]
        lines += [f"{w} {'* ' if i == self.active else ''}{title}" for i, (w, title) in enumerate(self.windows)]
        listed = sorted([*self.lines, *self.extra], key=lambda line: int(line[0][1:]))
        lines += [f"{e} {tag} {name}{' *' if e == self.marked else ''}" for e, tag, name in listed]
        lines += [f"info: {self.info}"] if self.info else []
        return "\n".join([*lines, f"last: {self.last}"])


def _phrase(rng: Random, least: int, most: int, *, title: bool = False) -> str:
    text = " ".join(word(rng) for _ in range(rng.randint(least, most)))
    return cased(rng, text) if title else text


def _grid(rng: Random) -> dict[str, str]:
    """A table by its cells' addresses: words on top and on the left, numbers and a few gaps elsewhere."""
    columns, rows = rng.randint(2, 4), rng.randint(3, 6)
    drawn: dict[str, None] = {}
    while len(drawn) < columns + rows:
        drawn[word(rng)] = None
    words = iter(drawn)
    return {
        f"{'ABCD'[column]}{row}": next(words)
        if column == 0 or row == 1
        else ""
        if rng.random() < 0.1
        else str(rng.randint(1, 999))
        for row in range(1, rows + 1)
        for column in range(columns)
    }


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
        known = [*screen.after.values(), screen.quotation]
        source = rng.choice(known) if rng.random() < 0.6 else _phrase(rng, 1, 3)
        return f"{_function(rng)}({rng.choice(('text', 'text', 'content'))}='{source}')"
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
    lead = f"{element} " if rng.random() < 0.6 else ""
    return full, _pointing(screen, element, f"{lead}{tag} {name}" if lead else full, "")


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
    lead = f"{element} " if screen.rng.random() < 0.6 else ""
    return f"{name} {cue}", _pointing(screen, element, f"{lead}{tag} {name}", screen.after[cue])


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


def _read(screen: Screen) -> tuple[str, list[Part]]:
    """A key of the note -> its value, plain or inside a call; falls back to a name."""
    rng = screen.rng
    if not screen.note:
        return _point(screen)
    key, value = rng.choice(screen.note)
    if rng.random() < 0.5:
        return key, [(value, True)]
    return key, [(f"{key} -> {word(rng)}\n{_function(rng)}(content='", False), (value, True), ("')", True)]


_TURNS: dict[Callable[[Screen], tuple[str, list[Part]]], int] = dict(
    zip((_point, _put, _cue, _reverse, _by_tag, _look, _read), (8, 3, 4, 2, 1, 2, 1), strict=True)
)


def _first(screen: Screen) -> list[Part]:
    """The answer to the screen itself, and what the sentence quotes.

    The line whose name a call kept, otherwise the first line whose name is in the sentence.
    """
    payload = screen.quotation
    if screen.cell[0]:
        return _cell(screen)
    element, tag, name = screen.kept if screen.kept[0] else screen.targets[0]
    tag = f"{element} {tag}"
    if len(screen.cues) == 1 and screen.rng.random() < 0.7:
        payload = screen.after[screen.cues[0]]
    elif payload and screen.rng.random() < 0.4:
        return _quote(screen)
    return _pointing(screen, element, f"{tag} {name}", payload)


def _cell(screen: Screen) -> list[Part]:
    """Where the row and the column begin, the cell, and what the sentence quotes to go there."""
    rng = screen.rng
    element, tag, name = screen.cell
    address, item, column = (name.split(" ")[0], *screen.sought[1:])
    parts: list[Part] = []
    if screen.sought[0]:
        parts = [(f"{item} A{address[1]}, {column} {address[0]}1", True), (" -> ", True)]
    parts += [(f"{element} {tag} {address}", True), (" -> ", True), (word(rng), False)]
    if rng.random() < 0.5:
        parts += [(f"\n{_function(rng)}(cell='", False), (address, True)]
        parts += [("', value='", False), (screen.quotation, True)] if screen.quotation else []
        return [*parts, ("')", True)]
    parts += [(f"\n{_function(rng)}(coordinates=", False), (element, True)]
    return (
        [*parts, (", text='", False), (screen.quotation, True), ("')", True)]
        if screen.quotation
        else [*parts, (")", True)]
    )


def _quote(screen: Screen) -> list[Part]:
    rng = screen.rng
    return [(f"{word(rng)} -> {word(rng)}\n{_function(rng)}(text='", False), (screen.quotation, True), ("')", True)]


def _plain_turns(screen: Screen) -> Iterator[tuple[str, list[Part]]]:
    """The other names of a plain sentence in its order, then its quotation."""
    for element, tag, name in screen.targets[0 if screen.kept[0] else 1 :]:
        yield "next", _pointing(screen, element, f"{element} {tag} {name}", "")
    if screen.quotation:
        yield "quote", _quote(screen)
    for _ in range(2 if screen.note else 0):
        yield _read(screen)


def sequence(rng: Random, tokenizer: Tokenizer, limit: int = 512) -> tuple[list[int], list[tuple[int, int]]]:
    """One training sequence and its trained ranges.

    It has at most `limit` tokens, unless the screen alone is larger, and often far fewer.
    """
    cued = rng.random() < _CUED
    screen = Screen(rng, cued=cued)
    ids = tokenizer.prompt_ids(screen.text())
    spans: list[tuple[int, int]] = []
    _append(ids, spans, tokenizer, _first(screen))
    for question, answer in _cued_turns(screen) if cued else _plain_turns(screen):
        if len(ids) >= limit - 40:
            break
        ids += tokenizer.prompt_ids(question)
        _append(ids, spans, tokenizer, answer)
    return ids, spans


def _cued_turns(screen: Screen) -> Iterator[tuple[str, list[Part]]]:
    kinds, shares = list(_TURNS), list(_TURNS.values())
    while True:
        yield screen.rng.choices(kinds, shares)[0](screen)


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
