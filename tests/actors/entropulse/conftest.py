"""Lets the tests here import `ledger_tools`, so that decisions meet a real ledger."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "replay"))
