"""VLC: what every function did is read from VLC's own state, its file of settings, and its window.

Invariant: each case prepares the state that it needs, so no case depends on what another left.
"""

from __future__ import annotations

import io
import math
import re
import wave
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from apis.apps.check.case import Case, Desk, Step, Table, same, want

SOUND_HZ = 4000  # samples per second, 8 bits each, one channel
PICTURES_HZ = 2


def sound(seconds: int, hz: int = 440) -> bytes:
    """A tone (RIFF WAVE, PCM)."""
    turn = [round(128 + 60 * math.sin(2 * math.pi * hz * n / SOUND_HZ)) for n in range(SOUND_HZ)]
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(1)
        file.setframerate(SOUND_HZ)
        file.writeframes(bytes(turn) * seconds)
    return out.getvalue()


def pictures(seconds: int, width: int = 64, height: int = 48) -> bytes:
    """Grey pictures that grow brighter (YUV4MPEG2, 4:2:0)."""
    colour = bytes([128]) * (width * height // 2)
    frames = (b"FRAME\n" + bytes([16 + n * 4 % 200]) * (width * height) + colour for n in range(PICTURES_HZ * seconds))
    return f"YUV4MPEG2 W{width} H{height} F{PICTURES_HZ}:1 Ip A1:1 C420jpeg\n".encode() + b"".join(frames)


FOLDER = "Music"
ONE, TWO, FILM = f"{FOLDER}/one.wav", f"{FOLDER}/two.wav", f"{FOLDER}/more/film.y4m"
LENGTHS = {ONE: 60, TWO: 50, FILM: 40}  # seconds
SCREEN = (1280, 720)
LOOKS = 40
SHOWN_S = 1.5  # of a film: then its picture is set up
PLAYS = re.compile(r"^(\w+)(?:: (.*), ([\d.]+) of ([\d.]+) s)?")


async def _eventually(desk: Desk, true: Callable[[], Awaitable[bool]]) -> bool:
    """Whether it becomes true: VLC opens and changes windows a while after it was told to."""
    for _ in range(LOOKS):
        if await true():
            return True
        await desk.call("settle", timeout_ms=250, quiet_ms=200)
    return False


async def _state(desk: Desk) -> tuple[str, str]:
    """VLC's state and the name of what plays."""
    found = PLAYS.match(await desk.tool("get_playlist"))
    return (found[1], found[2] or "") if found else ("", "")


def _before(*steps: tuple[str, Mapping[str, Any]]) -> Step:
    async def prepare(desk: Desk) -> None:
        for name, arguments in steps:
            await desk.tool(name, **arguments)

    return prepare


async def _at(desk: Desk, name: str) -> None:
    """Have an entry play by its name."""
    found = ("", "")
    for _ in range(3 * len(LENGTHS)):
        found = await _state(desk)
        if found[1].endswith(name):
            break
        await desk.tool("next")
    want((await desk.tool("play")).startswith("playing: " + name), f"VLC is {found}, {name} does not come")


async def _at_first(desk: Desk) -> None:
    await _at(desk, "one.wav")


async def _at_second(desk: Desk) -> None:
    await _at(desk, "two.wav")


async def _at_film(desk: Desk) -> None:
    await _at(desk, "film.y4m")

    async def showing() -> bool:
        shown = (await desk.tool("get_playlist")).splitlines()[0]
        found = PLAYS.match(shown)
        return "; video" in shown and found is not None and float(found[3] or 0) >= SHOWN_S

    want(await _eventually(desk, showing), "the film has no picture")
    await desk.tool("toggle_fullscreen", enable=False)


def _now(state: str, name: str) -> Any:
    async def look(desk: Desk, _: str) -> None:
        found = await _state(desk)
        want(found[0] == state and found[1].endswith(name), f"VLC is {found}, not {state} {name!r}")

    return look


async def _listed(desk: Desk, answer: str) -> None:
    lines = answer.splitlines()
    same(lines[1], "playlist: 3", "the number of entries")
    names = [re.search(r"(\w+\.\w+)(?:, \d+ s)?$", line) for line in lines[2:]]
    same([name and name[1] for name in names], ["one.wav", "two.wav", "film.y4m"], "the entries")

    async def shown() -> bool:
        return (await desk.call("info")).splitlines()[1:] == lines[1:]

    want(await _eventually(desk, shown), f"whoever looks at VLC is told {await desk.call('info')!r}")


async def _added(desk: Desk, _: str) -> None:
    want("~/Music/two.wav" in (await desk.tool("get_playlist")).splitlines()[-1], await desk.tool("get_playlist"))


async def _passing(desk: Desk, answer: str) -> None:
    first = float(answer.partition(" ")[0])

    async def later() -> bool:
        return first < float((await desk.tool("get_current_time")).partition(" ")[0]) < first + 20

    want(await _eventually(desk, later), f"{first} s, later {await desk.tool('get_current_time')}")


async def _filled(desk: Desk, _: str) -> None:
    async def full() -> bool:
        return any((w.w, w.h) == SCREEN for w in await desk.call("windows") if w.class_.lower() == "vlc")

    async def not_full() -> bool:
        return not await full()

    want(await _eventually(desk, full), f"no window fills the screen: {await desk.call('windows')}")
    want("; video in fullscreen" in await desk.tool("get_playlist"), "VLC itself says something else")
    await desk.tool("toggle_fullscreen", enable=False)
    want(await _eventually(desk, not_full), f"a window still fills the screen: {await desk.call('windows')}")


async def _written(desk: Desk, _: str) -> None:
    text = (await desk.contents(".config/vlc/vlcrc")).decode("utf-8", "replace")
    want(re.search(r"^qt-max-volume=200$", text, re.MULTILINE) is not None, "vlcrc does not say qt-max-volume=200")
    want("qt-max-volume = 200" in await desk.tool("get_settings"), "VLC itself says something else")
    await desk.tool("set_settings", field="loop", value="1")
    want("; loop" in (await desk.tool("get_playlist")).splitlines()[0], "loop has no effect on what plays")
    folder = f"{desk.home}/{FOLDER}"
    await desk.tool("set_settings", field="input-record-path", value="~/Music")
    want(f"input-record-path = {folder}" in await desk.tool("get_settings"), "a folder is not kept")
    told = await desk.tool("set_settings", field="qt-max-volume", value="9000")
    want(told.startswith("qt-max-volume is 300; 9000 is beyond what VLC takes"), told)
    told = await desk.tool("set_settings", field="snapshot-path", value="/etc")
    want(told.startswith("refused: value: the file lies outside the home folder"), told)
    refused = await desk.tool("set_settings", field="http-password", value="x")
    want(refused.startswith("refused: field: "), refused)


async def _as_kept(desk: Desk, answer: str) -> None:
    text = (await desk.contents(".config/vlc/vlcrc")).decode("utf-8", "replace")
    kept = dict(line.split("=", 1) for line in text.splitlines() if re.match(r"[a-z0-9-]+=", line))
    told = dict(line.split(" = ", 1) for line in answer.splitlines() if " = " in line)
    both = kept.keys() & told.keys()
    want(bool(both), f"of vlcrc's {', '.join(kept)} nothing is told: {answer}")
    same({name: told[name] for name in both}, {name: kept[name] for name in both}, "what vlcrc says")


CASES = (
    Case(function="get_playlist", says="playlist: 3", effect=_listed),
    Case(function="get_media_duration", before=_at_first, says="60.0 s: one.wav"),
    Case(function="get_current_time", before=_at_first, says="of 60.0 s: one.wav", effect=_passing),
    Case(function="pause", before=_at_first, each=_before(("play", {})), says="paused: one.wav",
         effect=_now("paused", "one.wav")),
    Case(function="play", each=_before(("pause", {})), says="playing: one.wav", effect=_now("playing", "one.wav")),
    Case(function="next", each=_at_first, says="playing: two.wav", effect=_now("playing", "two.wav")),
    Case(function="previous", each=_at_second, says="playing: one.wav", effect=_now("playing", "one.wav")),
    Case(function="toggle_fullscreen", right={"enable": True}, before=_at_film, says="fullscreen is on",
         effect=_filled, wrong={"enable": "yes"}, refusal="enable: write True or False",
         again=lambda n: {"enable": n % 2 == 0}),
    Case(function="get_settings", says="qt-max-volume = 125", effect=_as_kept),
    Case(function="set_settings", right={"field": "qt-max-volume", "value": "200"}, says="qt-max-volume is 200",
         effect=_written, wrong={"field": "qt-max-volume", "value": "loud"},
         refusal="value: qt-max-volume is a number"),
    Case(function="get_media_files", right={"path": "~/Music", "suffix": [".WAV"]},
         says="2 media files in ~/Music\n~/Music/one.wav\n~/Music/two.wav", wrong={"path": "/etc"},
         refusal="path: the folder lies outside the home folder"),
    Case(function="add_to_playlist", right={"uri": "file:///home/agent/Music/two.wav"}, says="is entry 4 of",
         effect=_added, wrong={"uri": "file:///etc/passwd"}, refusal="uri: the file lies outside the home folder"),
)  # fmt: skip


def _files() -> Mapping[str, bytes]:
    return {
        ONE: sound(LENGTHS[ONE]),
        TWO: sound(LENGTHS[TWO], 330),
        FILM: pictures(LENGTHS[FILM]),
        f"{FOLDER}/notes.txt": b"no media\n",
    }


TABLE = Table(
    app="vlc",
    owner="VLCTools",
    cases=CASES,
    files=_files,
    opens=tuple(f"{{home}}/{path}" for path in LENGTHS),
    title="vlc",
)
