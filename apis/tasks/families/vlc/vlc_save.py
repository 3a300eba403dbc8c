"""Tasks on VLC, never trained on: save the playlist as it is, in another file format.

Invariant: a task is solved only if the saved file lists what VLC lists, in its order. Only the held-out split exists.
"""

from __future__ import annotations

from random import Random

from apis.tasks.families.vlc import music, vlc_playlist
from apis.tasks.families.vlc.vlc_playlist import of_playlists
from apis.tasks.goal import Goal
from apis.tasks.words import HELD_OUT, TRAIN, words

TEMPLATES: dict[str, dict[str, tuple[str, ...]]] = {
    "save": {
        TRAIN: (),
        HELD_OUT: (
            "Save the playlist that VLC shows as {file}",
            "Keep VLC's playlist in the file {file}",
            "The playlist in VLC should be saved, under the name {file}",
        ),
    }
}


def goal(random: Random, split: str) -> Goal:
    """What an instance of `split` asks for."""
    first, second, *others = words(random, split, 5)
    file = f"{random.choice((first, f'{first}-{second}', f'{first}-{second}'))}.m3u8"
    return Goal(
        kind="save",
        instruction=random.choice(TEMPLATES["save"][split]).format(file=f"~/{music.FOLDER}/{file}"),
        wanted=file,
        words=tuple(f"{name}.wav" for name in others[: random.choice((1, 2, 3))]),
    )


FAMILY = of_playlists("vlc_save", TEMPLATES, goal, {"gui": vlc_playlist.save}, opened=lambda made: made.words)
