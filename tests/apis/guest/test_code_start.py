"""How the editor is started, and the extensions that can be had without a network."""

from __future__ import annotations

import io
import json
import zipfile
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis.guest.code import start as code_start

NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1).map("/home/{}".format)


def test_the_server_listens_on_the_desktop_alone() -> None:
    argv = code_start.server("/home/agent")
    assert argv[argv.index("--host") + 1] == "127.0.0.1"
    assert argv[argv.index("--user-data-dir") + 1] == "/home/agent/.config/Code"
    assert code_start.window("/home/agent", "x")[-1] == "--app=x"


@given(NAMES, NAMES, st.integers(1, 10**6), st.integers(1, 10**4))
def test_any_path_stands_in_the_address(folder: str, file: str, line: int, character: int) -> None:
    asked = urlsplit(code_start.address(folder, file, line, character))
    assert (asked.hostname, asked.port, asked.fragment) == ("127.0.0.1", code_start.PORT, "")
    query = parse_qs(asked.query, keep_blank_values=True)
    assert query["folder"] == [folder]
    ((name, place), mode) = json.loads(query["payload"][0])
    assert (name, mode) == ("openFile", ["gotoLineMode", "true"])
    assert place.endswith(f":{line}:{character}")


@pytest.mark.parametrize(
    ("extension_id", "pre_release", "version"),
    [
        ("computerrl.paper-theme", False, "1.1.0"),
        ("Computerrl.Paper-Theme", True, "1.2.0"),
        ("computerrl.plain-keys", True, "1.3.0"),
        ("ms-python.python", False, None),
    ],
)
def test_the_newest_version_is_given(extension_id: str, pre_release: bool, version: str | None) -> None:
    best = code_start.best(extension_id, pre_release)
    assert (best and best.version) == version


@pytest.mark.parametrize("one", code_start.OFFERED, ids=lambda one: f"{one.id}-{one.version}")
def test_a_packed_extension_is_whole(one: code_start.Offered) -> None:
    packed = code_start.packed(one)
    assert packed == code_start.packed(one)
    with zipfile.ZipFile(io.BytesIO(packed)) as file:
        about = json.loads(file.read("extension/package.json"))
        names = {name.removeprefix("extension/") for name in file.namelist()}
    assert f"{about['publisher']}.{about['name']}" == one.id
    assert set(about["categories"]) <= set(code_start.CATEGORIES)
    assert "main" not in about
    paths = [each["path"] for kind in about["contributes"].values() for each in kind if "path" in each]
    assert {path.removeprefix("./") for path in paths} <= names
