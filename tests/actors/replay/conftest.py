"""Lets the tests here import `ledger_tools`, and begins runs."""

import sys
from functools import partial
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from ledger_tools import Play, Start


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Begins a run whose ledger has the given rules."""
    return partial(Play, tmp_path)
