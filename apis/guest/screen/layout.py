"""Which key types what: the layout in force, and the spare keys that take signs which the layout lacks.

A sign keeps its key until no place is free, and `gives_way` says so beforehand. Clients look a stroke up when they read
it, in the layout of that moment. So the last strokes must have been read by then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# Keys whose every keysym is a vendor's (of media keys and the like): nothing that may be pressed here is called so.
VENDOR = 0x10000000
# Chromium acts on these codes, whatever the layout has the key type: back, reload, search, paste, close and the like.
ACTING = {*range(136, 147), 158, 163, 164, 166, 167, 180, 181, 189, 190, 214, 223, 225, 231}
SHIFT_L = 0xFFE1
Place = tuple[int, bool]  # key code, whether with Shift


Rows = dict[int, tuple[int, int]]  # by key code: keysyms without and with Shift


def runs(rows: Rows) -> list[tuple[int, list[tuple[int, int]]]]:
    """Rows as runs of neighbours: first key code, rows. Each run is one request, of which all clients hear."""
    neighbours: list[tuple[int, list[tuple[int, int]]]] = []
    for code in sorted(rows):
        if not neighbours or code != neighbours[-1][0] + len(neighbours[-1][1]):
            neighbours.append((code, []))
        neighbours[-1][1].append(rows[code])
    return neighbours


class Layout:
    """The keys of one keyboard."""

    def __init__(self, first: int, rows: Sequence[Sequence[int]], before: Layout | None = None) -> None:
        """`rows` holds each key's keysyms; what `before` has bound there is still bound."""
        self._codes: dict[int, Place] = {}
        self._rows: Rows = {}  # of the spare keys
        lent = before._rows if before else {}
        for at, row in enumerate(rows):
            code, pair = first + at, (*row[:2], 0, 0)[:2]
            keysyms = [keysym for keysym in row if keysym]
            if any(pair) and lent.get(code) == pair:
                self._rows[code] = pair
                continue
            if code not in ACTING and all(keysym >= VENDOR for keysym in keysyms):
                self._rows[code] = (0, 0)
                continue
            for column in (1, 0):
                if pair[column]:
                    known = self._codes.get(pair[column])
                    if known is None or (known[1] and not column):
                        self._codes[pair[column]] = (code, bool(column))
        # Signs on spare keys, the one that was used longest ago first.
        kept = before._bound if before else {}
        self._bound = {
            k: place for k, place in kept.items() if any(self._rows.get(place[0], ())) and k not in self._codes
        }
        taken = set(self._bound.values())
        # Neighbours in turn, so that many signs need few requests.
        places = [(code, shifted) for code in sorted(self._rows, reverse=True) for shifted in (True, False)]
        self._free = [place for place in places if place not in taken]
        self.spare = len(places)

    def place(self, keysym: int) -> Place:
        """Where a keysym is. Raises KeyError."""
        if keysym in self._bound:
            self._bound[keysym] = self._bound.pop(keysym)
            return self._bound[keysym]
        return self._codes[keysym]

    def typed(self, keysym: int) -> bool:
        return keysym in self._codes

    def part(self, keysyms: Sequence[int]) -> int:
        """How many of `keysyms`, from the first, can be typed without one of them giving way."""
        wanted: set[int] = set()
        for at, keysym in enumerate(keysyms):
            if keysym not in self._codes:
                wanted.add(keysym)
                if len(wanted) > self.spare:
                    return at
        return len(keysyms)

    def parts(self, keysyms: Sequence[int]) -> int:
        """At least how many parts `keysyms` have that take all spare keys or fewer; 0 where none is needed."""
        return -(-len({k for k in keysyms if k not in self._codes}) // max(1, self.spare))

    def _missing(self, keysyms: Iterable[int]) -> list[int]:
        return [k for k in dict.fromkeys(keysyms) if k not in self._codes and k not in self._bound]

    def gives_way(self, keysyms: Iterable[int]) -> bool:
        """Whether signs on spare keys have to give way to `keysyms`."""
        return len(self._missing(keysyms)) > len(self._free)

    def bind(self, keysyms: Sequence[int]) -> Rows:
        """Give those of `keysyms` that no key types keys of their own; what is to be bound.

        At most as many as `part` tells.
        """
        missing = self._missing(keysyms)
        for keysym in dict.fromkeys(keysyms):
            if keysym in self._bound:
                self.place(keysym)  # used now: it does not give way
        change: Rows = {}
        for keysym in missing:
            code, shifted = self._free.pop() if self._free else self._bound.pop(next(iter(self._bound)))
            plain, upper = self._rows[code]
            # One keysym alone would be taken for a letter, and the server would give it its capital.
            self._rows[code] = change[code] = (plain, keysym) if shifted else (keysym, upper or keysym)
            self._bound[keysym] = (code, shifted)
        return change
