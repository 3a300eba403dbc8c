"""What families on VLC have in common: sounds that lie in Music, and a VLC that lists some of them without playing.

Invariant: a sound is a second of silence, the same bytes every time, so an instance stays small and a desktop idle.
"""

from __future__ import annotations

import io
import re
import wave
from collections.abc import Sequence

from apis.applications import app_named
from apis.tasks.goal import Goal
from apis.tasks.oracle import click, keys
from apis.tasks.osworld import HOME, Step, data_url, launch, put
from apis.tasks.verify.media import written_playlist
from apis.tasks.verify.verify import FileView
from apis.tasks.view import Move, View

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


def playlist_getter(name: str) -> dict[str, str]:
    """The getter of a file of Music."""
    return {"type": "vm_file", "path": f"{HOME}/{FOLDER}/{name}", "dest": name}


def written(name: str, entries: Sequence[str]) -> dict[str, FileView]:
    """The playlist's file with these entries, as a look at it would find it."""
    return {f"{FOLDER}/{name}": FileView("file", written_playlist(entries).encode())}


def values_of(made: Goal) -> set[str]:
    """The words that an instance is made of: names without their endings."""
    stems = (name.partition(".")[0] for name in (made.target, made.wanted, *made.words))
    return {word for stem in stems for word in stem.split("-")} - {""}


def file_field(view: View) -> str | None:
    """The field of a dialog that asks for a file."""
    return view.find("text", lambda element: element.name == NAME_FIELD)


def shut(view: View) -> Move:
    """Close a dialog that is not the one wanted."""
    cancel = view.find("push-button", lambda element: element.label == "Cancel")
    return click(view, cancel) if cancel is not None and view.route.random() < 0.5 else keys("close this", "esc")
