"""Tasks on VLC: add a file to the playlist and save it, save it in another form, or set a preference."""

from __future__ import annotations

import io
import re
import wave
from collections.abc import Callable, Mapping, Sequence
from random import Random

from apis.actions.gui import Exit, Hotkey, Type, Wait, line
from apis.applications import app_named
from apis.catalogue import call
from apis.tasks.families import kind_of, worded, wordings
from apis.tasks.family import Family, Files, home_getter, rule
from apis.tasks.oracle import click, keys, pointed
from apis.tasks.osworld import HOME, Evaluator, Step, data_url, launch, put
from apis.tasks.verify.media import is_dialogs, written_playlist, written_settings
from apis.tasks.verify.verify import FileView
from apis.tasks.view import Decide, Goal, Move, View
from apis.tasks.words import words

VLC = "vlc"
FOLDER = "Music"
RATE_HZ = 1000  # samples per second, 8 bits each
OPEN, SAVE = "Select one or more files to open", "Save playlist as..."  # titles of dialogs
DIALOGS = ".config/QtProject.conf"  # where the dialogs note the folders that were chosen in them
NAME_FIELD = "File name:"
_ENTRY = re.compile(r"^[* ] \d+: ~/(.*?)(?:, \d+ s)?$", re.MULTILINE)


def sound() -> bytes:
    """One second of silence (RIFF WAVE, PCM, 8 bits, one channel)."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(1)
        file.setframerate(RATE_HZ)
        file.writeframes(bytes([128]) * RATE_HZ)
    return out.getvalue()


def listed(names: Sequence[str], opened: Sequence[str]) -> list[Step]:
    """Put sounds of these names into Music, and open some of them in VLC."""
    url = data_url(sound(), "audio/wav")
    # VLC starts in HOME, so that its files are found whatever that is called.
    command = (*app_named(VLC).argv, "--no-playlist-autostart", *(f"{FOLDER}/{name}" for name in opened))
    return [*put((f"{HOME}/{FOLDER}/{name}", url) for name in names), launch(*command)]


def playlist_of(view: View) -> list[str]:
    """The paths below HOME that VLC lists, as the observation tells them."""
    return _ENTRY.findall(view.observation.info)


def written(name: str, entries: Sequence[str]) -> dict[str, FileView]:
    """The playlist's file with these entries, as a look at it would find it."""
    return {f"{FOLDER}/{name}": FileView("file", written_playlist(entries).encode())}


def _values_of(made: Goal) -> set[str]:
    stems = (name.partition(".")[0] for name in (made.target, made.wanted, *made.words))
    return {word for stem in stems for word in stem.split("-")} - {""}


def file_field(view: View) -> str | None:
    """The field of a dialog that asks for a file."""
    return view.find("text", lambda element: element.name == NAME_FIELD)


def shut(view: View) -> Move:
    """Close a dialog that is not the one wanted."""
    cancel = view.find("push-button", lambda element: element.label == "Cancel")
    return click(view, cancel) if cancel is not None and view.route.random() < 0.5 else keys("close this", "esc")


OPEN_KEYS = Hotkey(keys=("ctrl", "o"))


def _vlc_playlist(random: Random, split: str) -> Goal:
    saved, new, *others = words(random, split, 5)
    count = random.choice((1, 2, 2))
    file, media = f"{saved}.m3u", f"{new}.wav"
    return Goal(
        kind="add",
        instruction=worded(
            random, "vlc_playlist", "add", split, media=f"~/{FOLDER}/{media}", file=f"~/{FOLDER}/{file}"
        ),
        target=media,
        wanted=file,
        words=(*(f"{name}.wav" for name in others[:count]), media),
    )


def of_playlists(
    name: str,
    goal: Callable[[Random, str], Goal],
    routes: Mapping[str, Decide],
    *,
    opened: Callable[[Goal], Sequence[str]],
) -> Family:
    """A family that is done when the file `wanted` of Music lists the goal's words, in this order."""

    def evaluator(made: Goal) -> Evaluator:
        expected = rule(expected=[f"{FOLDER}/{entry}" for entry in made.words])
        return Evaluator(func="playlist_is", result=home_getter(f"{FOLDER}/{made.wanted}"), expected=expected)

    return Family(
        name, (VLC,), goal, lambda made: listed(made.words, opened(made)), evaluator,
        lambda made: written(made.wanted, made.words), routes, wordings(name), _values_of,
        leaves=lambda _goal, _before: {DIALOGS: is_dialogs},
    )  # fmt: skip


def _playlist_by_gui(view: View) -> Move:
    return _next(view, lambda view: (f"{view.goal.target} -> open", OPEN_KEYS))


def _playlist_by_tools(view: View) -> Move:
    added = call("VLCTools", "add_to_playlist", uri=_path(view.goal.target))
    return _next(view, lambda view: (f"{view.goal.target} -> add", added))


def save(view: View) -> Move:
    """The next move towards a saved playlist, of what is listed now."""
    return _next(view, lambda view: ("wait for the playlist", Wait()))


def _next(view: View, add: Decide) -> Move:
    if view.title == SAVE:
        return _named(view, view.goal.wanted) if _ready(view) else shut(view)
    if view.title == OPEN:
        return _named(view, view.goal.target) if view.did(OPEN_KEYS) or _typed(view) else shut(view)
    if any(f"text={_path(view.goal.wanted)!r}" in (turn.line or "") for turn in view.history):
        return "saved -> done", Exit(success=True)
    if _ready(view):
        return keys(f"{len(view.goal.words)} entries -> save", "ctrl", "y")
    if _typed(view):  # VLC takes up a file a moment after its dialog has closed
        return "wait for the playlist", Wait()
    return add(view)


def _named(view: View, name: str) -> Move:
    """Give a dialog the path of a file of Music."""
    field = file_field(view)
    if field is None:
        return keys("close this", "esc")
    return pointed(view, field, name), Type(coordinates=field, text=_path(name), overwrite=True, enter=True)


def _ready(view: View) -> bool:
    """Whether VLC lists what is to be saved."""
    return playlist_of(view) == [f"{FOLDER}/{entry}" for entry in view.goal.words]


def _typed(view: View) -> bool:
    return f"text={_path(view.goal.target)!r}" in view.last_line()


def _path(name: str) -> str:
    return f"~/{FOLDER}/{name}"


VLC_PLAYLIST = of_playlists(
    "vlc_playlist",
    _vlc_playlist,
    {"gui": _playlist_by_gui, "mixed": _playlist_by_tools},
    opened=lambda made: made.words[:-1],
)


def _vlc_save(random: Random, split: str) -> Goal:
    first, second, *others = words(random, split, 5)
    file = f"{random.choice((first, f'{first}-{second}', f'{first}-{second}'))}.m3u8"
    return Goal(
        kind="save",
        instruction=worded(random, "vlc_save", "save", split, file=f"~/{FOLDER}/{file}"),
        wanted=file,
        words=tuple(f"{name}.wav" for name in others[: random.choice((1, 2, 3))]),
    )


VLC_SAVE = of_playlists("vlc_save", _vlc_save, {"gui": save}, opened=lambda made: made.words)


SETTINGS_DIALOG = "Simple Preferences"
PLACES = {  # setting -> its tab in the preferences, and how its field is called there
    "audio-language": ("Audio", "Preferred audio language:"),
    "snapshot-prefix": ("Video", "Prefix"),
    "sub-language": ("Subtitles / OSD", "Preferred subtitle language"),
}
SETTINGS = ".config/vlc/vlcrc"


def _vlc_setting(random: Random, split: str) -> Goal:
    kind = kind_of(random, "vlc_setting")
    value = "-".join(words(random, split, random.choice((1, 2, 2))))
    return Goal(
        family="vlc_setting",
        kind=kind,
        instruction=worded(random, "vlc_setting", kind, split, value=value),
        wanted=value,
    )


def setting_config(_: Goal) -> list[Step]:
    """VLC is open and lists nothing."""
    return listed((), ())


def setting_evaluator(made: Goal) -> Evaluator:
    """VLC's own file of settings."""
    expected = rule(expected={name: made.wanted if name == made.kind else "" for name in PLACES})
    return Evaluator(func="settings_are", result=home_getter(SETTINGS), expected=expected)


def setting_solved(made: Goal) -> Files:
    """The file when it is done."""
    values = {name: made.wanted if name == made.kind else "" for name in PLACES}
    return {SETTINGS: FileView("file", written_settings(values).encode())}


def _setting_by_gui(view: View) -> Move:
    tab, named = PLACES[view.goal.kind]
    if view.title == SETTINGS_DIALOG:
        field = view.find("text", lambda element: element.name == named)
        if field is not None:
            typed = Type(coordinates=field, text=view.goal.wanted, overwrite=True, enter=True)
            return pointed(view, field, view.goal.wanted), typed
        chosen = view.find("check-box", lambda element: element.label == tab)
        return click(view, chosen) if chosen is not None else shut(view)
    if view.title in ("", OPEN, SAVE):
        return shut(view)
    if any(f"text={view.goal.wanted!r}" in (turn.line or "") for turn in view.history):
        return "saved -> done", Exit(success=True)
    return keys(f"{named} {view.goal.wanted} -> preferences", "ctrl", "p")


def _setting_by_tools(view: View) -> Move:
    change = call("VLCTools", "set_settings", field=view.goal.kind, value=view.goal.wanted)
    if any(turn.line == line(change) for turn in view.history):
        return "set -> done", Exit(success=True)
    return f"{view.goal.kind} -> {view.goal.wanted}", change


VLC_SETTING = Family(
    "vlc_setting",
    (VLC,),
    _vlc_setting,
    setting_config,
    setting_evaluator,
    setting_solved,
    {"gui": _setting_by_gui, "api": _setting_by_tools},
    wordings("vlc_setting"),
)

FAMILIES = (VLC_PLAYLIST, VLC_SETTING, VLC_SAVE)
