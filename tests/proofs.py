"""Longer proofs: what `make proofs` runs and `make test` leaves out.

Invariant: of each behaviour a shorter test stays in `make test`.
"""

from __future__ import annotations

from typing import Any

import pytest


def proofs(*rows: Any) -> list[Any]:
    """Rows of a parametrisation that only `make proofs` runs."""
    return [pytest.param(*(row if isinstance(row, tuple) else (row,)), marks=pytest.mark.proof) for row in rows]
