"""Set-up steps of task files as calls to the guest's agent. A step that can't be such calls says what it lacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from apis.applications import OPENS, app_named
from apis.observation import SCREEN
from apis.plans.action import SETTLE, Call, pressed
from apis.tasks import osworld
from apis.tasksets import commands
from apis.tasksets.commands import WINDOW_MS
from apis.tasksets.package import ACCOUNTS, REFUSED_STEPS, Lacking

SINK = ("null-sink sink_name=speakers", "native-protocol-unix")
PART_BYTES = 3 << 20  # of a file that is put into the guest in one call
# A text file of numbers opens without the dialog that asks about its form: commas, quotes, UTF-8, from the first line.
CSV_FILTER = "--infilter=Text - txt - csv (StarCalc):44,34,76,1"
MEDIA = ("mp4", "mp3", "avi", "mkv", "wav", "ogg", "flac", "m4a", "mov", "webm")
VIEWERS = {"pdf": "evince", **dict.fromkeys(("png", "jpg", "jpeg", "gif", "bmp", "tiff", "webp"), "eog")}
# Titles and classes of windows as the published desktop has them -> as they are here.
TITLES = {"google chrome": "Chromium", "files": "file manager"}
CLASSES = {"terminal": "xterm", "visual studio code": "code", "mail.thunderbird": "thunderbird"}  # titles differ here

Fixture = Callable[[str, str], bytes]  # the content of a URL under a name; raises Lacking where it is not at hand


def carried(url: str, _: str = "") -> bytes:
    """The content of a `data:` URL. Raises Lacking for any other, which is a fixture."""
    try:
        return osworld.data_of(url)
    except ValueError:
        raise Lacking("fixture", url) from None


def name_of(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]


def at_home(path: str) -> str:
    """`path` relative to the guest's HOME; a relative one lies there. Raises Lacking for a path outside of it."""
    for start in (f"{osworld.HOME}/", "~/", "./"):
        if path.startswith(start):
            path = path[len(start) :]
            break
    path = "" if path in (osworld.HOME, "~") else path.rstrip("/")
    if path.startswith("/") or ".." in path.split("/"):
        raise Lacking("root", path)
    return path


def calls_of(step: osworld.Step, home: str, fixture: Fixture = carried, screen: tuple[int, int] = SCREEN) -> list[Call]:
    """The calls that carry out `step` on a guest whose HOME is `home`. Raises Lacking."""
    match step:
        case osworld.Download():
            return [call for f in step.files for call in put(at_home(f.path), fixture(f.url, name_of(f.path)))]
        case osworld.Open():
            return opening(at_home(step.path), home)
        case osworld.Launch():
            return commands.calls_for(step.command, step.shell, home, wait=False, screen=screen)
        case osworld.Execute() | osworld.Command():
            calls = commands.calls_for(step.command, step.shell, home, wait=True, screen=screen)
            return [replace(call, kept=step.stdout or "") if call.method == "run" else call for call in calls]
        case osworld.ActivateWindow():
            raised = _raised(step.window_name, strict=step.strict, by_class=step.by_class)
            return [replace(raised, optional=0), SETTLE]
        case osworld.CloseWindow():
            raised = _raised(step.window_name, strict=step.strict, by_class=step.by_class)
            return [replace(raised, optional=1), pressed("alt", "f4"), SETTLE]
        case osworld.Sleep():
            return [SETTLE]
        case osworld.ChromeOpenTabs():
            return _opened(step.urls_to_open)
        case osworld.ChromeCloseTabs():
            return [Call("tabs", {"opened": [], "closed": step.urls_to_close}), SETTLE]
        case osworld.History():
            return _remembered(step.history)
        case osworld.UnknownStep() if step.type in ACCOUNTS:
            raise Lacking("account", ACCOUNTS[step.type])
        case osworld.UnknownStep():
            raise Lacking("step", ": ".join(filter(None, (step.type, step.problem or REFUSED_STEPS.get(step.type)))))
    raise TypeError(f"{type(step).__name__} is no step")


def sound_server(task: osworld.Task) -> list[Call]:
    """The calls that start a sound server, with a sink that no sound card takes; none where `task` names none."""
    if not commands.SOUND.search(osworld.dump(task).decode()):
        return []
    start = ["pulseaudio", "--daemonize", "--exit-idle-time=-1", "-n", *(f"--load=module-{one}" for one in SINK)]
    half = ["pactl", "set-sink-volume", "@DEFAULT_SINK@", "50%"]
    return [Call("run", {"argv": argv, "timeout_ms": commands.RUN_MS}) for argv in (start, half)]


def put(path: str, data: bytes) -> list[Call]:
    """Make a file of HOME, in parts that fit one call."""
    parts = [data[at : at + PART_BYTES] for at in range(0, len(data), PART_BYTES)] or [b""]
    more = [Call("write_file", {"path": path, "data": part, "append": True}) for part in parts[1:]]
    return [Call("write_file", {"path": path, "data": parts[0]}), *more]


def opening(path: str, home: str) -> list[Call]:
    """Open a file or folder of HOME by its name's ending; a spreadsheet fills the screen with the caret in A1."""
    name = path.rpartition("/")[2]
    stem, dot, ending = name.rpartition(".")
    ending = ending.lower()
    if ending in VIEWERS and ending not in OPENS:
        return commands.window([VIEWERS[ending], f"{home}/{path}"], home)
    known = "vlc" if ending in MEDIA else OPENS.get(ending, "text_editor")
    app = app_named(known if stem and dot else "file_manager")
    filters = [CSV_FILTER] if ending == "csv" else []
    argv = [*app.argv, *filters, f"{home}/{path}"]
    calls = [Call("open_window", {"argv": argv, "title": name, "timeout_ms": WINDOW_MS}), SETTLE]
    return [*calls, pressed("ctrl", "home"), SETTLE] if app.name == "libreoffice_calc" else calls


def _raised(name: str, *, strict: bool, by_class: bool) -> Call:
    alias = TITLES.get(name.lower())
    if known := CLASSES.get(name.lower().rpartition(" - ")[2]):
        return Call("raise_window", {"title": known, "strict": False, "by_class": True, "timeout_ms": WINDOW_MS})
    if alias:
        name, strict = alias, False
    return Call("raise_window", {"title": name, "strict": strict, "by_class": by_class, "timeout_ms": WINDOW_MS})


def _remembered(visits: list[osworld.Visit]) -> list[Call]:
    rows = [[visit.url, visit.title, visit.visit_time_from_now_in_seconds] for visit in visits]
    return [Call("visited", {"visits": rows})] if rows else []


def _opened(urls: list[str]) -> list[Call]:
    """Open pages. A far one shows that there is no network; its address is the tab's all the same."""
    return [Call("tabs", {"opened": urls, "closed": []}), SETTLE] if urls else []
