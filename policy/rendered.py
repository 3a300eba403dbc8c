"""A rendered conversation to ids: what the template says may be control tokens, what the contents say is text.

Invariant: no control token comes out of a content, nor out of one together with what a template puts next to it. Other
ids are those of the whole text, which is cut at control tokens alone.
"""

from __future__ import annotations

import json
import re
import secrets
from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from policy.known import KnownParts

_FRESH = 200  # characters by which the newest content is found


class _Control(NamedTuple):
    """A control token; some take the white space around it with them."""

    id: int
    lstrip: bool
    rstrip: bool


class RenderedIds:
    """Ids of the conversations of one tokenizer; safe to share between threads."""

    def __init__(self, backend: str, control: Sequence[str]) -> None:
        state = json.loads(backend)
        named = {one["content"]: one for one in state["added_tokens"]}
        self._control = {
            text: _Control(named[text]["id"], named[text]["lstrip"], named[text]["rstrip"]) for text in control
        }
        for text in control:  # no text makes a special token where specials are encoded as text
            named[text]["special"] = True
        self.content = Backend.from_str(json.dumps(state))
        self.content.encode_special_tokens = True
        self.content.no_padding()
        self.content.no_truncation()
        self._ids = frozenset(one.id for one in self._control.values())
        longest_first = sorted(control, key=len, reverse=True)
        tokens = "|".join(map(re.escape, longest_first)) or "(?!)"
        # What a content says of a control token goes through the template under a random name.
        self._name = f"q{secrets.token_hex(8)}x"
        self._in_content = re.compile(tokens)
        self._in_rendered = re.compile(rf"({self._name}\d+z|{tokens})")
        self._begins = {text[:at] for text in control for at in range(1, len(text))}
        self._ends = {text[at:] for text in control for at in range(1, len(text))}
        self._longest = max(map(len, control), default=0)
        # Some tokenizers put a space in front of a text, but not of one behind a token.
        before = f"q{secrets.token_hex(8)}y"
        self.content.add_tokens([AddedToken(before, normalized=False, special=False)])
        same = all(self._encoded(before + text)[1:] == self._encoded(text) for text in ("x", " x", "\n"))
        self._parts = KnownParts(self.content, "" if same else before)

    def hidden(self, text: str, names: list[str]) -> str:
        """A content as it goes through the template; what was hidden in it is put behind `names`."""

        def named(found: str) -> str:
            names.append(found)
            return f"{self._name}{len(names) - 1}z"

        text = self._in_content.sub(lambda found: named(found[0]), text)
        # The ends as well: they might complete what the template or the next content says.
        for size in range(min(self._longest, len(text)), 0, -1):
            if text[-size:] in self._begins:
                text = text[:-size] + named(text[-size:])
                break
        for size in range(min(self._longest, len(text)), 0, -1):
            if text[:size] in self._ends:
                return named(text[:size]) + text[size:]
        return text

    def ids(self, rendered: str, names: Sequence[str], newest: str = "") -> array[int]:
        """The ids of what a template made of hidden contents. `newest` is the content that no other prompt has."""
        pieces: list[str | _Control] = [""]
        for piece in self._in_rendered.split(rendered):
            if control := self._control.get(piece):
                pieces += [control, ""]
            else:
                pieces[-1] = str(pieces[-1]) + self._shown(piece, names)
        for at, (one, other) in enumerate(pairwise(pieces)):
            if isinstance(one, _Control) and one.rstrip:
                pieces[at + 1] = str(other).lstrip()
            if isinstance(other, _Control) and other.lstrip:
                pieces[at] = str(one).rstrip()
        fresh = newest.strip()[:_FRESH]
        ids = array("I")
        for at, piece in enumerate(pieces):
            if isinstance(piece, _Control):
                ids.append(piece.id)
            elif piece:
                ids.frombytes(self._text(piece, first=at == 0, again=not fresh or fresh not in piece))
        return ids

    def _shown(self, piece: str, names: Sequence[str]) -> str:
        if not piece.startswith(self._name):
            return piece
        number = piece.removeprefix(self._name).removesuffix("z")
        return names[int(number)] if number.isdecimal() and int(number) < len(names) else piece

    def _text(self, text: str, *, first: bool, again: bool) -> bytes:
        if first and self._parts.before:
            found = array("I", self._encoded(text)).tobytes()
        else:
            found = self._parts.ids_again(text) if again else self._parts.ids(text)
        if self._ids.isdisjoint(memoryview(found).cast("I")):
            return found
        # A unigram model makes a control token of its text alone: the text is broken then. What stays is the token for
        # what the model does not know.
        broken = self._in_content.sub(lambda said: f"{said[0][0]} {said[0][1:]}", text)
        return found if broken == text else self._text(broken, first=first, again=again)

    def _encoded(self, text: str) -> list[int]:
        return self.content.encode(text, add_special_tokens=False).ids
