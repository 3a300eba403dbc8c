"""What reading one document may cost.

Each bound is checked while reading, against what was read, never against what the file says of itself.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from apis.documents.read import RefusedError


@dataclass(frozen=True)
class Bounds:
    """Bounds of one workbook. `cpu_s` and `memory_bytes` are the kernel's to keep, the others the parser's."""

    members: int = 512  # files in the archive
    member_bytes: int = 32 << 20  # of one of them, unpacked
    unpacked_bytes: int = 64 << 20  # of all that are read
    ratio: int = 300  # unpacked to packed bytes, looked at beyond the first `ratio_from` bytes
    ratio_from: int = 1 << 20
    depth: int = 64  # of nested elements
    elements: int = 400_000  # in all
    sheets: int = 64
    cells: int = 50_000  # that are not empty, in all sheets
    places: int = 16 << 20  # empty or not, up to the last filled one of each row
    cell_chars: int = 32_767  # of one text or formula, as spreadsheet programs have it
    chars: int = 4 << 20  # of all texts and formulas
    looks: int = 4 << 20  # at elements of texts and slides, at those of nested tables again for each
    answer_bytes: int = 48 << 20
    cpu_s: int = 4
    memory_bytes: int = 512 << 20


class Budget:
    """What of some bounds is left; spending more than there is refuses the file."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._left: dict[str, int] = asdict(bounds)

    def spend(self, name: str, amount: int = 1) -> None:
        """Take `amount` of the bound called `name`. Raises RefusedError."""
        self._left[name] -= amount
        if self._left[name] < 0:
            raise RefusedError("zip_bomb" if name == "unpacked_bytes" else "too_big")
