"""How to change a setting of VLC: by its preferences, or by its function.

Invariant: in the preferences a value is confirmed with the very step that types it, so that nothing typed is lost with
the dialog, and the end comes only after that.
"""

from __future__ import annotations

from apis.actions.gui import Exit, Type, line
from apis.apps.catalogue import call
from apis.tasks.families.vlc import music
from apis.tasks.oracles import Move, View, click, keys, pointed

DIALOG = "Simple Preferences"
PLACES = {  # setting -> its tab in the preferences, and how its field is called there
    "audio-language": ("Audio", "Preferred audio language:"),
    "snapshot-prefix": ("Video", "Prefix"),
    "sub-language": ("Subtitles / OSD", "Preferred subtitle language"),
}


def by_gui(view: View) -> Move:
    """The next move with mouse and keyboard."""
    tab, named = PLACES[view.goal.kind]
    if view.title == DIALOG:
        field = view.find("text", lambda element: element.name == named)
        if field is not None:
            typed = Type(coordinates=field, text=view.goal.wanted, overwrite=True, enter=True)
            return pointed(view, field, view.goal.wanted), typed
        chosen = view.find("check-box", lambda element: element.label == tab)
        return click(view, chosen) if chosen is not None else music.shut(view)
    if view.title in ("", music.OPEN, music.SAVE):
        return music.shut(view)
    if any(f"text={view.goal.wanted!r}" in (turn.line or "") for turn in view.history):
        return "saved -> done", Exit(success=True)
    return keys(f"{named} {view.goal.wanted} -> preferences", "ctrl", "p")


def by_tools(view: View) -> Move:
    """The next move with VLC's function."""
    change = call("VLCTools", "set_settings", field=view.goal.kind, value=view.goal.wanted)
    if any(turn.line == line(change) for turn in view.history):
        return "set -> done", Exit(success=True)
    return f"{view.goal.kind} -> {view.goal.wanted}", change
