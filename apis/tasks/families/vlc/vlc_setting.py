"""Tasks on VLC: give a setting of its preferences a new value.

Invariant: a task is solved only if VLC's own file says so and keeps the other settings of such tasks. In the
preferences the oracle confirms a value with the step that types it, so that nothing typed is lost. The two splits share
no wording and, since words are split by their hash, no value.
"""

from __future__ import annotations

from random import Random

from apis.actions.gui import Exit, Type, line
from apis.catalogue import call
from apis.tasks.families.vlc import music
from apis.tasks.family import ITS_END, Family, Files, rule
from apis.tasks.goal import Goal
from apis.tasks.oracle import click, keys, pointed
from apis.tasks.osworld import HOME, Evaluator, Step
from apis.tasks.verify.media import written_settings
from apis.tasks.verify.verify import FileView
from apis.tasks.view import Move, View
from apis.tasks.words import HELD_OUT, TRAIN, words

DIALOG = "Simple Preferences"
PLACES = {  # setting -> its tab in the preferences, and how its field is called there
    "audio-language": ("Audio", "Preferred audio language:"),
    "snapshot-prefix": ("Video", "Prefix"),
    "sub-language": ("Subtitles / OSD", "Preferred subtitle language"),
}
SETTINGS = ".config/vlc/vlcrc"
TEMPLATES = {
    "audio-language": {
        TRAIN: (
            "Set VLC's preferred audio language to '{value}'",
            "In VLC's audio settings, '{value}' should be the preferred language",
            "VLC should prefer the audio language '{value}'",
            "Change the preferred audio language of VLC, make it '{value}'",
        ),
        HELD_OUT: (
            "Make '{value}' the preferred audio language in VLC's preferences",
            "The preferred audio language of VLC should be '{value}'",
        ),
    },
    "sub-language": {
        TRAIN: (
            "Set VLC's preferred subtitle language to '{value}'",
            "In VLC's subtitle settings, '{value}' should be the preferred language",
            "VLC should prefer the subtitle language '{value}'",
            "Change the preferred subtitle language of VLC, make it '{value}'",
        ),
        HELD_OUT: (
            "Make '{value}' the preferred subtitle language in VLC's preferences",
            "The preferred subtitle language of VLC should be '{value}'",
        ),
    },
    "snapshot-prefix": {
        TRAIN: (
            "Set the prefix of VLC's video snapshots to '{value}'",
            "In VLC's video settings, the snapshot prefix should be '{value}'",
            "VLC's video snapshots should have the prefix '{value}'",
            "Change the prefix of video snapshots in VLC, make it '{value}'",
        ),
        HELD_OUT: (
            "Make '{value}' the prefix of video snapshots in VLC's preferences",
            "The prefix of VLC's video snapshots should be '{value}'",
        ),
    },
}


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    kind = random.choice(sorted(TEMPLATES))
    value = "-".join(words(random, split, random.choice((1, 2, 2))))
    return Goal(
        family="vlc_setting",
        kind=kind,
        instruction=random.choice(TEMPLATES[kind][split]).format(value=value),
        wanted=value,
    )


def config(_: Goal) -> list[Step]:
    """VLC is open and lists nothing."""
    return music.listed((), ())


def evaluator(made: Goal) -> Evaluator:
    """VLC's own file of settings."""
    expected = rule(expected={name: made.wanted if name == made.kind else "" for name in PLACES})
    getter = {"type": "vm_file", "path": f"{HOME}/{SETTINGS}", "dest": "vlcrc"}
    return Evaluator(func="settings_are", result=getter, expected=expected)


def solved(made: Goal) -> Files:
    """The file when it is done."""
    values = {name: made.wanted if name == made.kind else "" for name in PLACES}
    return {SETTINGS: FileView("file", written_settings(values).encode())}


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


FAMILY = Family(
    "vlc_setting",
    (music.VLC,),
    goal,
    config,
    evaluator,
    solved,
    {"gui": by_gui, "api": by_tools},
    TEMPLATES,
    may=ITS_END,
)
