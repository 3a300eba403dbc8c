"""Settings shared by all tests."""

import gc
import os
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests import messages
from tests.folders import desk_folder

# A slow shared core must not turn a passing property into a flaky failure by a clock. EXAMPLES=10 looks at ten times as
# many examples, where a test does not say how many: for a search, not for the suite.
EXAMPLES = 60 * int(os.environ.get("EXAMPLES", "1"))
settings.register_profile("suite", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=EXAMPLES)
# A check that decides over a change looks at the same examples each time; at a desk every run looks at new ones.
settings.register_profile("ci", settings.get_profile("suite"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "suite")
if os.environ.get("CI") and hasattr(providers, "_get_local_constants"):
    # Examples made of the constants of whatever modules a worker has imported would differ from check to check.
    providers._get_local_constants = lambda: providers._local_constants


SECONDS = {"desktop": 4.0, "engine": 2.0, "slow": 1.0}  # about what a test of each mark takes


@pytest.fixture(autouse=True)
def _umask_stays() -> Iterator[None]:
    """A test that claims a run leaves the next one the umask that it found: a run narrows it until it is released."""
    before = os.umask(0o022)
    os.umask(before)
    yield
    os.umask(before)


@pytest.fixture
def state_dir() -> Iterator[str]:
    """Where a test's own desktops keep their state."""
    with desk_folder() as folder:
        yield folder


@pytest.fixture
def message(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[messages.Messages]:
    """Compares sentences that users read with those of `messages.yaml`."""
    kept = messages.of_test(request, tmp_path)
    yield kept
    kept.done()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None, None, None]:
    """Mark what boots desktops: a test that asks for a folder of their state, or that says so itself.

    The longest files come first. One that is left for the end keeps one worker busy and the others idle.
    Files that boot desktops wait, and others compute: they take turns, so that all workers neither wait nor compute.
    """
    for item in items:
        if "state_dir" in getattr(item, "fixturenames", ()):
            item.add_marker("desktop")
    yield  # what is left out by its marks takes no time
    seconds: Counter[Path] = Counter()
    for item in items:
        seconds[item.path] += _seconds(item)
    waiting = {item.path for item in items if item.get_closest_marker("desktop")}
    turns: dict[Path, float] = {}
    for kind in (waiting, seconds.keys() - waiting):
        done, whole = 0.0, sum(seconds[path] for path in kind)
        for path in sorted(kind, key=lambda path: (-seconds[path], path)):
            turns[path] = done / whole
            done += seconds[path]
    items.sort(key=lambda item: (turns[item.path], item.path))


def _seconds(item: pytest.Item) -> float:
    """About how long a test takes: a fifth of a deadline of its own, and some seconds on a desktop."""
    if deadline := item.get_closest_marker("timeout"):
        return float(deadline.args[0]) / 5
    marks = {mark.name for mark in item.iter_markers()}
    return next((long for mark, long in SECONDS.items() if mark in marks), 0.05)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules that are loaded here stay: no collection of garbage looks through them, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
