"""Suggestions for people who mistyped: always one of the right answers. What is refused names its key."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from runtime.errors import ComputerRLError, ConfigError


@contextmanager
def blamed(what: str) -> Iterator[None]:
    """Have what is refused within the block begin with `what`. Raises ConfigError."""
    try:
        yield
    except ComputerRLError as error:
        raise ConfigError(f"{what}{error}") from None


def nearest(word: str, options: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The option most like `word`, or None when none is alike (from 0, not at all, to 1, equal)."""
    by_folded = {option.casefold().replace("-", "_"): option for option in options}
    folded = word.casefold().replace("-", "_")
    found = difflib.get_close_matches(folded, by_folded, n=1, cutoff=cutoff)
    if found:
        return by_folded[found[0]]
    # A word of it, or the beginning of one: `rate` is none of `generate`.
    starts = [option for key, option in by_folded.items() if folded and f"_{folded}" in f"_{key}"]
    return starts[0] if len(starts) == 1 else None


def hint(word: str, options: Iterable[str], *, shown: int = 12, cutoff: float = 0.6) -> str:
    """A clause for the end of an error line: the nearest option, else the options themselves."""
    known = list(options)
    if (best := nearest(word, known, cutoff=cutoff)) is not None:
        return f"did you mean {best}?"
    if not known:
        return "there are none"
    more = f" and {len(known) - shown} more" if len(known) > shown else ""
    return f"known: {', '.join(known[:shown])}{more}"
