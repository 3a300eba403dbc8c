"""What of a task file's judging runs where: in the live desktop, or after the freeze over a copy of HOME.

Invariant: pure. A command is asked of the live desktop only for what a copy of HOME can't say, or where the desktop
itself has to do something after it. Everything else runs where the policy has left nothing but its files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from apis.plans.action import Call

# The environment of a command that judges, wherever it runs: what lies in HOME is not loaded by its name.
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin", "PYTHONNOUSERSITE": "1"}
# Of one that runs a script of the task's own: no module beside the script either.
OF_TASK = {"PYTHONSAFEPATH": "1"}
_FILES = ("run", "write_file")  # the calls that a copy of HOME is enough for
# Programs that say what runs, what shows, what sounds or what was copied.
_LIVE = re.compile(
    r"(?<![\w./-])(?:ps|pgrep|pidof|pkill|killall|xprop|xdotool|wmctrl|xwininfo|xsel|xclip|xrandr|xdpyinfo|pactl|pacmd"
    r"|amixer|playerctl|dbus-send|gdbus|qdbus|busctl|lsof|netstat|stty)(?![\w.-])"
    r"|\b(?:localhost|127\.0\.0\.1)\b|/proc/\d"
)
_OFFICE = ("soffice", "libreoffice", "localc", "lowriter", "loimpress")
_PROFILE = "-env:UserInstallation=file:///tmp/office"  # of the trial, in place of the one that lies in HOME
TRIAL_CALL_S = 30.0  # that a call of a trial may take besides its own time
SHOWN = 60  # characters of a command in a verdict


@dataclass(frozen=True)
class Judging:
    """The calls between a policy's last action and its verdict, in their order.

    `live` goes to the desktop before the freeze, `trial` to a copy of its HOME after it. `rewrites`: the files that are
    read are those of the copy, since the task file changes some.
    """

    live: tuple[Call, ...]
    trial: tuple[Call, ...] = ()
    rewrites: bool = False

    @property
    def limit_s(self) -> float:
        """Seconds that the trial may take, besides those in which nothing runs."""
        return sum(TRIAL_CALL_S + call.args.get("timeout_ms", 0) / 1000 for call in self.trial)

    @property
    def asked(self) -> list[str]:
        """What the live desktop is asked, each once, as a verdict says it."""
        return list(dict.fromkeys(_shown(call) for call in self.live if call.kept))


NOTHING = Judging(())


def judging(steps: Sequence[Call], questions: Sequence[Call], *, outside: bool) -> Judging:
    """Where each of a task file's `steps` after the last action goes, and each of its getters' `questions`.

    Steps stay in their order: what comes before one that the desktop itself must do, as to save by a key, goes to the
    desktop, too. Where nothing can be tried from `outside` all does.
    """
    texts = {str(call.args["path"]): _text(call) for call in steps if call.method == "write_file"}
    if not outside:
        return Judging((*(_trusted(call, texts) for call in (*steps, *questions)),))
    last = max((n for n, call in enumerate(steps) if _is_live(call, texts) and not call.kept), default=-1)
    if any(call.method == "run" and _script_of(call, texts) and _is_live(call, texts) for call in questions):
        last = len(steps) - 1  # the script has to be there
    live, trial = list(steps[: last + 1]), list[Call]()
    for call in (*steps[last + 1 :], *questions):
        (live if _is_live(call, texts) else trial).append(call)
    rewrites = any(call in trial for call in steps)
    own = (_trusted(_with_profile(call), texts) for call in trial)
    return Judging((*(_trusted(call, texts) for call in live),), (*own,), rewrites)


def _text(call: Call) -> str:
    return bytes(call.args["data"]).decode("utf-8", "replace")


def _script_of(call: Call, texts: Mapping[str, str]) -> str:
    """The text of the scripts which the task file has brought along and the command names; "" where there is none."""
    words = " ".join(call.args["argv"])
    return "\n".join(text for path, text in texts.items() if path.rpartition("/")[2] in words)


def _is_live(call: Call, texts: Mapping[str, str]) -> bool:
    """Whether a copy of HOME can't answer it."""
    if call.method not in _FILES:
        return True
    return call.method == "run" and bool(_LIVE.search(" ".join(call.args["argv"]) + "\n" + _script_of(call, texts)))


def _trusted(call: Call, texts: Mapping[str, str]) -> Call:
    if call.method != "run":
        return call
    return replace(call, args={**call.args, "env": ENVIRONMENT | (OF_TASK if _script_of(call, texts) else {})})


def _with_profile(call: Call) -> Call:
    if call.method != "run" or call.args["argv"][0].rpartition("/")[2] not in _OFFICE:
        return call
    first, *others = call.args["argv"]
    return replace(call, args={**call.args, "argv": [first, _PROFILE, *others]})


def _shown(call: Call) -> str:
    if call.method != "run":
        return str(call.args.get("owner", call.method))
    text = " ".join(call.args["argv"])
    return json.dumps(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")
