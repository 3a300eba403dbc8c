"""The functions of VLC under their published names and parameters."""

from __future__ import annotations

from apis.functions.declaration import Function, Param, Tool

MAX_SUFFIXES = 20


def _function(name: str, description: str, *params: Param) -> Function:
    return Function("VLCTools", name, Tool, params, description)


FUNCTIONS: tuple[Function, ...] = (
    _function("get_playlist", "List the playlist in its order, with lengths, and what is playing."),
    _function("play", "Go on where it was paused, or begin with the current entry of the playlist."),
    _function("pause", "Pause what is playing."),
    _function("next", "Play the next entry of the playlist."),
    _function("previous", "Play the entry before this one."),
    _function(
        "add_to_playlist",
        "Put a file at the end of the playlist; it does not begin to play.",
        Param("uri", "media", "str", meaning="like 'file:///home/agent/Music/a.mp3' or '~/Music/a.mp3'"),
    ),
    _function("get_current_time", "Say how many seconds of what is playing are over."),
    _function("get_media_duration", "Say how many seconds long what is playing is."),
    _function(
        "toggle_fullscreen",
        "Let the video fill the screen, or end that.",
        Param("enable", "boolean", "Optional[bool]", (), None, "True or False; None for the other of the two"),
    ),
    _function("get_settings", "List the settings that are not at their defaults, and common ones."),
    _function(
        "set_settings",
        "Change a setting and keep it.",
        Param("field", "setting", "str", meaning="a name as in VLC's file vlcrc, like 'qt-max-volume'"),
        Param("value", "own_line", "str", (500,), meaning="the new value; 1 and 0 for on and off"),
    ),
    _function(
        "get_media_files",
        "List the media files in a folder and in the folders below it.",
        Param("path", "folder", "str", meaning="a folder of your home folder like '~/Music'"),
        Param("suffix", "names", "Optional[List]", (MAX_SUFFIXES,), None, "endings like ['mp3']; None: all media"),
    ),
)
