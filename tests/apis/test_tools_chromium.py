"""Chromium's functions as declared, how it is started, and how its own pages are told."""

import base64
import hashlib
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import apis.guest
from apis.actions.gui import GUI, functions_for, line
from apis.catalogue import TOOLS, call
from apis.guest.chromium import pages as chromium_pages
from apis.guest.chromium import start as chromium_start
from tests.apis import declared

GUEST = Path(str(apis.guest.__file__)).parent
CHROMIUM = {function.name: function for function in TOOLS["google_chrome"]}

# As published; none has a parameter.
PUBLISHED = """
open_profile_settings open_password_settings open_privacy_settings open_appearance_settings
open_search_engine_settings bring_back_last_tab print delete_browsing_data open_extensions bookmark_page open_bookmarks
"""


def test_names_and_parameters_are_the_published_ones() -> None:
    assert list(CHROMIUM) == PUBLISHED.split()
    assert {function.owner for function in CHROMIUM.values()} == {"BrowserTools"}
    assert not any(function.params for function in CHROMIUM.values())
    assert not {function.name for function in GUI} & set(CHROMIUM)


@pytest.mark.parametrize("name", CHROMIUM)
def test_a_call_is_written_read_and_carried_out(name: str) -> None:
    action = declared.carried_out(f"BrowserTools.{name}()", "google_chrome", {})
    assert action == call("BrowserTools", name)
    assert line(action) == f"BrowserTools.{name}()"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("BrowserTools.print(1)", "print"),
        ("BrowserTools.print(copies=2)", "no argument copies: it takes none"),
        ("BrowserTools.open_settings()", "did you mean BrowserTools.open_"),
        ("BrowserTools.bookmark_page(url='https://example.org')", "no argument url: it takes none"),
    ],
)
def test_says_what_is_wrong(answer: str, said: str) -> None:
    assert said in declared.refusal(answer, "google_chrome")


def test_only_chromium_in_front_has_them() -> None:
    assert set(functions_for("google_chrome")) - set(functions_for("terminal")) == {
        f"BrowserTools.{name}" for name in CHROMIUM
    }
    lacking = declared.refusal("BrowserTools.print()", "libreoffice_calc")
    assert "bring a window of google_chrome to the front first" in lacking


def test_the_helper_has_the_name_that_is_asked_for() -> None:
    manifest = json.loads((GUEST / "chromium" / chromium_start.HELPER / "manifest.json").read_text())
    digest = hashlib.sha256(base64.b64decode(manifest["key"])).hexdigest()[:32]
    assert "".join(chr(ord("a") + int(digit, 16)) for digit in digest) == chromium_start.HELPER_ID
    assert manifest["manifest_version"] == 3
    assert not {"background", "content_scripts", "host_permissions"} & set(manifest)


def test_it_is_started_alike_by_an_action_and_by_hand() -> None:
    argv = chromium_start.command(["chromium", "--incognito", "file:///home/a b/x.html"], "/opt/helper")
    assert argv[0] == "chromium"
    assert argv[-2:] == ["--incognito", "file:///home/a b/x.html"]
    assigned, exported = chromium_start.wrapper("/opt/helper").splitlines()
    assert exported == "export CHROMIUM_FLAGS"
    (words,) = shlex.split(assigned)
    assert words.split()[1:] == argv[1:-2] == chromium_start.flags("/opt/helper")
    assert "--force-renderer-accessibility" in argv
    assert not any(flag.startswith("--no-sandbox") for flag in argv)


ROWS = st.lists(st.tuples(st.text(max_size=300), st.text(max_size=300), st.booleans()), max_size=80)


@given(ROWS)
def test_what_a_page_says_is_bounded_and_of_whole_lines(rows: list[tuple[str, str, bool]]) -> None:
    for page, value in (
        (chromium_pages.EXTENSIONS, rows),
        (chromium_pages.ENGINES, rows),
        (chromium_pages.BOOKMARKS, [(str(used), name, url) for name, url, used in rows]),
    ):
        text = chromium_pages.said(page, value)
        assert text.startswith(f"{page.url} is open")
        assert len(text) <= chromium_pages.RESULT_CHARS
        assert max(map(len, text.splitlines())) <= chromium_pages.LINE_CHARS
        text.encode()
        most = 1 + max(1, len(rows))
        assert len(text.splitlines()) <= most + 1


SETTINGS: dict[str, Any] = {
    "credentials_enable_service": True, "credentials_enable_autosignin": False, "saved": [("site.test", "ann")],
}  # fmt: skip


def test_settings_are_told_as_they_are() -> None:
    assert chromium_pages.said(chromium_pages.PASSWORDS, SETTINGS).splitlines()[1:] == [
        "offer to save passwords: on",
        "sign in automatically: off",
        "warn of leaked passwords: off",
        "saved passwords: 1",
        "- ann at site.test",
    ]
    data = {"range": "Last hour", "ticked": ["Cached images"], "other": [], "button": "Delete"}
    assert "not ticked: nothing\nnothing is deleted until its button 'Delete' is pressed" in chromium_pages.said(
        chromium_pages.DATA, data
    )
    assert "no bookmark is saved" in chromium_pages.said(chromium_pages.BOOKMARKS, [])
