"""How to add to VLC's playlist and to save it. A file is added by a dialog or by VLC's function; a dialog saves.

Invariant: the oracle saves only when VLC lists what it should. It ends only after it has given a name to the dialog
that saves.
"""

from __future__ import annotations

from apis.actions.gui import Exit, Hotkey, Type, Wait
from apis.apps.catalogue import call
from apis.tasks.families.vlc import music
from apis.tasks.oracle import keys, pointed
from apis.tasks.view import Decide, Move, View

OPEN_KEYS = Hotkey(keys=("ctrl", "o"))


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
