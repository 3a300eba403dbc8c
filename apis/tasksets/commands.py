"""Commands of task files: what each starts or runs in the guest.

Invariant: a command runs in the guest alone, bounded in time and output. Nothing of it reaches a shell of the host.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from apis.observation import SCREEN
from apis.plans.action import SETTLE, Call
from apis.tasks.osworld import HOME
from apis.tasksets import pyautogui
from apis.tasksets.needs import Lacking

RUN_MS = 20_000  # for a command to end
WINDOW_MS = 25_000
# What task files call a program -> what stands for it here.
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
ROOT = re.compile(r"\bsudo\b|\{CLIENT_PASSWORD\}|\b(?:useradd|adduser|chpasswd|apt(?:-get)? install|snap install)\b")
SOUND = re.compile(r"\b(?:pactl|pacmd|amixer|pulseaudio)\b")
SCHEMA = re.compile(r"\bgsettings +(?:get|list-recursively|reset|set) +([\w.-]+)")  # settings have to be known by name
NETWORK = re.compile(  # of pip only what does not come from a file
    r"\bpip3? install\b(?! (?:-\S+ )*\S*(?:/|\.whl\b))|\b(?:curl|wget)\b|\bgit clone +(?:https?|git|ssh):"
)
SHELL_SIGNS = re.compile(r"[|;&<>$`\n*?]")
WINDOWS = {"chromium", "pcmanfm", "xterm", "mousepad", "soffice", "vlc", "code", "gimp", "thunderbird", "evince", "eog"}
APPLICATIONS = {"gimp": "gimp", "thunderbird": "thunderbird", "evince": "evince", "eog": "eog", "code": "vs code"}
# Where the name of a program may stand in a line of shell, after settings of variables.
STARTS = re.compile(r"(?:^|[|;&(\n]|\bthen\b|\bdo\b|\belse\b)\s*(?:[A-Za-z_]+=[^\s$(]*\s+)*([a-z][\w.-]*)(?![\w=])")
SHELL_WORDS = {
    "if", "then", "else", "fi", "for", "do", "done", "while", "in", "case", "esac", "cd", "echo", "export", "history",
    "test", "true", "false", "exit", "set", "read", "printf", "local", "return", "function", "eval", "source", "kill",
    "wait",
}  # fmt: skip
FORWARDERS = {"socat"}  # they carry DevTools to the published harness, which is not asked here


def words_of(command: str | Sequence[str], shell: bool | str = False) -> list[str]:
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


def refused(text: str) -> None:
    """Raise Lacking for a command that needs what no sandbox has."""
    if ROOT.search(text):
        raise Lacking("root", _shown(text))
    if found := GNOME.search(text):
        raise Lacking("application", f"gnome ({found.group()})")
    if NETWORK.search(text):
        raise Lacking("network", _shown(text))
    if outside := re.search(r"\b(?:mkdir|cp|mv|touch)\b[^|;&]*\s(/(?:home/(?!user\b)|etc/|opt/|root/)\S*)", text):
        raise Lacking("root", outside.group(1))


def calls_for(
    command: str | Sequence[str], shell: bool | str, home: str, *, wait: bool, screen: tuple[int, int] = SCREEN
) -> list[Call]:
    """What carries out a launch (or with `wait` an execute) on a guest whose HOME is `home`. Raises Lacking.

    `screen` is the guest's, in pixels.
    """
    words = words_of(command, shell)
    if not words:
        raise Lacking("step", "an empty command")
    name = words[0].rpartition("/")[2]
    if name in FORWARDERS:
        return []
    if name in ("python", "python3") and words[1:2] == ["-c"] and pyautogui.is_snippet(" ".join(words[2:])):
        return pyautogui.translated(" ".join(words[2:]), screen)
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
    argv = [program if name in ALIASES else words[0], *words[1:]]
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
