"""The functions of VLC, as `apis/apps/vlc.yaml` declares them, over HTTP on this desktop's loopback."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

from guest.application import command_lines
from guest.files import any_in_home, folder_in_home, path_of, short, there_in_home, url_of, with_endings, wrong
from guest.tools import public
from guest.vlc import start as vlc_start
from Xlib import X, display, error

MOST_BYTES = 2 << 20
CALL_S = 8.0  # less than the agent waits
CONNECT_S = 4.0  # a VLC that has just been started takes a while until it listens
LOOK_S = 0.01


def ask(wait_s: float = CALL_S, **query: str) -> dict[str, Any]:
    """What VLC's page (http/agent.json) answers to `query`. Raises Refused."""
    until = time.monotonic() + min(wait_s, CONNECT_S)
    port, password = vlc_start.access()
    login = base64.b64encode(f":{password}".encode()).decode()
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=wait_s)
        try:
            connection.request("GET", f"/agent.json?{urlencode(query)}", headers={"Authorization": f"Basic {login}"})
            answer = connection.getresponse()
            body = answer.read(MOST_BYTES + 1)
            break
        except ConnectionError as error:
            if not any(command_lines({"vlc"})):
                raise wrong("VLC is not running: open it first") from error
            if time.monotonic() >= until:
                raise wrong("VLC does not listen: close it and open it with Agent.open_app('vlc')") from error
            time.sleep(LOOK_S)
        except TimeoutError as error:
            raise wrong(f"VLC did not answer within {wait_s:g} s") from error
        finally:
            connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise wrong("VLC listens with other settings: close it and open it with Agent.open_app('vlc')")
    if len(body) > MOST_BYTES:
        raise wrong("VLC's answer is too long")
    try:
        state: dict[str, Any] = json.loads(body.decode("utf-8", "replace"), strict=False)
    except ValueError as error:
        raise wrong("VLC's answer can't be read") from error
    return state


def ask_until(true: Callable[[dict[str, Any]], bool], wait_s: float, **query: str) -> dict[str, Any]:
    """The first answer that is as wanted, or the last one within `wait_s`: VLC acts on orders a little later."""
    until = time.monotonic() + wait_s
    while True:
        now = ask(**query)
        if true(now) or time.monotonic() >= until:
            return now
        time.sleep(LOOK_S)


RESULT_CHARS, INFO_CHARS, NAME_CHARS = 1900, 4800, 120
ITEMS = 200  # of a playlist that are looked at
CHANGE_S = 2.0  # for an order to take effect
INFO_S, STATE_S = 0.25, 4.0
# For the window to follow an order. One that is lost is as good as never followed and the others take some 10 ms, so
# the first waits are short; a later one leaves a busy machine its time.
WINDOW_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
MEDIA = {
    "3gp", "aac", "ac3", "aif", "aiff", "amr", "ape", "asf", "avi", "divx", "dts", "dv", "flac", "flv", "m2ts", "m2v",
    "m3u", "m3u8", "m4a", "m4b", "m4v", "mid", "mka", "mkv", "mov", "mp2", "mp3", "mp4", "mpeg", "mpg", "mts", "oga",
    "ogg", "ogm", "ogv", "opus", "pls", "ra", "rm", "rmvb", "ts", "vob", "wav", "webm", "wma", "wmv", "wv", "xspf",
    "y4m",
}  # fmt: skip
# Without these VLC could not be reached any more, or would load what is no media.
KEPT = re.compile(r"(http|https|lua|rc|telnet|sout|plugin|logger|vlm|rtsp|dbus)(-.*)?|extraintf|intf|control|config")
COMMON = (
    "qt-max-volume", "qt-minimal-view", "qt-bgcone", "fullscreen", "loop", "repeat", "random", "play-and-exit",
    "one-instance-when-started-from-file", "input-record-path", "snapshot-path", "audio-language", "sub-language",
    "video-title-show", "start-time", "rate",
)  # fmt: skip
OFF, ON = {"0", "false", "no", "off"}, {"1", "true", "yes", "on"}


def call(name: str, arguments: dict[str, Any]) -> str:
    """Carry out a function. Raises Refused."""
    return public(VLCTools(), name, arguments)


def info() -> str:
    """What plays, how far it is, and the playlist. Raises Refused."""
    return _told(ask(INFO_S, items=str(ITEMS)), INFO_CHARS)


def state() -> str:
    """Whether it plays, and what, as JSON. Raises Refused."""
    now = ask(STATE_S)
    return json.dumps({"state": str(now.get("state"))[:NAME_CHARS], "uri": str(now.get("uri") or "")[:RESULT_CHARS]})


reachable = vlc_start.reachable


class VLCTools:
    """All of them."""

    def get_playlist(self) -> str:
        return _told(ask(items=str(ITEMS)), RESULT_CHARS)

    def play(self) -> str:
        before = ask()
        if not before["count"]:
            raise wrong("the playlist is empty: add a file with add_to_playlist first")
        if before["state"] != "playing":
            ask(do="play")
        return _state(ask_until(lambda now: now["state"] == "playing" and _known(now), CHANGE_S))

    def pause(self) -> str:
        before = ask()
        if before["state"] not in ("playing", "paused"):
            raise wrong("nothing is playing: there is nothing to pause")
        ask(do="pause")
        return _state(ask_until(lambda now: now["state"] == "paused", CHANGE_S))

    def next(self) -> str:
        return self._step("next")

    def previous(self) -> str:
        return self._step("previous")

    def _step(self, do: str) -> str:
        before = ask()
        if not before["count"]:
            raise wrong("the playlist is empty: add a file with add_to_playlist first")

        def moved(now: dict[str, Any]) -> bool:
            other = now["current"] != before["current"] or before["count"] == 1
            return other and now["state"] == "playing" and _known(now)

        ask(do=do)
        return _state(ask_until(lambda now: moved(now) or now["state"] == "stopped", CHANGE_S))

    def add_to_playlist(self, *, uri: str) -> str:
        if not re.match(r"https?://", uri):
            uri = url_of(there_in_home(path_of(uri), "uri"))
        before = ask()
        ask(do="add", uri=uri)
        now = ask_until(lambda now: now["count"] > before["count"], CHANGE_S)
        if now["count"] <= before["count"]:
            raise wrong(f"uri: VLC does not take {uri[:80]}")
        return f"{_place(uri)} is entry {now['count']} of the playlist"

    def get_current_time(self) -> str:
        now = _playing(ask())
        return f"{_seconds(now.get('time'))} of {_seconds(now.get('length'))} s: {_title(now)}"

    def get_media_duration(self) -> str:
        now = _playing(ask_until(_known, CHANGE_S))
        return f"{_seconds(now.get('length'))} s: {_title(now)}"

    def toggle_fullscreen(self, *, enable: bool | None) -> str:
        wanted = not ask()["fullscreen"] if enable is None else enable
        order = {"do": "fullscreen", "value": "1" if wanted else "0"}
        for wait_s in WINDOW_S:  # an order that comes while VLC sets its picture up is lost
            now = ask(**order)
            if now["fullscreen"] != wanted:
                now = ask_until(lambda now: now["fullscreen"] == wanted, CHANGE_S)
            if not now["video"] or _window_becomes(wanted, wait_s):
                break
            order["again"] = "1"
        else:
            raise wrong("VLC's window does not change: wait until the picture shows, and try again")
        later = "" if now["video"] else "; it counts for the next video: nothing with a picture is playing"
        return f"fullscreen is {'on' if now['fullscreen'] else 'off'}{later}"

    def get_settings(self) -> str:
        changed = {name: value for name, value in vlc_start.changed_settings().items() if not KEPT.fullmatch(name)}
        names = [*changed, *(name for name in COMMON if name not in changed)]
        settings = ask(names=",".join(names))["settings"]
        lines = [f"{name} = {_shown(settings[name])}" for name in names if settings[name]["kind"] != "nothing"]
        text, left = "", len(lines)
        for line in lines:
            if len(text) + len(line) > RESULT_CHARS - 30:
                return f"{text}and {left} more"
            text, left = f"{text}{line[:300]}\n", left - 1
        return text.rstrip("\n")

    def set_settings(self, *, field: str, value: str) -> str:
        """Change a setting in VLC as it runs, and in its file."""
        if KEPT.fullmatch(field):
            raise wrong(f"field: {field} belongs to this desktop and is not to be changed")
        kind = ask(names=field)["settings"][field]["kind"]
        if kind == "nothing":
            raise wrong(f"field: VLC has no setting {field}: write a name as in vlcrc, like 'qt-max-volume'")
        given = _fit(field, kind, value)
        kept = _shown(ask(do="set", name=field, value=given, names=field)["settings"][field])
        vlc_start.complete()  # a file with lines of another's would not be VLC's own
        vlc_start.write_settings({field: kept})
        taken = kept == given or kind != "number" or float(kept) == float(given)
        limited = "" if taken else f"; {given} is beyond what VLC takes"
        start = "; VLC's window goes by it from its next start on" if field.startswith("qt-") else ""
        return f"{field} is {kept}{limited}{start}"

    def get_media_files(self, *, path: str, suffix: list[str] | None) -> str:
        folder = folder_in_home(path, "path")
        wanted = MEDIA if suffix is None else {ending.strip().lstrip("*.").lower() for ending in suffix}
        if not all(wanted):
            raise wrong("suffix: write endings like ['mp3', 'mp4']")
        paths, cut = with_endings(folder, wanted)
        lines = [f"{len(paths)}{' or more' if cut else ''} media files in {short(folder)}"]
        for number, name in enumerate(paths):
            if sum(map(len, lines)) + len(lines) + len(name) > RESULT_CHARS - 30:
                lines.append(f"and {len(paths) - number} more")
                break
            lines.append(_line(short(name)))
        return "\n".join(lines)


def _window_becomes(full: bool, wait_s: float) -> bool:
    """Whether a window of VLC has, or none has, the whole screen by then, as the window manager says."""
    until = time.monotonic() + wait_s
    screen = display.Display()
    try:
        atoms = {name: screen.intern_atom(name) for name in ("_NET_CLIENT_LIST", "_NET_WM_STATE")}
        filled = screen.intern_atom("_NET_WM_STATE_FULLSCREEN")
        while True:
            listed = screen.screen().root.get_full_property(atoms["_NET_CLIENT_LIST"], X.AnyPropertyType)
            fills = False
            for number in listed.value if listed else ():
                window = screen.create_resource_object("window", number)
                with contextlib.suppress(error.XError):  # it was closed meanwhile
                    states = window.get_full_property(atoms["_NET_WM_STATE"], X.AnyPropertyType)
                    mine = "vlc" in (window.get_wm_class() or ())
                    fills = fills or (mine and states is not None and filled in states.value)
            if fills == full or time.monotonic() >= until:
                return fills == full
            time.sleep(LOOK_S)
    finally:
        screen.close()


def _fit(field: str, kind: str, value: str) -> str:
    """`value` as VLC takes it for a setting of this kind. Raises Refused."""
    text = value.strip()
    if kind == "boolean":
        if text.lower() not in OFF | ON:
            raise wrong(f"value: {field} is on or off: write '1' or '0'")
        return "1" if text.lower() in ON else "0"
    if kind == "number":
        if not re.fullmatch(r"-?\d{1,12}(\.\d{1,6})?", text):
            raise wrong(f"value: {field} is a number: write one like '100'")
        return text
    if text.startswith("file://"):
        return url_of(any_in_home(path_of(text), "value"))
    if text.startswith(("/", "~")):
        return any_in_home(text, "value")
    if text in (".", "..") or ("/" in text and not re.match(r"https?://", text)):
        raise wrong("value: write a folder of your home folder like '~/Videos'")
    return value


def _shown(setting: dict[str, str]) -> str:
    """A setting's value as VLC's file has it."""
    value = str(setting["value"])
    return {"true": "1", "false": "0"}.get(value, value) if setting["kind"] == "boolean" else value


def _playing(now: dict[str, Any]) -> dict[str, Any]:
    if "uri" not in now:
        raise wrong("nothing is playing: begin with play")
    return now


def _known(now: dict[str, Any]) -> bool:
    """Whether the length of what plays is known; of a stream it never is."""
    return bool(now.get("length"))


def _seconds(microseconds: Any) -> str:
    return f"{microseconds / 1e6:.1f}" if isinstance(microseconds, int | float) and microseconds > 0 else "0"


def _place(uri: Any) -> str:
    """Where an entry lies, as a model writes it."""
    return _line(short(path_of(str(uri))) if str(uri).startswith("file://") else str(uri))


def _line(text: str) -> str:
    """One line of at most `NAME_CHARS`, without control characters."""
    plain = "".join(c if c.isprintable() else " " for c in text)
    return plain if len(plain) <= NAME_CHARS else plain[: NAME_CHARS - 3] + "..."


def _title(now: dict[str, Any]) -> str:
    return _line(str(now.get("name") or _place(now.get("uri", ""))))


def _state(now: dict[str, Any]) -> str:
    if "uri" not in now:
        return "stopped"
    return f"{now['state']}: {_title(now)}, {_seconds(now.get('time'))} of {_seconds(now.get('length'))} s"


def _told(now: dict[str, Any], limit: int) -> str:
    """State and playlist, at most `limit` characters; the entry that plays is marked."""
    modes = [name for name in ("loop", "repeat", "random") if now.get(name)]
    modes += (["video in fullscreen"] if now["fullscreen"] else ["video"]) if now["video"] else []
    lines = [_state(now) + "".join(f"; {mode}" for mode in modes), f"playlist: {now['count']}"]
    length = sum(map(len, lines)) + 2
    for number, item in enumerate(now["items"], 1):
        seconds = item.get("seconds")
        lasts = f", {seconds:.0f} s" if isinstance(seconds, int | float) and seconds >= 0 else ""
        mark = "*" if item.get("id") == now.get("current") and "uri" in now else " "
        name, place = _line(str(item.get("name") or "")), _place(item.get("uri", ""))
        line = f"{mark} {number}: {place if place.endswith(name) else f'{name} | {place}'}{lasts}"
        length += len(line) + 1
        if length > limit - 10:
            break
        lines.append(line)
    if len(lines) - 2 < now["count"]:
        lines.append("...")
    return "\n".join(lines)[:limit]
