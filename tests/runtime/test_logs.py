"""Log lines are declared, bounded, harmless on a terminal, in a file per host, and read back in order."""

from __future__ import annotations

import json
import os
import threading
from unittest.mock import Mock

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.errors import ConfigError, ProtocolError
from runtime.logs import writer as logs
from runtime.logs.events import declare, declare_struct, fields_of, matches
from runtime.logs.reader import LogWatch, read_logs
from runtime.logs.writer import bounded, host_log, log_file, printable
from runtime.messaging.message import Version

SAID = declare("logs_test_said", "info", text=str, n=int, share=float, ok=bool, more=dict, note=str | None)
NOISE = declare("logs_test_noise", "debug")
TROUBLE = declare("logs_test_trouble", "error", text=str)

GOOD = {"text": "hi", "n": 1, "share": 0.5, "ok": True, "more": {"a": [1, 2]}, "note": None}


def lines(run_dir, actor):
    return [json.loads(line) for line in log_file(run_dir, actor).read_bytes().splitlines()]


def test_a_line_says_what_when_and_who(tmp_path):
    log = host_log(tmp_path, "desktops/0").of("desktop/3")
    log.emit(SAID, **GOOD, trace="g7.2")
    log.close()
    (line,) = lines(tmp_path, "desktops/0")
    assert list(line)[:6] == ["ts", "t", "level", "event", "actor", "trace"]
    assert line | GOOD == line
    assert (line["level"], line["event"], line["actor"], line["trace"]) == (
        "info",
        "logs_test_said",
        "desktop/3",
        "g7.2",
    )
    assert log_file(tmp_path, "desktops/0").name == "desktops-0.jsonl"


def test_all_actors_of_a_host_share_one_open_file(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    host = host_log(tmp_path, "desktops/0")
    actors = [host.of(f"desktop/{n}") for n in range(50)]
    assert len(os.listdir("/proc/self/fd")) == before + 1
    for log in (*actors, host):
        log.emit(TROUBLE, text="x")
    assert [line["actor"] for line in lines(tmp_path, "desktops/0")] == [
        *(f"desktop/{n}" for n in range(50)),
        "host/desktops/0",
    ]
    for log in (*actors, *actors):  # closing again does no harm
        log.close()
    host.emit(TROUBLE, text="the host goes on")
    host.close()
    assert len(os.listdir("/proc/self/fd")) == before
    host.emit(TROUBLE, text="nowhere")
    assert len(lines(tmp_path, "desktops/0")) == 52


def test_lines_of_several_threads_stay_whole_while_the_file_rolls(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "MAX_FILE_BYTES", 20_000)
    host = host_log(tmp_path, "a")

    def write(n: int) -> None:
        for number in range(50):
            host.of(f"actor/{n}").emit(TROUBLE, text=f"{number}" + "x" * 100)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = list(read_logs(tmp_path))
    assert 70 < len(found) < 400
    assert not any("lines_lost" in line for line in found)
    assert sum(len(path.read_bytes().splitlines()) for path in (tmp_path / "logs").iterdir()) == len(found)


def test_the_catalogue_refuses_duplicates_and_what_can_not_be_logged():
    for name, level, fields in [
        ("logs_test_said", "info", {}),
        ("Bad Name", "info", {}),
        ("logs_test_a", "loud", {}),
        ("logs_test_b", "info", {"ts": str}),
        ("logs_test_c", "info", {"x": bytes}),
    ]:
        with pytest.raises(ProtocolError):
            declare(name, level, **fields)


class Drawn(msgspec.Struct):
    version: Version
    count: int
    share: float | None = None
    ages: dict[str, int] = {}


def test_an_event_has_the_fields_of_a_struct(tmp_path):
    event = declare_struct("logs_test_drawn", "info", Drawn)
    assert dict(event.fields) == {"version": str, "count": int, "share": float | None, "ages": dict[str, int]}
    log = host_log(tmp_path, "a")
    log.emit(event, **fields_of(Drawn(Version(lineage=1, step=2), 3)))
    log.close()
    (line,) = lines(tmp_path, "a")
    assert {name: line[name] for name in event.fields} == {"version": "1.2", "count": 3, "share": None, "ages": {}}


def test_types_match_as_declared():
    assert matches(1, float)
    assert matches([1], list[int])
    assert matches(None, str | None)
    assert not matches(True, int)
    assert not matches(True, float)
    assert not matches(1.5, int)


@given(st.text())
def test_no_text_moves_the_terminal(text):
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown) < 14 * logs.MAX_TEXT
    shown.encode()  # no lone surrogates


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=30,
    )
)
@pytest.mark.slow
def test_anything_can_be_bounded_and_rendered(value):
    orjson.dumps({"x": bounded(value)})


def test_big_values_are_cut():
    assert len(printable("x" * 10**6)) < 2100
    assert len(bounded(list(range(10**5)))) == logs.MAX_ITEMS
    deep = []
    for _ in range(50):
        deep = [deep]
    assert len(str(bounded(deep))) < 500


def test_levels_below_the_chosen_one_are_not_written(tmp_path):
    log = host_log(tmp_path, "a", "info")
    log.emit(NOISE)
    log.emit(TROUBLE, text="x")
    log.close()
    assert [line["event"] for line in lines(tmp_path, "a")] == ["logs_test_trouble"]
    with pytest.raises(ConfigError):
        host_log(tmp_path, "a", "loud")


def test_a_line_that_was_cut_spoils_no_other(tmp_path, monkeypatch):
    """By a disk that was full within it, or by a power cut before the actor was resumed."""
    log = host_log(tmp_path, "a")
    real = logs.os.write
    log.emit(TROUBLE, text="1")
    monkeypatch.setattr(logs.os, "write", lambda fd, data: real(fd, data[:20]))
    log.emit(TROUBLE, text="2")
    monkeypatch.setattr(logs.os, "write", Mock(side_effect=OSError(28, "No space left on device")))
    log.emit(TROUBLE, text="2")
    monkeypatch.setattr(logs.os, "write", real)
    log.emit(TROUBLE, text="3")
    log.close()
    assert [(line["text"], line.get("lines_lost")) for line in read_logs(tmp_path)] == [("1", None), ("3", 2)]
    with log_file(tmp_path, "a").open("ab") as file:
        file.write(b'{"ts": "torn')
    log = host_log(tmp_path, "a")
    log.emit(TROUBLE, text="4")
    log.close()
    assert [line["text"] for line in read_logs(tmp_path)] == ["1", "3", "4"]


def test_a_file_larger_than_any_writers_is_not_read(tmp_path):
    log = host_log(tmp_path, "a")
    log.emit(TROUBLE, text="1")
    log.close()
    other = log_file(tmp_path, "b")
    other.touch()
    os.truncate(other, 1 << 40)
    assert [line["text"] for line in read_logs(tmp_path)] == ["1"]


def test_a_file_that_could_not_be_rolled_is_rolled_later(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "MAX_FILE_BYTES", 300)
    log = host_log(tmp_path, "a")
    real = logs.os.open

    def none_left(*_, **__):
        raise OSError(24, "Too many open files")

    for n in range(12):
        with monkeypatch.context() as patch:
            if 3 <= n < 6:
                patch.setattr(logs.os, "open", none_left)
            log.emit(TROUBLE, text=f"{n:02d}" + "x" * 100)
    log.close()
    assert real is logs.os.open
    assert sum(path.stat().st_size for path in (tmp_path / "logs").iterdir()) < 1500
    assert [line["text"][:2] for line in read_logs(tmp_path)][-1] == "11"


def test_several_actors_are_read_in_time_order_and_filtered(tmp_path):
    names = ["desktop/1", "desktop/2", "replay"]
    seats, main = host_log(tmp_path, "desktops/0", "debug"), host_log(tmp_path, "main", "debug")
    opened = {name: (seats if name.startswith("desktop") else main).of(name) for name in names}
    for n in range(12):
        opened[names[n % 3]].emit(SAID, **(GOOD | {"n": n}), trace=f"g{n % 2}.0")
    opened["replay"].emit(TROUBLE, text="bad")
    opened["replay"].emit(NOISE)
    for log in opened.values():
        log.close()
    with log_file(tmp_path, "main").open("ab") as file:
        file.write(b'not json\n[1]\n{"ts": "torn')
    every = list(read_logs(tmp_path))
    assert [line["ts"] for line in every] == sorted(line["ts"] for line in every)
    assert len(every) == 14
    assert {line["actor"] for line in read_logs(tmp_path, actor="desktop")} == {"desktop/1", "desktop/2"}
    assert {line["actor"] for line in read_logs(tmp_path, actor="desktop/2")} == {"desktop/2"}
    assert [line["n"] for line in read_logs(tmp_path, trace="g1.0")] == [1, 3, 5, 7, 9, 11]
    assert [line["event"] for line in read_logs(tmp_path, level="warning")] == ["logs_test_trouble"]
    assert [line["text"] for line in read_logs(tmp_path, event="logs_test_trouble")] == ["bad"]
    with pytest.raises(ConfigError):
        list(read_logs(tmp_path / "nowhere"))


def test_following_sees_new_lines_new_actors_and_rolled_files(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "MAX_FILE_BYTES", 1800)  # one roll: two in one blink would lose the middle file
    first = host_log(tmp_path, "a")
    first.emit(TROUBLE, text="0")
    stream = read_logs(tmp_path, follow=True)
    seen = [next(stream)["text"]]

    def write() -> None:
        for n in range(1, 15):
            first.emit(TROUBLE, text=str(n))
        second = host_log(tmp_path, "b")
        second.emit(TROUBLE, text="from b")
        second.close()

    writer = threading.Thread(target=write)
    writer.start()
    seen += [next(stream)["text"] for _ in range(1)]
    writer.join()
    seen += [next(stream)["text"] for _ in range(14)]
    stream.close()
    first.close()
    assert sorted(seen) == sorted([*map(str, range(15)), "from b"])


def test_a_watch_begins_with_every_actors_rolled_file(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "MAX_FILE_BYTES", 1800)
    for name in "ab":
        log = host_log(tmp_path, name)
        for n in range(12):
            log.emit(TROUBLE, text=f"{name}{n}" + "x" * 100)
        log.close()
        assert log_file(tmp_path, name).with_suffix(".1.jsonl").exists()
    watch = LogWatch(tmp_path)
    assert watch.new() == list(read_logs(tmp_path))
    assert watch.new() == []
    watch.close()
