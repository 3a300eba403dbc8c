"""A workbook with what its cells' values do not say.

Invariant: values only. `apis.documents.read.xlsx_looks` says where each comes from.
"""

from __future__ import annotations

from typing import Any

import msgspec

from apis.tasks.verify.sheets import Workbook


class SheetLooks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one sheet: what is set on all cells, and on single ones by their places; its view, and what lies on it.

    `zoom` is in per cent.
    """

    plain: dict[str, str | float | bool] = {}
    looks: dict[str, dict[str, str | float | bool]] = {}
    conditional: bool = False  # whether some looks depend on values
    freeze: str = ""  # the first cell that moves
    zoom: float = 100.0
    checks: tuple[dict[str, str], ...] = ()  # of input: attributes, ranges and formulas
    charts: tuple[dict[str, str | None], ...] = ()
    pivots: tuple[dict[str, Any], ...] = ()


class StyledWorkbook(Workbook, frozen=True, forbid_unknown_fields=True):
    """A workbook and its sheets' looks, in the same order; none where its format is not read for them."""

    looks: tuple[SheetLooks, ...] = ()
