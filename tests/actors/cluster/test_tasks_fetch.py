"""Fixtures come from every layout that is published, over a broken line too, and are locked once they are here."""

from __future__ import annotations

import json
import os
import socketserver
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from actors.cluster import cli
from actors.cluster.checks import fetch
from actors.cluster.config import tasksets
from apis.tasks import registry as tasks
from apis.tasksets import store

BASE = "https://hub.example/datasets/x/cache/resolve/main"
START, GOLD = f"{BASE}/calc/t1/a%20b.xlsx", f"{BASE}/calc/t1/gold.xlsx"
FAKE = "https://www.fakeurl.com/"
T1 = "osworld/libreoffice_calc/t1"


def named(task: str, url: str, start: str, gold_url: str, gold: str) -> bytes:
    """A task file that starts with one fixture and expects another."""
    path = f"/home/user/{start}"
    step = {"type": "download", "parameters": {"files": [{"url": url, "path": path}]}}
    result = {"type": "vm_file", "path": path, "dest": start}
    expected = {"type": "cloud_file", "path": gold_url, "dest": gold}
    judge = {"func": "compare_text_file", "result": result, "expected": expected}
    return json.dumps({"id": task, "instruction": "Do it", "config": [step], "evaluator": judge}).encode()


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(store.PLACE, str(tmp_path / "store"))
    tasksets.set_of.cache_clear()
    osworld = tmp_path / "clone" / fetch.KNOWN["osworld"].folder
    for domain in fetch.KNOWN["osworld"].domains:
        bare = {"id": domain, "instruction": "Do it", "evaluator": {"func": "infeasible"}}
        laid(osworld, **{f"{domain}__{domain}.json": json.dumps(bare).encode()})
    (osworld.parent / "test_all.json").write_text('{"calc": ["t1"]}')
    (osworld / "libreoffice_calc" / "t1.json").write_bytes(named("t1", START, "a b.xlsx", GOLD, "a b_gold.xlsx"))


def fetched(tmp_path: Path, *sources: Path | str, set_: str = "osworld") -> int:
    words = [word for source in (tmp_path / "clone", *sources) for word in ("--from", str(source))]
    return cli.main(["tasks", "fetch", set_, *words])


def content(task: str, url: str, name: str) -> bytes:
    return store.Fixtures(tasks.task(task)).content(url, name)


def laid(folder: Path, **files: bytes) -> Path:
    for name, data in files.items():
        place = folder / name.replace("__", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return folder


def verdict() -> tuple[str, list[str]]:
    found = next(one for one in tasksets.verdicts("osworld") if one.id.endswith("/t1"))
    return found.verdict, [str(need) for need in found.needs]


def test_the_layout_of_the_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fetched(tmp_path, laid(tmp_path / "hub", **{"calc__t1__a b.xlsx": b"one"})) == 1
    assert f"missing: {GOLD} (a b_gold.xlsx), task t1" in capsys.readouterr().out
    assert verdict() == ("needs_file", [f"fixture {GOLD} (a b_gold.xlsx)"])
    pointer = laid(tmp_path / "lfs", **{"calc__t1__gold.xlsx": fetch.POINTER + b"/spec/v1"})
    assert fetched(tmp_path, pointer) == 1  # a clone without its large files
    assert fetched(tmp_path, laid(tmp_path / "hub", **{"calc__t1__gold.xlsx": b"two"})) == 0
    assert verdict() == ("runnable", [])
    assert (content(T1, START, "a b.xlsx"), content(T1, GOLD, "a b_gold.xlsx")) == (b"one", b"two")


def test_the_layout_of_the_published_harness(tmp_path: Path) -> None:
    cached = f"cache__t1__{uuid.uuid5(uuid.NAMESPACE_URL, START)}_a b.xlsx"
    assert fetched(tmp_path, laid(tmp_path / "up", **{cached: b"one", "cache__t1__a b_gold.xlsx": b"two"})) == 0
    assert (content(T1, START, "a b.xlsx"), content(T1, GOLD, "a b_gold.xlsx")) == (b"one", b"two")


def office(tmp_path: Path, *domains: str) -> None:
    """OfficeWorld's task files in the clone: two of each domain, with one URL for all that they need."""
    for domain in domains:
        kind = domain.removeprefix("ow-")
        for number in (0, 1):
            task = named(f"{domain}-{number}", FAKE, f"Art.{kind}", FAKE, f"Art_golden.{kind}")
            laid(tmp_path / "clone" / fetch.KNOWN["officeworld"].folder, **{f"{domain}__{domain}-{number}.json": task})


def test_a_clone_that_gives_one_url_for_all_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    office(tmp_path, *fetch.KNOWN["officeworld"].domains)
    assert fetched(tmp_path, set_="officeworld") == 1
    said = capsys.readouterr().out
    assert f"missing: {FAKE} (Art.docx), task ow-docx-0" in said
    assert f"{FAKE} names no file" in said
    assert {one.verdict for one in tasksets.verdicts("officeworld")} == {"needs_file"}
    cached = f"{uuid.uuid5(uuid.NAMESPACE_URL, FAKE)}_Art"
    for task in store.ids("officeworld"):
        kind, own = task.split("/")[1].removeprefix("ow-"), task.rpartition("/")[2]
        held = {f"{cached}.{kind}": b"start", f"Art_golden.{kind}": own.encode()}
        laid(tmp_path / "clone" / "cache" / own, **held)
    assert fetched(tmp_path, set_="officeworld") == 0
    assert "12 fetched" in capsys.readouterr().out
    assert content("officeworld/ow-docx/ow-docx-1", FAKE, "Art.docx") == b"start"
    assert content("officeworld/ow-docx/ow-docx-1", FAKE, "Art_golden.docx") == b"ow-docx-1"
    assert len(list((tmp_path / "store" / "fixtures" / "sha256").rglob("*/*"))) == 7  # the start lies once


@pytest.mark.parametrize(
    ("domains", "expected"),
    [((), "has the tasks of osworld"), (("ow-docx", "ow-pptx"), "examples_office has no tasks of ow-xlsx")],
)
def test_a_clone_of_another_set_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], domains: tuple[str, ...], expected: str
) -> None:
    office(tmp_path, *domains)
    assert fetched(tmp_path, set_="officeworld") == 2
    assert expected in capsys.readouterr().err
    assert not store.is_set("officeworld")


def test_a_task_file_that_changed_names_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    laid(tmp_path / "hub", **{"calc__t1__a b.xlsx": b"one", "calc__t1__gold.xlsx": b"two"})
    assert fetched(tmp_path, tmp_path / "hub") == 0
    place = tmp_path / "clone" / "evaluation_examples" / "examples" / "libreoffice_calc" / "t1.json"
    place.write_text(place.read_text().replace("Do it", "Do more"))
    assert fetched(tmp_path, tmp_path / "hub") == 2
    assert "task set osworld: libreoffice_calc/t1 has changed since it was locked" in capsys.readouterr().err


@contextmanager
def answering(*sent: bytes) -> Iterator[tuple[str, list[str]]]:
    """A server that sends these in turn, and the last one from then on: its URL, and the paths it was asked for."""
    asked: list[str] = []

    class Answer(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            asked.append(self.rfile.readline().split()[1].decode())
            while self.rfile.readline() not in (b"\r\n", b""):
                pass
            self.wfile.write(b"HTTP/1.1 " + sent[min(len(asked), len(sent)) - 1])

    with socketserver.TCPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
        server.shutdown()


BODY = b"12345"
ANSWERS = {  # what a server sends, and what is taken of it
    "a length": (b"200 OK\r\nContent-Length: 5\r\n\r\n" + BODY, BODY),
    "pieces": (b"200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n0\r\n\r\n", BODY),
    "more than was said": (b"200 OK\r\nContent-Length: 5\r\n\r\n" + BODY + b"67", BODY),
    "less than was said": (b"200 OK\r\nContent-Length: 6\r\n\r\n" + BODY, None),
    "pieces that end early": (b"200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n", None),
    "no length": (b"200 OK\r\n\r\n" + BODY, None),
    "a length that is none": (b"200 OK\r\nContent-Length: five\r\n\r\n" + BODY, None),
    "two lengths": (b"200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n" + BODY, None),
    "a part": (b"206 Partial Content\r\nContent-Range: bytes 0-4/9\r\nContent-Length: 5\r\n\r\n" + BODY, None),
    "a range that is refused": (b"416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n", None),
    "packed": (b"200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\n" + BODY, None),
    "a way to a file": (b"302 Found\r\nLocation: file:///etc/passwd\r\nContent-Length: 0\r\n\r\n", None),
    "a circle": (b"302 Found\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n", None),
    "too much": (b"200 OK\r\nContent-Length: 50\r\n\r\n" + BODY * 10, None),
}


@pytest.mark.parametrize(("sent", "taken"), ANSWERS.values(), ids=ANSWERS)
def test_nothing_half_done_is_taken_for_whole(
    sent: bytes, taken: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "MOST_FIXTURE", 40)
    with answering(sent) as (url, _):
        assert fetch.downloaded(f"{url}/x") == taken


def test_an_answer_that_goes_on_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "WHOLE_S", 0.0)
    with answering(ANSWERS["a length"][0]) as (url, asked):
        assert fetch.downloaded(url) is None
        assert len(asked) == fetch.TRIES


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://127.0.0.1:1/x", "etc/passwd", "//x/y", "http://[::1/x", "http://\ud800/x", "x:y"],
)
def test_what_a_task_file_names_is_asked_for_over_http_alone(
    tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    laid(tmp_path, **{"t.json": named("t", url, "a.txt", url, "b.txt")})
    assert cli.main(["tasks", "fetch", str(tmp_path / "t.json")]) in (1, 2)
    assert "Traceback" not in capsys.readouterr().err
    assert not list((tmp_path / "store").rglob("sha256/*/*"))


def test_what_was_cut_short_on_disk_is_fetched_again(tmp_path: Path) -> None:
    hub = laid(tmp_path / "hub", **{"calc__t1__a b.xlsx": b"one", "calc__t1__gold.xlsx": b"two"})
    assert fetched(tmp_path, hub) == 0
    place = store.content_place(store.sha256(b"one"))
    place.write_bytes(b"o")
    stale = place.with_name("x.1.part")
    stale.write_bytes(b"o")
    os.utime(stale, (1, 1))
    assert verdict()[0] == "needs_file"
    assert fetched(tmp_path, hub) == 0
    assert content(T1, START, "a b.xlsx") == b"one"
    assert not stale.exists(), "a fetch that was killed left it"


def test_a_circle_of_links_is_no_file(tmp_path: Path) -> None:
    hub = laid(tmp_path / "hub", **{"calc__t1__gold.xlsx": b"two"})
    (hub / "calc" / "t1" / "a b.xlsx").symlink_to("a b.xlsx")
    assert fetched(tmp_path, hub) == 1


def test_a_download_that_broke_off_begins_again() -> None:
    with answering(ANSWERS["less than was said"][0], ANSWERS["a length"][0]) as (url, asked):
        assert fetch.downloaded(fetch.address(START, f"{url}/mirror", "abc")) == BODY
        assert asked == ["/mirror/datasets/x/cache/resolve/abc/calc/t1/a%20b.xlsx"] * 2
