"""Where a text can be cut, so that the ids of its parts, one after another, are the ids of the whole.

Invariant: a text is cut only for tokenizers whose every component is known here. Any other tokenizer's texts stay
whole.

A pre-tokenizer searches from left to right and never looks back. So a cut is sound where no match of its pattern
covers it, and where the matches before it would be the same at the text's end. Three patterns are known:

- GPT-2's, before white space that follows a visible character. A match that holds white space begins with it. The one
  look ahead begins at white space, too.
- That of cl100k, which Llama 3, Qwen and GLM-4 took over, likewise. An end of line is left with the punctuation before
  it. Behind it, before a visible character, each match has ended.
- The bundled model's, behind an end of line and before a letter or digit of ASCII. A match holds either of them.

Added tokens are found in the text before that: no cut lies within one. NFC composes no character of ASCII with what
stands before it, so it passes no cut. Each word then becomes ids by itself (BPE without dropout).
"""

from __future__ import annotations

import json
import re
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
    found = _state(tokenizer.pre_tokenizer)
    pattern = next((cuts for known, cuts in _KNOWN if known == found), "")
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
