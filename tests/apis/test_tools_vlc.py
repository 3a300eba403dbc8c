"""VLC's functions as declared: one declaration for the prompt, the grammar, the guest and these tests."""

from __future__ import annotations

import io
import wave
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis.actions.grammar import RefusedAnswer, parse
from apis.actions.gui import GUI, Tool, functions_for, line
from apis.apps.check.case import MAKERS
from apis.catalogue import TOOLS, call
from apis.functions.values import Unfit
from tests.apis import declared

VLC = {function.name: function for function in TOOLS["vlc"]}

# Names, parameters and types as published; "=" where a call may leave it out, and its default.
PUBLISHED = """
get_playlist()
play()
pause()
next()
previous()
add_to_playlist(uri: string)
get_current_time()
get_media_duration()
toggle_fullscreen(enable: boolean = None)
get_settings()
set_settings(field: string, value: string)
get_media_files(path: string, suffix: array = None)
"""


def test_names_and_parameters_are_the_published_ones() -> None:
    assert [declared.published(function) for function in VLC.values()] == PUBLISHED.strip().splitlines()


def test_only_vlc_has_its_functions() -> None:
    assert set(functions_for("vlc")) == {f"Agent.{f.name}" for f in GUI} | {f"VLCTools.{name}" for name in VLC}
    assert isinstance(parse("VLCTools.play()", "terminal"), RefusedAnswer)


@pytest.mark.parametrize(
    ("answer", "arguments"),
    [
        ("add_to_playlist('FILE:///home/agent/a%20b.mp3')", {"uri": "file:///home/agent/a%20b.mp3"}),
        ("add_to_playlist('~/Music/a.mp3')", {"uri": "~/Music/a.mp3"}),
        ("add_to_playlist(uri='https://example.org/a.mp3')", {"uri": "https://example.org/a.mp3"}),
        ("set_settings('--qt-max-volume', 200)", {"field": "qt-max-volume", "value": "200"}),
        ("set_settings('loop', True)", {"field": "loop", "value": "1"}),
        ("set_settings('gain', -1.5)", {"field": "gain", "value": "-1.5"}),
        ("set_settings('audio-language', '')", {"field": "audio-language", "value": ""}),
        ("toggle_fullscreen()", {"enable": None}),
        ("get_media_files('~')", {"path": "~", "suffix": None}),
        ("get_media_files('~/Music', ['mp3'])", {"path": "~/Music", "suffix": ["mp3"]}),
    ],
)
def test_arguments_come_in_one_spelling(answer: str, arguments: dict[str, Any]) -> None:
    action = parse(f"VLCTools.{answer}", "vlc")
    assert isinstance(action, Tool)
    assert action.arguments == arguments
    assert parse(line(action), "vlc") == action


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("add_to_playlist()", "needs the argument uri"),
        ("add_to_playlist('')", "uri: write a file like"),
        ("add_to_playlist('../a.mp3')", "uri: write a file like"),
        ("add_to_playlist('smb://host/a.mp3')", "uri: write a file like"),
        ("add_to_playlist('~/Music/')", "uri: write a file like"),
        ("add_to_playlist('a.mp3\\nb')", "uri: write a file like"),
        ("toggle_fullscreen('on')", "enable: write True or False"),
        ("set_settings('Max Volume', '1')", "field: write a setting's name like 'qt-max-volume'"),
        ("set_settings('a=b', '1')", "field: write a setting's name"),
        ("set_settings('loop', '1\\nhttp-password=')", "value: write one line"),
        ("set_settings('snapshot-path', '/etc')", "value: the file lies outside the home folder"),
        ("set_settings('loop', None)", "value: write a string"),
        ("get_media_files('/home/agent/..')", "path: write a folder of your home folder"),
        ("get_media_files('~', 'mp3')", "suffix: write a list"),
        ("get_media_files('/')", "path: the folder lies outside the home folder: write a path like ~/Music"),
        ("add_to_playlist('file:///etc/passwd')", "uri: the file lies outside the home folder"),
        ("add_to_playlist('FILE://localhost/etc/passwd')", "uri: the file lies outside the home folder"),
        ("add_to_playlist('~root/a.mp3')", "uri: the file lies outside the home folder"),
        ("play(1)", "takes at most 0 arguments"),
    ],
)
def test_says_which_argument_is_wrong_and_what_is_right(answer: str, said: str) -> None:
    assert said in declared.refusal(f"VLCTools.{answer}", "vlc")


TEXTS = st.text(max_size=12) | st.sampled_from(["file://", "~/a", "https://x/y", "a-b", "--loop"])
ANYTHING = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.lists(TEXTS, max_size=3)


@given(st.sampled_from(declared.params_of(VLC)), ANYTHING)
def test_a_value_is_fit_once_and_for_all_or_refused(param: Any, value: Any) -> None:
    once = declared.fit_once(param, value)
    assert not isinstance(once, str) or "\n" not in once


def test_calls_by_oracles_are_checked_too() -> None:
    with pytest.raises(Unfit, match="uri: "):
        call("VLCTools", "add_to_playlist", uri="ftp://x/y")


def test_fixtures_are_the_same_each_time_and_as_long_as_they_say() -> None:
    made = [MAKERS["sound"]({"seconds": 3, "hz": hz}) for hz in (440, 440, 330)]
    assert made[0] == made[1] != made[2]
    with wave.open(io.BytesIO(made[0])) as file:
        assert file.getnframes() / file.getframerate() == 3
    assert MAKERS["film"](4).count(b"FRAME\n") == 8
