"""Where what a command says can't go: full and closed standard output, a reader who leaves; damaged ledgers."""

from __future__ import annotations

import errno
import io
import json
import os
import subprocess
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cluster import output
from actors.cluster.runs import execute, ledgers
from actors.cluster.runs.run_reader import RoundNow, RunNow, SeatNow, StepNow
from actors.replay.database.ledger_file import connect

COMPUTERRL = [sys.executable, "-P", "-m", "actors.cluster.cli"]
ROOT = Path(__file__).resolve().parents[3]


def told(words: str, to: str) -> subprocess.CompletedProcess[str]:
    line = f"exec {' '.join(COMPUTERRL)} {words} {to}"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=False, env=env)


@pytest.mark.parametrize("words", ["keys --json", "--help"])
@pytest.mark.slow
def test_a_full_standard_output_is_one_line(words: str) -> None:
    found = told(words, "> /dev/full")
    assert (found.returncode, found.stderr) == (
        1,
        "computerrl: standard output can't be written: No space left on device\n",
    )


@pytest.mark.slow
def test_a_reader_who_leaves_is_no_fault() -> None:
    found = told("keys", "| head -n 1")
    assert (found.returncode, found.stderr) == (0, "")


def test_a_damaged_ledger_is_told_and_a_sound_one_is_none(tmp_path: Path) -> None:
    assert ledgers.damage(tmp_path) == ""
    path = tmp_path / "ledger.sqlite"
    database = connect(path)[0]
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    assert ledgers.damage(tmp_path) == ""
    whole = path.read_bytes()
    path.write_bytes(whole[:8192] + b"\xff" * (len(whole) - 8192))
    assert "damaged" in ledgers.damage(tmp_path) or "malformed" in ledgers.damage(tmp_path)
    path.write_bytes(b"no database " * 400)
    assert "can't be read" in ledgers.damage(tmp_path)


class Gone(io.StringIO):
    """A terminal that is gone."""

    def isatty(self) -> bool:
        return True

    def write(self, _text: str) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_terminal_that_is_gone_ends_the_telling_and_not_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Gone())
    execute.RunDisplay().note("still at work")


def test_a_terminal_shows_the_newest_line_of_a_run_in_place_of_the_last() -> None:
    step = StepNow(version="0.3", phase="rl", success=0.5, figures={"loss": 0.1, "entropy": 0.3})
    played = RoundNow(
        name="after_bc", version="0.1", played=4, planned=4, successes=1, closed=True, step=1, temperature=1.0,
        low=0.0, high=0.7,
    )  # fmt: skip
    seats = [SeatNow(name=f"desktop/{n}", trace="g1.0" * n, task="", token=0, success=False) for n in (0, 1)]
    now = RunNow(
        run="x", state="running", reason="", file="smoke", started_s=0.0, harder=False, phase="rl", done=3, whole=9,
        left_s=70.0, trained="0.3", steps={}, curve=[step], rounds=[played], samplers=[], episodes={},
        episodes_per_min=12.0, faults={}, staleness={"0": 3, "1": 1}, groups={}, endings={}, stages_s={}, quarantine={},
        machines={}, seats=seats,
    )  # fmt: skip
    known = {
        "step": "3/9",
        "left": "1m10s",
        "success": "0.50",
        "held-out": "0.25",
        "seats busy": "1/4",
        "staleness": "0.25",
    }
    assert known.items() <= dict(execute.cells(now, 4)).items()
    with terminal(60) as out:
        shown = execute.RunDisplay()
        shown.show(now, 4, 99.0)
        shown.note("a note")
    newest, note = out.getvalue().split("\r\x1b[K")[1:]
    assert (len(newest), note) == (59, "a note\n")
    assert "phase RL  step 3/9  left 1m10s" in newest


@contextmanager
def terminal(room: int) -> Iterator[io.StringIO]:
    """Standard output as a terminal of `room` characters."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("COLUMNS", str(room))
        out = io.StringIO()
        out.isatty = lambda: True  # type: ignore[method-assign]
        patched.setattr(sys, "stdout", out)
        yield out


@given(st.text("ab.- \n", max_size=300), st.integers(12, 90))
def test_prose_fits_its_terminal_unless_a_word_does_not(text: str, room: int) -> None:
    with terminal(room) as out:
        output.prose(text)
    shown = out.getvalue()
    assert shown.split() == text.split()
    assert all(len(line) <= room or len(line.split()) == 1 for line in shown.split("\n"))


def test_prose_goes_on_below_its_label_and_all_is_as_it_is_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with terminal(30) as out:
        output.prose("gain      mean +0.1, from +0.0 to +0.2\nand a text")
    assert out.getvalue() == "gain      mean +0.1, from +0.0\n          to +0.2\nand a text\n"
    output.prose("\ngain      " + "word " * 90 + "end")
    assert capsys.readouterr().out == "\ngain      " + "word " * 90 + "end\n"
    monkeypatch.setenv("COLUMNS", "20")
    output.table((), [("a  b", "word " * 90), ("c", "d")])
    assert capsys.readouterr().out == f"a  b  {('word ' * 90).rstrip()}\nc     d\n", "a line a row"


@given(
    st.lists(st.lists(st.text("ab /\n", max_size=40), min_size=3, max_size=3), min_size=1, max_size=4),
    st.integers(12, 90),
)
def test_a_table_fits_its_terminal_and_loses_no_word(rows: list[list[str]], room: int) -> None:
    with terminal(room) as out:
        output.table(("HEAD", "X", ""), rows)
    lines = out.getvalue().split("\n")
    assert max(map(len, lines)) <= room
    shown = Counter("".join(lines)) - Counter(" \n")
    for letter in "ab/":
        assert shown[letter] == sum(cell.count(letter) for row in rows for cell in row)


ANYTHING = st.text(st.characters(categories=["Cc", "Cf", "Cs", "Co", "Zl", "Zp", "Ll"]), max_size=40)


@given(ANYTHING)
def test_terminals_and_documents_get_any_text_escaped(text: str) -> None:
    shown = []
    for say in (output.line, lambda text: output.table(("HEAD", "LAST"), [(text, 1)]), output.document):
        with redirect_stdout(io.StringIO()) as out:
            say(text)
        shown.append(out.getvalue())
        shown[-1].encode()
        assert not any(unicodedata.category(c)[0] == "C" and c != "\n" for c in shown[-1]), "it steers no terminal"
    assert shown[1].count("\n") == 2
    assert json.loads(shown[2]) == text
