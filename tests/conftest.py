"""Settings shared by all tests."""

import os
import sys
from pathlib import Path

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

# A slow shared core must not turn a passing property into a flaky deadline failure.
settings.register_profile("suite", deadline=None, max_examples=60)
settings.load_profile("suite")
