"""What tells that a desktop rests: the processor time of its programs, and which of them wait for the processor."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

# For each line, a number of seconds, a second thread works for so long; the first waits for it where that is short.
PROGRAM = """
import sys, threading, time
def work(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end: pass
print("begun", flush=True)
for line in sys.stdin:
    thread = threading.Thread(target=work, args=(float(line),), daemon=True)
    thread.start()
    if float(line) < 1: thread.join()
    print("done", flush=True)
"""


@pytest.fixture
def program() -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=pipe, stdout=pipe, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child
        child.kill()


@pytest.fixture
def work(program: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    from apis.guest.screen.settle import Work

    found = Work()
    monkeypatch.setattr(found, "_programs", lambda: [(program.pid, b"python3")])
    return found


def _say(program: subprocess.Popen[str], line: str) -> None:
    assert program.stdin is not None
    assert program.stdout is not None
    program.stdin.write(line)
    program.stdin.flush()
    program.stdout.readline()


def _until(true: Any) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_time_of_a_thread_that_has_ended_counts(program: subprocess.Popen[str], work: Any) -> None:
    before = work.used()
    _say(program, "0.05\n")
    _until(lambda: not work.running())
    assert work.used() - before >= 50_000_000
    rest = work.used()
    assert work.used() == rest


def test_a_second_thread_at_work_is_unrest(program: subprocess.Popen[str], work: Any) -> None:
    _until(lambda: not work.running())
    _say(program, "60\n")
    _until(work.running)
    program.kill()
    program.wait()
    assert work.used() == 0
    assert not work.running()
