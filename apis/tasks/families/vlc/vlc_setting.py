"""Tasks on VLC: give a setting of its preferences a new value.

Invariant: solved only if VLC's own file says so, and the other settings that such tasks are about are as they were;
the two splits share no wording and, since words are split by their hash, no value.
"""

from __future__ import annotations

from random import Random

from apis.tasks.families import vlc_setting_oracle
from apis.tasks.families.vlc import music
from apis.tasks.families.vlc_setting_oracle import PLACES
from apis.tasks.family import ITS_END, Family, Files, Goal, in_osworld_form
from apis.tasks.osworld import HOME, Evaluator, Task
from apis.tasks.verify.verify import FileView
from apis.tasks.verify.vlc_files import written_settings
from apis.tasks.words import HELD_OUT, TRAIN, words

NAME = "vlc_setting"
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
        family=NAME,
        kind=kind,
        instruction=random.choice(TEMPLATES[kind][split]).format(value=value),
        wanted=value,
    )


def task(task_id: str, made: Goal) -> Task:
    """The instance in OSWorld's form."""
    expected = {name: made.wanted if name == made.kind else "" for name in PLACES}
    evaluator = Evaluator(
        func="settings_are",
        result={"type": "vm_file", "path": f"{HOME}/{SETTINGS}", "dest": "vlcrc"},
        expected={"type": "rule", "rules": {"expected": expected}},
    )
    return in_osworld_form(task_id, made, music.listed((), ()), evaluator, (music.VLC,))


def solved(made: Goal) -> Files:
    """The file when it is done."""
    values = {name: made.wanted if name == made.kind else "" for name in PLACES}
    return {SETTINGS: FileView("file", written_settings(values).encode())}


FAMILY = Family(
    name=NAME,
    app=music.VLC,
    apps=(music.VLC,),
    drawn=goal,
    built=task,
    solved=solved,
    routes={"gui": vlc_setting_oracle.by_gui, "api": vlc_setting_oracle.by_tools},
    templates=TEMPLATES,
    may=ITS_END,
)
