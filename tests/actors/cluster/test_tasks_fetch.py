"""Fixtures come from every layout that is published, over a broken line too, and are locked once they are here."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from actors.cluster import cli
from actors.cluster.checks.tasks import fetch
from actors.cluster.config import tasksets
from apis.tasksets import store

BASE = "https://hub.example/datasets/x/cache/resolve/main"
START, GOLD = f"{BASE}/calc/t1/a%20b.xlsx", f"{BASE}/calc/t1/gold.xlsx"


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(store.PLACE, str(tmp_path / "store"))
    tasksets.set_of.cache_clear()
    examples = tmp_path / "clone" / "evaluation_examples" / "examples" / "calc"
    examples.mkdir(parents=True)
    (tmp_path / "clone" / "evaluation_examples" / "test_all.json").write_text('{"calc": ["t1"]}')
    task = {
        "id": "t1",
        "instruction": "Do it",
        "config": [{"type": "download", "parameters": {"files": [{"url": START, "path": "/home/user/a b.xlsx"}]}}],
        "evaluator": {
            "func": "file_contains",
            "result": {"type": "vm_file", "path": "/home/user/a b.xlsx", "dest": "a b.xlsx"},
            "expected": {"type": "cloud_file", "path": GOLD, "dest": "a b_gold.xlsx"},
        },
    }
    (examples / "t1.json").write_text(json.dumps(task))


def fetched(tmp_path: Path, *sources: Path | str) -> int:
    words = [word for source in (tmp_path / "clone", *sources) for word in ("--from", str(source))]
    return cli.main(["tasks", "fetch", "osworld", *words])


def laid(folder: Path, **files: bytes) -> Path:
    for name, data in files.items():
        place = folder / name.replace("__", "/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return folder


def verdict() -> tuple[str, list[str]]:
    (found,) = tasksets.verdicts("osworld")
    return found.verdict, [str(need) for need in found.needs]


def test_the_layout_of_the_dataset(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fetched(tmp_path, laid(tmp_path / "hub", **{"calc__t1__a b.xlsx": b"one"})) == 1
    assert f"missing: {GOLD} (task t1)" in capsys.readouterr().out
    assert verdict() == ("needs_file", [f"fixture {GOLD}"])
    pointer = laid(tmp_path / "lfs", **{"calc__t1__gold.xlsx": fetch.POINTER + b"/spec/v1"})
    assert fetched(tmp_path, pointer) == 1  # a clone without its large files
    assert fetched(tmp_path, laid(tmp_path / "hub", **{"calc__t1__gold.xlsx": b"two"})) == 0
    assert verdict() == ("runnable", [])
    assert (store.fixture(START), store.fixture(GOLD)) == (b"one", b"two")


def test_the_layout_of_the_published_harness(tmp_path: Path) -> None:
    cached = f"cache__t1__{uuid.uuid5(uuid.NAMESPACE_URL, START)}_a b.xlsx"
    assert fetched(tmp_path, laid(tmp_path / "up", **{cached: b"one", "cache__t1__a b_gold.xlsx": b"two"})) == 0
    assert store.fixture(START) == b"one"
    assert store.fixture(GOLD) == b"two"


def test_a_task_file_that_changed_names_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    laid(tmp_path / "hub", **{"calc__t1__a b.xlsx": b"one", "calc__t1__gold.xlsx": b"two"})
    assert fetched(tmp_path, tmp_path / "hub") == 0
    place = tmp_path / "clone" / "evaluation_examples" / "examples" / "calc" / "t1.json"
    place.write_text(place.read_text().replace("Do it", "Do more"))
    assert fetched(tmp_path, tmp_path / "hub") == 2
    assert "task set osworld: calc/t1 has changed since it was locked" in capsys.readouterr().err


def test_a_folder_that_is_not_there_and_a_set_that_is_not_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tasks", "fetch", "osworld", "--from", "nowhere"]) == 2
    assert "--from nowhere: there is no such folder" in capsys.readouterr().err
    assert cli.main(["tasks", "fetch", "osworld"]) == 2
    assert "name a folder with its task files by --from" in capsys.readouterr().err


class Mirror(BaseHTTPRequestHandler):
    """Serves one file; the first answer breaks off in the middle."""

    asked: list[tuple[str, str | None]]
    data = bytes(range(256)) * 16

    def do_GET(self) -> None:
        part = self.headers.get("Range")
        self.asked.append((self.path, part))
        start = int(part.removeprefix("bytes=").rstrip("-")) if part else 0
        self.send_response(206 if part else 200)
        self.send_header("Content-Length", str(len(self.data) - start))
        self.end_headers()
        self.wfile.write(self.data[start:] if len(self.asked) > 1 else self.data[:1000])

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def mirror() -> Iterator[str]:
    Mirror.asked = []
    with HTTPServer(("127.0.0.1", 0), Mirror) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/mirror"
        server.shutdown()
        thread.join()


def test_a_download_goes_on_where_it_broke_off(mirror: str) -> None:
    assert fetch.downloaded(START, fetch.address(START, mirror, "abc")) == Mirror.data
    path = "/mirror/datasets/x/cache/resolve/abc/calc/t1/a%20b.xlsx"
    assert Mirror.asked == [(path, None), (path, "bytes=1000-")]
