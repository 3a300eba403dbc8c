"""Tasks on VLC: add a file of Music to the playlist that is open, and save the playlist under a given name.

Invariant: a task is solved only if the saved file lists what was there and then the new entry. The two splits share no
wording and, since words are split by their hash, no name. The oracle saves only when VLC lists what it should, and ends
only after it has given a name to the dialog that saves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from apis.actions.gui import Exit, Hotkey, Type, Wait
from apis.catalogue import call
from apis.tasks.families.vlc import music
from apis.tasks.family import ITS_END, Family, Files, Templates, rule
from apis.tasks.goal import Goal
from apis.tasks.oracle import keys, pointed
from apis.tasks.osworld import Evaluator, Step
from apis.tasks.verify.media import is_dialogs
from apis.tasks.view import Decide, Move, View
from apis.tasks.words import HELD_OUT, TRAIN, words

OPEN_KEYS = Hotkey(keys=("ctrl", "o"))
TEMPLATES = {
    "add": {
        TRAIN: (
            "Add {media} to VLC's playlist and save that as {file}",
            "Put {media} at the end of the playlist, then save the playlist as {file}",
            "The playlist lacks {media}, add it and save the playlist under {file}",
            "Add the file {media} in VLC and keep the whole playlist as {file}",
            "Save the playlist as {file} after adding {media} to it",
            "With {media} added to it, the playlist of VLC should be saved as {file}",
        ),
        HELD_OUT: (
            "Add {media} to the playlist, then save the playlist as {file}",
            "Save VLC's playlist with {media} added at its end as {file}",
            "The file {media} belongs into the playlist, add it and save everything as {file}",
        ),
    }
}


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    saved, new, *others = words(random, split, 5)
    count = random.choice((1, 2, 2))
    file, media = f"{saved}.m3u", f"{new}.wav"
    return Goal(
        kind="add",
        instruction=random.choice(TEMPLATES["add"][split]).format(
            media=f"~/{music.FOLDER}/{media}", file=f"~/{music.FOLDER}/{file}"
        ),
        target=media,
        wanted=file,
        words=(*(f"{name}.wav" for name in others[:count]), media),
    )


def of_playlists(
    name: str,
    templates: Templates,
    goal: Callable[[Random, str], Goal],
    routes: Mapping[str, Decide],
    *,
    opened: Callable[[Goal], Sequence[str]],
) -> Family:
    """A family that is done when the file `wanted` of Music lists the goal's words, in this order."""

    def config(made: Goal) -> list[Step]:
        return music.listed(made.words, opened(made))

    def evaluator(made: Goal) -> Evaluator:
        expected = rule(expected=[f"{music.FOLDER}/{entry}" for entry in made.words])
        return Evaluator(func="playlist_is", result=music.playlist_getter(made.wanted), expected=expected)

    def solved(made: Goal) -> Files:
        return music.written(made.wanted, made.words)

    return Family(
        name, (music.VLC,), goal, config, evaluator, solved, routes, templates, music.values_of,
        leaves=lambda _goal, _before: {music.DIALOGS: is_dialogs}, may=ITS_END,
    )  # fmt: skip


def by_gui(view: View) -> Move:
    """The next move with mouse and keyboard."""
    return _next(view, lambda view: (f"{view.goal.target} -> open", OPEN_KEYS))


def by_tools(view: View) -> Move:
    """The next move with VLC's function for adding; VLC has none that saves."""
    added = call("VLCTools", "add_to_playlist", uri=_path(view.goal.target))
    return _next(view, lambda view: (f"{view.goal.target} -> add", added))


def save(view: View) -> Move:
    """The next move towards a saved playlist, of what is listed now."""
    return _next(view, lambda view: ("wait for the playlist", Wait()))


def _next(view: View, add: Decide) -> Move:
    if view.title == music.SAVE:
        return _named(view, view.goal.wanted) if _ready(view) else music.shut(view)
    if view.title == music.OPEN:
        return _named(view, view.goal.target) if view.did(OPEN_KEYS) or _typed(view) else music.shut(view)
    if any(f"text={_path(view.goal.wanted)!r}" in (turn.line or "") for turn in view.history):
        return "saved -> done", Exit(success=True)
    if _ready(view):
        return keys(f"{len(view.goal.words)} entries -> save", "ctrl", "y")
    if _typed(view):  # VLC takes up a file a moment after its dialog has closed
        return "wait for the playlist", Wait()
    return add(view)


def _named(view: View, name: str) -> Move:
    """Give a dialog the path of a file of Music."""
    field = music.file_field(view)
    if field is None:
        return keys("close this", "esc")
    return pointed(view, field, name), Type(coordinates=field, text=_path(name), overwrite=True, enter=True)


def _ready(view: View) -> bool:
    """Whether VLC lists what is to be saved."""
    return music.playlist_of(view) == [f"{music.FOLDER}/{entry}" for entry in view.goal.words]


def _typed(view: View) -> bool:
    return f"text={_path(view.goal.target)!r}" in view.last_line()


def _path(name: str) -> str:
    return f"~/{music.FOLDER}/{name}"


FAMILY = of_playlists(
    "vlc_playlist", TEMPLATES, goal, {"gui": by_gui, "mixed": by_tools}, opened=lambda made: made.words[:-1]
)
