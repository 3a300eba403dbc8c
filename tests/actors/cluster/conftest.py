"""What tests of runs and their reports share."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report's pictures are made, and not drawn: for tests that look at none, as drawing takes most of a report."""
    from actors.cluster.report import curves, pictures
    from actors.cluster.report.drawing import Drawing, pyplot

    def empty(figure: Any, **_: Any) -> Drawing:
        pyplot().close(figure)
        return Drawing(b"", '<svg viewBox="0 0 1 1"></svg>')

    for module in (curves, pictures):
        monkeypatch.setattr(module, "drawn", empty)
