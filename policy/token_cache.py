"""The ids of texts: a part of a text that came before is not made into ids again.

A text is cut only for tokenizers whose every component is known here, so that the ids of its parts, one after another,
are the ids of the whole. Any other tokenizer's texts stay whole.

A pre-tokenizer searches from left to right and never looks back. So a cut is sound where no match of its pattern
covers it, and where the matches before it would be the same at the text's end. Three patterns are known:

- GPT-2's, before white space that follows a visible character. A match that holds white space begins with it. The one
  look ahead begins at white space, too.
- That of cl100k, which Llama 3, Qwen and GLM-4 took over, likewise. An end of line is left with the punctuation before
  it. Behind it, before a visible character, each match has ended.
- The bundled model's, behind an end of line and before a letter or digit of ASCII. A match holds either of them.

Added tokens are found in the text before that: no cut lies within one. NFC composes no character of ASCII with what
comes before it, so it passes no cut. Each word then becomes ids by itself (BPE without dropout).
"""

from __future__ import annotations

import json
import re
import sys
import threading
from array import array
from collections.abc import Callable
from itertools import accumulate
from typing import Any

from tokenizers import Tokenizer, models

Cut = Callable[[str], list[str]]

# What any version of Unicode takes for white space, and some more. Blank, tab and end of line are it in all of them.
_BLANK = r"\t-\r\x1c-\x20\x85\xa0\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff"
_RARE = r"\x0b-\r\x1c-\x1f\x85\xa0\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff"


def _before_blanks(rare: str, end: str = "") -> str:
    """A part: blanks, and what follows until a blank that is not `rare`; `end` is what a cut may also stand behind."""
    on = rf"[{rare}][{_BLANK}]*" + (f"(?<!{end})" if end else "")
    return rf"[{_BLANK}]*[^{_BLANK}]+(?:{on}[^{_BLANK}]+)*(?:[{rare}][{_BLANK}]*)?|[{_BLANK}]+"


_GPT2 = _before_blanks(_RARE)
_CL100K = _before_blanks(rf"\n{_RARE}", r"\n")
_OURS = r"(?:[^\n]*\n(?=[^A-Za-z0-9]{}))*[^\n]*\n?"  # more places that are no cuts come before the bracket
_BYTES = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
_OF_CL100K = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)


def _split_by(pattern: str) -> Any:
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, _BYTES]}


_KNOWN = (
    ({**_BYTES, "use_regex": True}, _GPT2),
    (_split_by(_OF_CL100K), _CL100K),
    (_split_by(_OF_CL100K.replace("{1,3}", "")), _CL100K),
    (_split_by(r"[A-Za-z]+|\d{1,2}|[^A-Za-z0-9]+"), _OURS),
)


def cut_of(tokenizer: Tokenizer) -> Cut:
    """How to cut texts for `tokenizer`, which adds no special tokens to them; `whole` where nothing is certain."""
    splits = _state(tokenizer.pre_tokenizer)
    pattern = next((cuts for known, cuts in _KNOWN if known == splits), "")
    normal = _state(tokenizer.normalizer)
    sound = (
        pattern
        and (normal is None or (normal == {"type": "NFC"} and pattern is not _OURS))
        and isinstance(tokenizer.model, models.BPE)
        and not tokenizer.model.dropout
        and tokenizer.truncation is None
        and tokenizer.padding is None
        and _passes(_state(tokenizer.post_processor))
    )
    added = [] if not sound else list(tokenizer.get_added_tokens_decoder().values())
    if not sound or any(token.lstrip or token.rstrip for token in added):
        return whole
    if any(token.single_word and token.content != token.content.strip() for token in added):
        return whole
    contents = [token.content for token in added]
    if pattern is _OURS:
        rests = [text[at + 1 :] for text in contents for at, char in enumerate(text[:-1]) if char == "\n"]
        pattern = _OURS.format("".join(f"|{re.escape(rest)}" for rest in rests))
    elif any(_cuts(pattern, text) for text in contents):
        return whole
    parts = re.compile(pattern).findall
    return lambda text: list(filter(None, parts(text)))


def whole(text: str) -> list[str]:
    """The text as its only part."""
    return [text]


def _cuts(pattern: str, token: str) -> bool:
    """Whether a cut may lie within a token. What a text has around it may bring cuts that it has not by itself."""
    for before in ("", "x", "x\n"):
        ends = accumulate(map(len, re.findall(pattern, f"{before}{token}x")))
        if any(0 < end - len(before) < len(token) for end in ends):
            return True
    return False


def _state(component: Any) -> Any:
    """A component as tokenizer.json has it, but for what concerns offsets alone."""
    return None if component is None else _without_offsets(json.loads(component.__getstate__()))


def _without_offsets(state: Any) -> Any:
    if isinstance(state, list):
        return [_without_offsets(each) for each in state]
    if isinstance(state, dict):
        return {name: _without_offsets(value) for name, value in state.items() if name != "trim_offsets"}
    return state


def _passes(processor: Any) -> bool:
    """Whether what comes behind the model leaves ids as they are, without special tokens."""
    match processor:
        case None | {"type": "ByteLevel"}:
            return True
        case {"type": "TemplateProcessing", "single": list(pieces)}:
            return [piece["Sequence"]["id"] for piece in pieces if "Sequence" in piece] == ["A"]
        case {"type": "Sequence", "processors": list(parts)}:
            return all(map(_passes, parts))
    return False


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
        """The same of a text that is in many prompts: it is kept whole."""
        known = self._newer
        if text not in known:
            known = self._kept({text: self._older.get(text) or self.ids(text)}, known)
        return known[text]

    def _with(self, parts: set[str], known: dict[str, bytes]) -> dict[str, bytes]:
        older = self._older
        kept = {part: older[part] for part in parts.intersection(older)}
        fresh = list(parts.difference(kept))
        kept |= zip(fresh, self._made(fresh), strict=True)
        return self._kept(kept, known)

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
