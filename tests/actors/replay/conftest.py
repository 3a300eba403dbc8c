"""Begins runs of a ledger."""

from functools import partial
from pathlib import Path

import pytest

from tests.actors.replay.ledger_tools import Play, Start


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Begins a run whose ledger has the given rules."""
    return partial(Play, tmp_path)
