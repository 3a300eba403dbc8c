"""Models by their names on the hub: fetched once into the cache, refused by one line, never asked for again."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import huggingface_hub
import pytest

from actors.cluster import cli
from actors.cluster.config import models
from actors.cluster.runs import weights
from runtime.errors import ConfigError
from tests.policy import tiny_models
from tests.policy.chat_models import write_tokenizer

NAME = "tiny/llama-0.1B"
COMMITS = {"main": "1" * 40, "v1": "2" * 40}


class Hub(ThreadingHTTPServer):
    """The part of the hub that a download asks for; it has one model, at two revisions."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files = {path.name: path.read_bytes() for path in folder.iterdir()}
        self.files |= {"modeling_tiny.py": b"raise SystemExit", "consolidated.safetensors": b"the same once more"}
        self.asked: list[str] = []


class Answer(BaseHTTPRequestHandler):
    """One request."""

    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Tests print nothing."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        """Model, tree or file."""
        path = self.path.partition("?")[0]
        self.server.asked.append(path)
        commits = {commit: commit for commit in COMMITS.values()} | COMMITS
        if path.startswith(f"/api/models/{NAME}/revision/"):
            commit = commits.get(path.rpartition("/")[2])
            self.say({"id": NAME, "sha": commit, "siblings": []} if commit else None, "RevisionNotFound")
        elif path.startswith(f"/api/models/{NAME}/tree/"):
            files = self.server.files.items()
            self.say([{"type": "file", "path": k, "size": len(v), "oid": sha1(v)} for k, v in files])
        elif path.startswith(f"/{NAME}/resolve/"):
            commit, name = path.split("/")[-2:]
            self.send(
                200, self.server.files[name], {"ETag": f'"{sha1(self.server.files[name])}"', "X-Repo-Commit": commit}
            )
        elif path.startswith("/api/models/gated/"):
            self.say(None, "GatedRepo", 403)
        else:
            self.say(None, "RepoNotFound")

    def say(self, body: object, error: str = "", status: int = 404) -> None:
        """JSON, or the hub's word for what is wrong."""
        if body is None:
            self.send(status, b"{}", {"X-Error-Code": error})
        else:
            self.send(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def sha1(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tiny_models.write(tmp_path_factory.mktemp("hub") / "model", "llama", tied=True)
    write_tokenizer(folder, "llama")
    return folder


@pytest.fixture
def served(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub on this machine, and an empty cache."""
    monkeypatch.chdir(tmp_path)
    server = Hub(model)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", url)
    monkeypatch.setattr(
        huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    yield server
    server.shutdown()
    server.server_close()
    thread.join(10)


def test_a_name_is_fetched_once_without_programs(served: Hub, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = models.locate(NAME)
    assert folder.name == COMMITS["main"]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        path.name: path.read_bytes() for path in model.iterdir()
    }
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert told.err.startswith(f"fetching {NAME} from http://127.0.0.1:")
    served.asked.clear()
    assert models.locate(NAME) == models.planned(NAME, "") == folder
    assert weights.locate(NAME, Path("runs")).folder == str(folder)
    assert not served.asked
    assert models.locate(f"{NAME}@v1").name == COMMITS["v1"]
    assert models.locate(f"{NAME}@{COMMITS['v1']}").name == COMMITS["v1"]


def test_a_plan_fetches_no_weights_and_a_run_then_does(served: Hub) -> None:
    folder = models.planned(NAME, "")
    assert not list(folder.glob("*.safetensors"))
    assert not any("safetensors" in path for path in served.asked)
    assert models.locate(NAME) == folder
    assert [path.name for path in folder.glob("*.safetensors")] == ["model.safetensors"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("tiny/none", "there is no such folder, and no such model on the hub "),
        ("gated/model", "its owners let in who has accepted their terms"),
        (f"{NAME}@v9", f"the hub has {NAME}, and no revision v9 of it"),
    ],
)
def test_what_the_hub_refuses_is_one_line(served: Hub, name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}: {why}[^\n]*$"):
        models.locate(name)


def test_without_a_network_the_cache_is_used_and_what_it_lacks_is_named_by_one_line(
    served: Hub, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = models.locate(NAME)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    assert models.locate(NAME) == folder
    capsys.readouterr()
    assert cli.main(["model", "check", "tiny/other"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("fetching tiny/other from")
    assert lines[1].startswith("computerrl model check: tiny/other: there is no such folder, the cache does not hold ")
    assert "refused" in lines[1]
    assert len(lines) == 2
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    assert models.locate(NAME) == folder
    with pytest.raises(ConfigError, match=r"^tiny/other: [^\n]*Offline[^\n]*$"):
        models.locate("tiny/other")


def test_a_path_is_never_taken_for_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    assert models.hub_name("Qwen/Qwen2.5-0.5B") == ("Qwen/Qwen2.5-0.5B", "main")
    assert models.hub_name("Qwen/Qwen2.5-0.5B@refs/pr/3") == ("Qwen/Qwen2.5-0.5B", "refs/pr/3")
    for path in ("models/smollm2", "mine/smollm2", "./a/b", "/a/b", "a", "a/b/c", "a/b@", "-a/b", "", "http://a/b"):
        assert models.hub_name(path) is None, path
