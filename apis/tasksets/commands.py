"""Commands of task files, lines of pyautogui too: what each starts or runs in the guest.

A command runs in the guest alone, bounded in time and output. Nothing of it reaches a shell of the host.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Sequence
from typing import Any

from apis.observation import SCREEN
from apis.plans.action import BRIEFLY, SETTLE, Call, pressed
from apis.tasks.osworld import HOME
from apis.tasksets.package import Lacking

RUN_MS = 20_000  # for a command to end
WINDOW_MS = 25_000
# What task files call a program -> its name here.
ALIASES = {
    "google-chrome": "chromium",
    "google-chrome-stable": "chromium",
    "chromium-browser": "chromium",
    "nautilus": "pcmanfm",
    "gnome-terminal": "xterm",
    "gedit": "mousepad",
    "gnome-text-editor": "mousepad",
    "libreoffice": "soffice",
    "python": "python3",
}
PROCESSES = {"chrome": "chromium", "google-chrome": "chromium", "soffice.bin": "soffice.bin"}  # as pkill names them
# So that the first window is the program's own, and no picture that shows while it starts.
FLAGS = {"soffice": ("--norestore", "--nologo", "--nofirststartwizard"), "gimp": ("--no-splash",)}
GNOME = re.compile(r"\b(?:dconf|gnome-(?!terminal)[a-z-]+|timedatectl|org\.gnome\.[A-Z])")
PASSWORD = "{CLIENT_PASSWORD}"  # noqa: S105 - in a command: that of the guest's user, who becomes root by it
ROOT = re.compile(r"\bsudo\b|\b(?:useradd|adduser|chpasswd|apt(?:-get)? install|snap install)\b")
SOUND = re.compile(r"\b(?:pactl|pacmd|amixer|pulseaudio)\b")
SCHEMA = re.compile(r"\bgsettings +(?:get|list-recursively|reset|set) +([\w.-]+)")  # settings have to be known by name
NETWORK = re.compile(  # of pip only what does not come from a file
    r"\bpip3? install\b(?! (?:-\S+ )*\S*(?:/|\.whl\b))|\b(?:curl|wget)\b|\bgit clone +(?:https?|git|ssh):"
)
SHELL_SIGNS = re.compile(r"[|;&<>$`\n*?]")
APPLICATIONS = {"gimp": "gimp", "thunderbird": "thunderbird", "evince": "evince", "eog": "eog", "code": "vs code"}
WINDOWS = {"chromium", "pcmanfm", "xterm", "mousepad", "soffice", "vlc", "canvas", *APPLICATIONS}
# Where the name of a program may stand in a line of shell, after settings of variables.
STARTS = re.compile(r"(?:^|[|;&(\n]|\bthen\b|\bdo\b|\belse\b)\s*(?:[A-Za-z_]+=[^\s$(]*\s+)*([a-z][\w.-]*)(?![\w=])")
SHELL_WORDS = {
    "if", "then", "else", "fi", "for", "do", "done", "while", "in", "case", "esac", "cd", "echo", "export", "history",
    "test", "true", "false", "exit", "set", "read", "printf", "local", "return", "function", "eval", "source", "kill",
    "wait",
}  # fmt: skip
FORWARDERS = {"socat"}  # they carry DevTools to the published harness, which is not asked here


def words_of(command: str | Sequence[str]) -> list[str]:
    """The command as a list of words; a line that needs a shell becomes one for bash. Raises Lacking."""
    if not isinstance(command, str):
        # A list with a sign of the shell in it was joined by the published harness when it asked for a shell.
        return ["/bin/bash", "-c", " ".join(command)] if "|" in command else list(command)
    line = command.strip()
    if SHELL_SIGNS.search(line):
        return ["/bin/bash", "-c", line]
    try:
        words = shlex.split(line)
    except ValueError:
        return ["/bin/bash", "-c", line]
    while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
        words = words[1:]
    return words


def argv_of(command: str | Sequence[str], shell: bool | str) -> list[str]:
    """What is run for a command, by bash where the task file asks for a `shell`. Raises Lacking."""
    words = words_of(command)
    name = words[0].rpartition("/")[2] if words else ""
    if shell and isinstance(command, str) and name not in ALIASES and name not in WINDOWS:
        return ["/bin/bash", "-c", command.strip()]
    words = [f"{HOME}{word[1:]}" if word.startswith("~/") else word for word in words]
    return [ALIASES.get(name, words[0]), *words[1:]] if words else words


def refused(text: str, *, judges: bool = False) -> None:
    """Raise Lacking for a command that needs what no desktop has, or where it `judges` no copy of a HOME."""
    by_password = PASSWORD in text
    if judges if by_password else ROOT.search(text):
        raise Lacking("root", _shown(text))
    if found := GNOME.search(text):
        raise Lacking("application", f"gnome ({found.group()})")
    if NETWORK.search(text):
        raise Lacking("network", _shown(text))
    outside = re.search(r"\b(?:mkdir|cp|mv|touch)\b[^|;&]*\s(/(?:home/(?!user\b)|etc/|opt/|root/)\S*)", text)
    if outside and not by_password:
        raise Lacking("root", outside.group(1))


def by_password(argv: Sequence[str]) -> bool:
    """Whether a command asks for the password of the guest's user."""
    return any(PASSWORD in word for word in argv)


def calls_for(
    command: str | Sequence[str], shell: bool | str, home: str, *, wait: bool, screen: tuple[int, int] = SCREEN
) -> list[Call]:
    """What carries out a launch (or with `wait` an execute) on a guest whose HOME is `home`. Raises Lacking.

    `screen` is the guest's, in pixels.
    """
    words = words_of(command)
    if not words:
        raise Lacking("step", "an empty command")
    name = words[0].rpartition("/")[2]
    if name in FORWARDERS:
        return []
    if name in ("python", "python3") and words[1:2] == ["-c"] and is_snippet(" ".join(words[2:])):
        return translated(" ".join(words[2:]), screen)
    line = " ".join(words)
    if "gnome-terminal" in line and "gnome-terminal-server" not in line:
        return window(["xterm"], home)
    if "gnome-terminal-server" in line:
        return run_to_end(["pkill", "xterm"], home)
    refused(line)
    if name in ("pkill", "killall"):
        return run_to_end(["pkill", *(PROCESSES.get(word, word) for word in words[1:])], home)
    program = ALIASES.get(name, name)
    headless = {"--convert-to", "--list-extensions", "--install-extension", "--version"} & set(words)
    if program in WINDOWS and not headless:
        return window([program, *words[1:]], home)
    argv = argv_of(command, shell)
    return run_to_end(argv, home) if wait else [Call("launch", {"argv": [here(word, home) for word in argv]}), SETTLE]


def window(argv: list[str], home: str) -> list[Call]:
    """Start a program that opens a window, and wait for it. Raises Lacking."""
    program, *rest = argv
    rest = [word for word in rest if not word.startswith("--remote-debugging-port")]
    flags = [flag for flag in FLAGS.get(program, ()) if flag not in rest]
    argv = [program, *flags, *(here(word, home) for word in rest)]
    return [Call("open_window", {"argv": argv, "timeout_ms": WINDOW_MS}), SETTLE]


def run_to_end(argv: list[str], home: str) -> list[Call]:
    """Run a program to its end in HOME."""
    return [Call("run", {"argv": [here(word, home) for word in argv], "timeout_ms": RUN_MS})]


def here(text: str, home: str) -> str:
    """`text` with the guest's own HOME in place of the published one."""
    return re.sub(rf"{re.escape(HOME)}(?=/|$|[\s'\";:)])", home, text)


def programs_of(argv: Sequence[str]) -> set[str]:
    """Programs that a call's command starts, as far as its words tell."""
    settings = set(SCHEMA.findall(" ".join(argv)))
    first = argv[0].rpartition("/")[2]
    if first != "bash" or list(argv[1:2]) != ["-c"]:
        return {first} | settings
    line = re.sub(r"'[^']*'|\"[^\"]*\"", "''", " ".join(argv[2:]))
    return {"bash", *settings, *STARTS.findall(line)} - SHELL_WORDS


def _shown(text: str) -> str:
    return " ".join(text.split())[:60]


PUBLISHED_W, PUBLISHED_H = 1920, 1080  # the screen that literal places in task files are meant for
PLACES = {
    "{SCREEN_WIDTH_HALF}": str(PUBLISHED_W // 2),
    "{SCREEN_HEIGHT_HALF}": str(PUBLISHED_H // 2),
    "{SCREEN_WIDTH}": str(PUBLISHED_W),
    "{SCREEN_HEIGHT}": str(PUBLISHED_H),
}
PRESSES_MAX = 200
TYPED_MAX = 500  # characters of one call
TERMINAL_KEYS = ["ctrl", "alt", "t"]  # what opens a terminal on the published desktop


def is_snippet(code: str) -> bool:
    """Whether `code` drives pyautogui."""
    return "pyautogui" in code


def translated(code: str, screen: tuple[int, int] = SCREEN) -> list[Call]:
    """The calls that do what `code` does on a `screen` of that size. Raises Lacking for anything but literal calls."""
    for name, value in PLACES.items():
        code = code.replace(name, value)
    try:
        body = ast.parse(code.strip()).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Lacking("step", "a pyautogui line that can't be read") from None
    calls: list[Call] = []
    pointer = Pointer(screen)
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            continue
        if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
            raise Lacking("step", f"pyautogui: {ast.unparse(statement)[:60]}")
        calls += _call(statement.value, pointer)
    if pointer.pressed is not None:
        raise Lacking("step", "pyautogui: a mouse button that is pressed and not let go")
    return calls


class Pointer:
    """Where a line has moved the pointer, in the middle of the screen at first, and where it pressed a button."""

    def __init__(self, screen: tuple[int, int]) -> None:
        self.screen = screen
        self.at = screen[0] // 2, screen[1] // 2
        self.pressed: tuple[int, int] | None = None

    def moved(self, args: list[Any], named: dict[str, Any]) -> tuple[int, int]:
        """The place that a call names on the published screen, on this one; where it names none, the pointer's."""
        if args or "x" in named:
            x, y = (args[0], args[1]) if len(args) > 1 else (named["x"], named["y"])
            places = zip((x, y), self.screen, (PUBLISHED_W, PUBLISHED_H), strict=True)
            width, height = (min(most - 1, max(0, round(value * most / of))) for value, most, of in places)
            self.at = width, height
        return self.at


def _call(node: ast.Call, pointer: Pointer) -> list[Call]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    try:
        args = [ast.literal_eval(arg) for arg in node.args]
        named = {word.arg or "": ast.literal_eval(word.value) for word in node.keywords}
        return _done(name, args, named, pointer)
    except (ValueError, TypeError, KeyError, IndexError):
        raise Lacking("step", f"pyautogui: {ast.unparse(node)[:60]}") from None


def _done(name: str, args: list[Any], named: dict[str, Any], pointer: Pointer) -> list[Call]:
    match name:
        case "sleep":
            return [SETTLE]
        case "hotkey":
            keys = [key.lower() for key in (args[0] if isinstance(args[0], list | tuple) else args)]
            if keys == TERMINAL_KEYS:
                return [Call("open_window", {"argv": ["xterm"], "timeout_ms": 10_000}), SETTLE]
            return [_keys(keys), SETTLE]
        case "press":
            listed = args[0] if isinstance(args[0], list) else [args[0]]
            times = int(named.get("presses", args[1] if len(args) > 1 else 1))
            if not 0 <= times <= PRESSES_MAX:
                raise ValueError(times)
            return [call for _ in range(times) for key in listed for call in (_keys([key]), BRIEFLY)]
        case "write" | "typewrite":
            text = args[0] if args else named["message"]
            if isinstance(text, list):
                return [call for key in text for call in (_keys([key]), BRIEFLY)]
            parts = [text[at : at + TYPED_MAX] for at in range(0, len(text), TYPED_MAX)]
            return [*(Call("type_text", {"text": part}) for part in parts), SETTLE]
        case "click" | "doubleClick" | "rightClick" | "middleClick" | "tripleClick":
            x, y = pointer.moved(args, named)
            times = {"doubleClick": 2, "tripleClick": 3}.get(name, int(named.get("clicks", 1)))
            button = {"rightClick": "right", "middleClick": "middle"}.get(name, named.get("button", "left"))
            number = {"left": 1, "middle": 2, "right": 3}[button]
            return [Call("click", {"x": x, "y": y, "button": number, "n": times}), SETTLE]
        case "moveTo":
            x, y = pointer.moved(args, named)
            return [Call("move", {"x": x, "y": y})] if pointer.pressed is None else []
        case "mouseDown":
            pointer.pressed = pointer.moved(args, named)
            return []
        case "mouseUp" if pointer.pressed is not None:
            (x, y), pointer.pressed = pointer.pressed, None
            x2, y2 = pointer.moved(args, named)
            if (x, y) == (x2, y2):
                return [Call("click", {"x": x, "y": y, "button": 1, "n": 1}), SETTLE]
            return [Call("drag", {"x": x, "y": y, "x2": x2, "y2": y2}), SETTLE]
        case "scroll":
            x, y = pointer.at
            return [Call("scroll", {"x": x, "y": y, "dy": -int(args[0] if args else named["clicks"])}), SETTLE]
    raise ValueError(name)


def _keys(names: list[str]) -> Call:
    return pressed(*(name.lower() for name in names))
