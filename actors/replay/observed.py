"""Which versions of the observation a run's demonstrations and episodes show.

Invariant: versions are only ever added. A ledger or a recording of a build that did not number observations shows the
first version.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

import msgspec

from actors.replay.database import queries
from actors.replay.database.queries import Database
from actors.replay.database.transaction import Transaction
from apis.observation import OBSERVATION_VERSION

Versions = Annotated[tuple[Annotated[int, msgspec.Meta(ge=1)], ...], msgspec.Meta(min_length=1, max_length=64)]

FIRST = (1,)
PLAYED, TAKEN_IN = "observations", "observations:taken in"  # keys of the ledger's `meta`


def opened(tx: Transaction, *, labelled: bool) -> None:
    """This build is about to play episodes; `labelled` where another life of the ledger did before."""
    _add(tx, PLAYED, (OBSERVATION_VERSION,), FIRST if labelled else ())


def taken_in(tx: Transaction, versions: Collection[int], *, later: bool) -> None:
    """Demonstrations of a recording with these versions were added; `later` where others were taken in before."""
    _add(tx, TAKEN_IN, versions, FIRST if later else ())


def _add(tx: Transaction, key: str, versions: Collection[int], before: Collection[int]) -> None:
    """Add `versions` to those under `key`; `before` are those that a ledger shows that has no such key yet."""
    known = _parsed(tx.meta(key)) or before
    tx.set_meta(key, " ".join(map(str, sorted({*known, *versions}))))


def of_episodes(database: Database) -> tuple[int, ...]:
    """Versions that desktops of this run showed, smallest first."""
    return _parsed(queries.meta(database).get(PLAYED)) or FIRST


def of_demos(database: Database) -> tuple[int, ...]:
    """Versions that the ledger's demonstrations show, smallest first; where it has none, those of its desktops."""
    held, imports = queries.demos_stored(database), queries.demos_taken_in(database)
    found = set(_parsed(queries.meta(database).get(TAKEN_IN)) or FIRST) if imports else set()
    if held > imports or not imports:
        found |= set(of_episodes(database))
    return tuple(sorted(found))


def _parsed(text: str | None) -> tuple[int, ...]:
    return tuple(int(word) for word in (text or "").split())


def as_text(versions: Collection[int]) -> str:
    """`1` or `1, 2`."""
    return ", ".join(map(str, versions))
