"""Tasks on VLC: add a file of Music to the playlist that is open, and save the playlist under a given name.

Invariant: a task is solved only if the saved file lists what was there and then the new entry. The two splits share no
wording and, since words are split by their hash, no name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from apis.tasks.families.vlc import music, vlc_playlist_oracle
from apis.tasks.family import ITS_END, Family, Files, Templates, in_osworld_form
from apis.tasks.goal import Goal
from apis.tasks.osworld import Evaluator, Task
from apis.tasks.view import Decide
from apis.tasks.words import HELD_OUT, TRAIN, words

NAME = "vlc_playlist"
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
        family=NAME,
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
    goal: Callable[[Random, str], Goal],
    *,
    opened: Callable[[Goal], Sequence[str]],
    routes: Mapping[str, Decide],
    templates: Templates,
    trained: bool = True,
) -> Family:
    """A family that is done when the file `wanted` of Music lists the goal's words, in this order."""

    def task(task_id: str, made: Goal) -> Task:
        expected = {"type": "rule", "rules": {"expected": [f"{music.FOLDER}/{entry}" for entry in made.words]}}
        evaluator = Evaluator(func="playlist_is", result=music.playlist_getter(made.wanted), expected=expected)
        return in_osworld_form(task_id, made, music.listed(made.words, opened(made)), evaluator, (music.VLC,))

    def solved(made: Goal) -> Files:
        return music.written(made.wanted, made.words)

    return Family(
        name,
        music.VLC,
        (music.VLC,),
        goal,
        task,
        solved,
        routes,
        templates,
        trained,
        music.values_of,
        leaves=lambda _goal, _before: (music.DIALOGS,),
        may=ITS_END,
    )


FAMILY = of_playlists(
    NAME,
    goal,
    opened=lambda made: made.words[:-1],
    routes={"gui": vlc_playlist_oracle.by_gui, "mixed": vlc_playlist_oracle.by_tools},
    templates=TEMPLATES,
)
