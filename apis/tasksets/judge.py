"""How a task file of a set is judged: what runs before the freeze, what is read after it, and the verdict.

Invariant: postconfig and the commands of getters come after the policy's last action. Commands run after the freeze,
over a copy of HOME, unless only the live desktop can answer them. The verdict is a pure function of what was read,
answered and fetched.
"""

from __future__ import annotations

import contextlib
import json
import re
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from zipfile import BadZipFile

from apis.observation import SCREEN
from apis.plans.action import Call
from apis.tasks.metrics.metric import NATIVE, SOLVED, Declared, Options, Score, Value, scored, together
from apis.tasks.metrics.registry import METRICS
from apis.tasks.osworld import HOME, Getter, Task
from apis.tasks.verify.verify import FileView, Read, TaskVerdict, WantedFile
from apis.tasksets import getters
from apis.tasksets.getters import downloads
from apis.tasksets.package import LEFT_METRICS, Lacking
from apis.tasksets.published_guards import OF_START
from apis.tasksets.steps import Fixture, at_home, calls_of, carried, name_of
from runtime.errors import ConfigError

# What scores by a metric that is not here: by its name, the result, what is expected, the options, and for a guard that
# compares with them the files at the start that are of the result's kind.
Tail = Callable[[str, Value, Value, Options, Sequence[FileView]], Score]
PICTURES = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"BM")  # what files of pictures begin with
LIKE, START_LIKE = "compare_images", 0.4  # how alike pictures are, and from what on one may come of another
AFTER_MS = 5000  # for a window that should be there already
_MISSING = FileView("missing")
# What parsers raise for broken content.
_BROKEN = (ArithmeticError, EOFError, OSError, RecursionError, BadZipFile, zlib.error, struct.error, SyntaxError)
ANSWER_CHARS = 256 << 10
SHOWN = 3  # commands in a reason


def afterwards(
    task: Task, home: str, fixture: Fixture = carried, screen: tuple[int, int] = SCREEN, *, outside: bool = False
) -> Judging:
    """The calls between the policy's last action and the verdict. Raises ConfigError where one is lacking.

    `outside` says whether commands can be tried over a copy of HOME.
    """
    try:
        steps = [call for step in task.evaluator.postconfig for call in calls_of(step, home, fixture, screen)]
        questions = getters.commands_of(task.evaluator, home)
    except Lacking as lacking:
        raise ConfigError(f"task {task.id}: its verifier needs {lacking.need}") from None
    return judging([_soon(call) for call in steps], questions, outside=outside)


def _soon(call: Call) -> Call:
    if call.method not in ("raise_window", "open_window"):
        return call
    return replace(call, args={**call.args, "timeout_ms": AFTER_MS})


def told_as_published(out: str, home: str) -> str:
    """What a command wrote, with the published HOME in place of the guest's."""
    return out[:ANSWER_CHARS].replace(home, HOME)


def asked_live(reason: str, asked: Sequence[str]) -> str:
    """A verdict's reason, and the facts in it that only the live desktop could give."""
    return f"{reason}; judge: live desktop for {', '.join(asked[:SHOWN])}" if asked else reason


def wanted(task: Task) -> list[WantedFile]:
    """The files of HOME that the metrics look at, each once.

    A file is read as the document that its metrics look at, or as bytes where they differ. Raises ConfigError where a
    path is lacking, and for a file of `NATIVE` of which metrics want another kind too.
    """
    kinds: dict[str, set[str]] = {}
    brought = brought_by(task)
    try:
        for name, result, expected, options in task.evaluator.rows():
            metric = native(name, result, expected, options)
            reads = metric.reads if metric else "bytes"
            for side in (side for side in (result, expected) if side):
                given, known = getters.given_of(side), brought if side is expected else ()
                for path in (path for path in getters.files_of(side) if path not in known):
                    as_ = getters.read_as(side, reads) if path in given else "bytes"
                    kinds.setdefault(path, set()).add(as_)
    except Lacking as lacking:
        raise ConfigError(f"task {task.id}: its verifier needs {lacking.need}") from None
    for path, several in kinds.items():
        if len(several) > 1 and several & NATIVE:
            raise ConfigError(f"task {task.id}: its metrics read {path} as {' and as '.join(sorted(several))}")
    return [WantedFile(path, next(iter(each)) if len(each) == 1 else "bytes") for path, each in kinds.items()]


def brought_by(task: Task) -> dict[str, tuple[str, str]]:
    """The files that the set-up or postconfig puts into HOME, by their paths there: URL and name.

    What is expected of such a file is what was put there, whatever the policy has made of it.
    """
    found = {}
    for path, url, name in downloads([*task.config, *task.evaluator.postconfig]):
        with contextlib.suppress(Lacking):
            found[at_home(path)] = (url, name)
    return found


def native(name: str, result: Getter, expected: Getter, options: Options) -> Declared | None:
    """The metric here that judges what these getters give, with these options; None where there is none."""
    metric = METRICS.get(name)
    if metric is None or getters.left(result) or getters.left(expected):
        return None
    return None if metric.lacking(options, expected.get("rules")) else metric


def score(task: Task, read: Read, answers: Mapping[str, str], fixture: Fixture, tail: Tail | None = None) -> Score:
    """The score of `task` by what `read` finds, `answers` has and `fixture` gives; what is not here is left to `tail`.

    Raises ConfigError for what the task itself has wrong.
    """
    scores, brought = [], brought_by(task)

    def of_task(path: str) -> FileView:
        return FileView("file", data=fixture(*brought[path]), of_task=True) if path in brought else read(path)

    for name, result, expected, options in task.evaluator.rows():
        metric = native(name, result, expected, options)
        if metric is None and tail is None:
            raise ConfigError(f"task {task.id}: there is no metric {name} with these options")
        try:
            known = ((result, read), (expected, of_task))
            values = [getters.value_of(side, at, answers, fixture) if side else None for side, at in known]
        except Lacking as lacking:
            raise ConfigError(f"task {task.id}: its verifier needs {lacking.need}") from None
        sides = [getters.called(side, value) for side, value in zip((result, expected), values, strict=True)]
        if metric is not None:
            own = not getters.is_read(expected) or set() < set(getters.files_of(expected)) <= brought.keys()
            found = _scored(metric, sides[0], sides[1], options, of_task=own)
        elif tail is not None:
            starts = _starts(task, sides[0], fixture) if name in OF_START else []
            found = tail(name, sides[0], sides[1] if expected else None, options, starts)
            if found.value > 0 and name in LEFT_METRICS and LEFT_METRICS[name].of_start(sides[1]):
                found = _from_start(found, [tail(LIKE, sides[0], one, {}, ()) for one in _pictures(task, fixture)])
        scores.append(Score(found.value, f"{name}: {found.reason}"))
    return together(scores, task.evaluator.conj)


def _from_start(found: Score, likes: list[Score]) -> Score:
    """`found`, or 0 where the picture is too little like each that the task starts with."""
    best = max((like.value for like in likes), default=1.0)
    return found if best >= START_LIKE else Score(0.0, f"it is like no picture at the start, at most to {best:.2f}")


def _starts(task: Task, result: Value, fixture: Fixture) -> list[FileView]:
    """The files that `task` starts with and whose names end as that of `result`."""
    ending = result.name.rpartition(".")[2] if isinstance(result, FileView) else ""
    wanted = [one for one in downloads(task.config) if ending and one[0].endswith(f".{ending}")]
    return [FileView("file", data=fixture(url, name), name=name_of(path), of_task=True) for path, url, name in wanted]


def _pictures(task: Task, fixture: Fixture) -> list[FileView]:
    """The pictures that `task` starts with, of the kinds that can be compared."""
    contents = (fixture(url, name) for _, url, name in downloads(task.config))
    return [FileView("file", data=data, of_task=True) for data in contents if data.startswith(PICTURES)]


def _scored(metric: Declared, result: Value, expected: Value, options: Options, *, of_task: bool) -> Score:
    """The metric's score; 0 where it breaks on what the policy left. So is an expectation that is not `of_task`.

    An expectation that a missing result can be compared with is sound, so then the result is what broke the metric.
    """
    try:
        return scored(metric, result, expected, options)
    except _BROKEN as error:
        return Score(0.0, f"it can't be compared: {type(error).__name__}")
    except ConfigError as error:
        if of_task:
            missing = [_MISSING] * len(result) if isinstance(result, list) else _MISSING
            scored(metric, missing, expected, options)
        return Score(0.0, f"it can't be compared: {error}")


def with_collateral(verdict: TaskVerdict, trouble: str, *, counts: bool) -> TaskVerdict:
    """A verdict whose reason names other changes of HOME; where that `counts` they make it a failure."""
    if not trouble:
        return verdict
    said = f"{verdict.reason}; {trouble}"
    return TaskVerdict(False, said, 0.0) if counts else TaskVerdict(True, said, verdict.score)


def judged(
    task: Task, read: Read, answers: Mapping[str, str], fixture: Fixture, tail: Tail | None = None
) -> TaskVerdict:
    """Whether nothing is missing; below the full score the reason says the score."""
    found = score(task, read, answers, fixture, tail)
    if found.value >= SOLVED or found.value <= 0:
        return TaskVerdict(found.solved, found.reason)
    return TaskVerdict(False, f"score {found.value:.3f}: {found.reason}", found.value)


# The environment of a command that judges, wherever it runs: what lies in HOME is not loaded by its name, and no
# setting of a repository says what git prints of it.
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin", "PYTHONNOUSERSITE": "1", "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "format.pretty", "GIT_CONFIG_VALUE_0": "medium",
}  # fmt: skip
# Of one that runs a script or a line of the task's own: no module of the folder that it runs in either.
OF_TASK = {"PYTHONSAFEPATH": "1"}
_LINE = re.compile(r"\bpython3? +-\w*c\b")
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
SHOWN_CHARS = 60  # characters of a command in a verdict


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
    of_task = _script_of(call, texts) or _LINE.search(" ".join(call.args["argv"]))
    return replace(call, args={**call.args, "env": ENVIRONMENT | (OF_TASK if of_task else {})})


def _with_profile(call: Call) -> Call:
    if call.method != "run" or call.args["argv"][0].rpartition("/")[2] not in _OFFICE:
        return call
    first, *others = call.args["argv"]
    return replace(call, args={**call.args, "argv": [first, _PROFILE, *others]})


def _shown(call: Call) -> str:
    if call.method != "run":
        return str(call.args.get("owner", call.method))
    text = " ".join(call.args["argv"])
    return json.dumps(text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}...")
