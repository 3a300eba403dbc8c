"""What tests of runs and their reports share."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report's pictures are made, and not drawn: for tests that look at none, as drawing takes most of a report."""
    from actors.cluster.report import drawing

    def empty(plot: Any, name: str, title: str, caption: str, **_: Any) -> drawing.Picture:
        drawing.pyplot().close(plot)
        return drawing.Picture(name, title, caption, b"")

    monkeypatch.setattr(drawing, "drawn", empty)
