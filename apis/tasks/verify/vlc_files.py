"""The forms in which VLC writes its settings and its playlists.

Invariant: pure. A file with a single line that VLC would not write does not count as VLC's. So lines put beside or
below VLC's own are found by their form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

LEAST = 300  # settings in a file; VLC with few plugins writes over a thousand
_HEAD = re.compile(
    r"\ufeff?###\n###  vlc [0-9][^\n]*\n###\n\n###\n### lines beginning with a '#' character are comments\n###\n\n"
)
_SECTION = re.compile(r"\[[^\]\n]+\](?: # [^\n]*)?")
_SETTING = re.compile(r"# [^\n]* \((?:string|integer|float|boolean)\)\n(#?)([^\s#=]+)=([^\n]*)")


def settings(text: str) -> dict[str, list[str | None]] | None:
    """The values in VLC's file by name, None for one that is at its default; None where it is not as VLC writes it."""
    head = _HEAD.match(text)
    if head is None or not text.endswith("\n\n"):
        return None
    found: dict[str, list[str | None]] = {}
    for block in text[head.end() : -2].split("\n\n"):
        if _SECTION.fullmatch(block):
            continue
        setting = _SETTING.fullmatch(block)
        if setting is None:
            return None
        found.setdefault(setting[2], []).append(None if setting[1] else setting[3])
    return found if len(found) >= LEAST else None


def written_settings(values: Mapping[str, str]) -> str:
    """The shortest file that VLC could have written with these values."""
    others = (f"setting-{number}" for number in range(LEAST))
    lines = [f"# Text (string)\n{name}={value}\n\n" for name, value in values.items()]
    lines += [f"# Text (integer)\n#{name}=0\n\n" for name in others]
    head = "\ufeff###\n###  vlc 3.0\n###\n\n###\n### lines beginning with a '#' character are comments\n###\n\n"
    return f"{head}[core] # core program\n\n{''.join(lines)}"


def entries(text: str) -> list[str] | None:
    """The entries of an M3U file; None where it is not as VLC writes it: a line of length and title before each."""
    lines = text.split("\n")
    if lines[0] != "#EXTM3U" or lines[-1] or len(lines) % 2:
        return None
    told, found = lines[1:-1:2], lines[2:-1:2]
    if any(not re.fullmatch(r"#EXTINF:(-1|[0-9]+),[^\n]*", line) for line in told):
        return None
    return None if any(not entry or entry.startswith("#") for entry in found) else found


def written_playlist(names: Iterable[str]) -> str:
    """The file that VLC writes for sounds of one second beside it."""
    return "#EXTM3U\n" + "".join(f"#EXTINF:1,{name}\n{name}\n" for name in names)
