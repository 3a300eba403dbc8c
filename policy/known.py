"""The ids of texts. A part of a text that came before is not made into ids again.

Invariant: the ids are those of the whole text. What is kept stays within `KEPT_BYTES`; what was not asked for since
long goes first.
"""

from __future__ import annotations

import sys
import threading
from array import array

from tokenizers import Tokenizer

from policy.cuts import cut_of, whole

KEPT_BYTES = 8 << 20  # of parts and their ids, with what Python adds to each
_ENTRY = 100  # bytes of a dict's place


class KnownParts:
    """Texts to ids, four bytes each; safe to share between threads. `tokenizer` is not changed from now on.

    `before` is a token of its own: texts have the ids that they have behind it, if it is not "".
    """

    def __init__(self, tokenizer: Tokenizer, before: str = "") -> None:
        self._tokenizer = tokenizer
        self.before = before
        self._cut = whole if before else cut_of(tokenizer)
        self._lock = threading.Lock()
        # Two ages: what is not asked for until the newer one is full is forgotten.
        self._newer: dict[str, bytes] = {}
        self._older: dict[str, bytes] = {}
        self._held = 0  # bytes of the newer age

    @property
    def held_bytes(self) -> int:
        """What the newer age holds; the older one holds at most half of `KEPT_BYTES`."""
        return self._held

    def ids(self, text: str) -> bytes:
        """Ids of a text without surrogates, as unsigned numbers of this machine's byte order."""
        if self._cut is whole:  # it may never come again, and would push out what does
            return self._made([text])[0]
        parts, known = self._cut(text), self._newer
        if missing := set(parts).difference(known):
            known = self._with(missing, known)
        return b"".join(map(known.__getitem__, parts))

    def ids_again(self, text: str) -> bytes:
        """The same of a text that stands in many prompts: it is kept whole."""
        known = self._newer
        if text not in known:
            known = self._kept({text: self._older.get(text) or self.ids(text)}, known)
        return known[text]

    def _with(self, parts: set[str], known: dict[str, bytes]) -> dict[str, bytes]:
        older = self._older
        found = {part: older[part] for part in parts.intersection(older)}
        fresh = list(parts.difference(found))
        found |= zip(fresh, self._made(fresh), strict=True)
        return self._kept(found, known)

    def _made(self, parts: list[str]) -> list[bytes]:
        # Without offsets of the tokens, which nothing here needs; and unlike `encode` it lets other threads run.
        texts = [self.before + part for part in parts] if self.before else parts
        made = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [array("I", each.ids[bool(self.before) :]).tobytes() for each in made]

    def _kept(self, found: dict[str, bytes], known: dict[str, bytes]) -> dict[str, bytes]:
        """`known` with what was `found`, which is kept where it is no larger than an age."""
        size = sum(sys.getsizeof(part) + sys.getsizeof(ids) + _ENTRY for part, ids in found.items())
        if size > KEPT_BYTES // 2:
            return known | found
        with self._lock:
            if self._held + size > KEPT_BYTES // 2:
                self._older, self._newer, self._held = self._newer, {}, 0
            self._newer |= found
            self._held += size
        return known if known is self._newer else known | found
