"""What a task file needs that is not here, what no policy can solve without a network, and whether it is sound.

Invariant: pure, and no desktop is asked. The plans that are played are made here too, so a task that lacks nothing has
a plan for each step. A start is judged only where nothing but the set-up's downloads decides it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from apis.plans.action import Call
from apis.tasks.metrics.metric import SOLVED, Score, lacking_rule, together
from apis.tasks.metrics.registry import METRICS
from apis.tasks.osworld import HOME, ChromeOpenTabs, Evaluator, Getter, History, Step, Task, dump
from apis.tasks.verify.verify import FileView
from apis.tasksets import commands, getters, judge
from apis.tasksets.getters import downloads, fixture_name
from apis.tasksets.package import LEFT_METRICS, REFUSED_METRICS, Lacking, Need, Verdict, verdict_of
from apis.tasksets.steps import Fixture, at_home, calls_of, carried, name_of, sound_server
from runtime.errors import ConfigError

AtHand = Callable[[str, str], bool]  # whether the fixture of this URL and name is at hand
Present = Callable[[str], bool]  # whether a program is here
# Applications that a task file names, and the program that each needs.
NAMED = {
    "gimp": "gimp", "thunderbird": "thunderbird", "vscode": "code", "vs_code": "code", "vlc": "vlc", "picard": "picard",
    "ubuntu_media_player": "vlc", "chrome": "chromium", "browser": "chromium", "pdf": "evince", "image": "eog",
    "excel": "soffice", "word": "soffice", "powerpoint": "soffice",
}  # fmt: skip
BROWSERS = ("tabs", "visited")  # calls of the guest's agent that need Chromium
BY_PASSWORD = Need("root", "by the password of the desktop's user (client_password)")
PUBLISHED = "the published package (make osworld-judge)"


class Covered(msgspec.Struct, frozen=True):
    """A task file's verdict and what it needs."""

    id: str
    verdict: Verdict
    needs: list[Need]
    judge: Literal["here", "published"] = "here"  # who says whether it is solved
    offline: str = ""  # why no policy can solve it without a network; "" where nothing says so
    notes: list[str] = []

    @property
    def solvable(self) -> bool:
        """Whether it can be played here, and nothing says that it can't be solved."""
        return self.verdict == "runnable" and not self.offline


def covered(task: Task, at_hand: AtHand, present: Present, *, published: bool = False, root: bool = False) -> Covered:
    """The verdict on `task`, given which fixtures are at hand and which programs are present.

    With `published` the published package judges what no metric here does. With `root` the desktop's user may become
    root by a password.
    """
    needs = sorted(set(lacks(task, at_hand, present, published=published)) - ({BY_PASSWORD} if root else set()))
    left = [row[0] for row in _rows(task) if row[0] not in REFUSED_METRICS and not judge.native(*row)]
    weak = {name: one.weak for name in left if (one := LEFT_METRICS.get(name)) and one.weak}
    notes = [f"{name}: refused here though the published one accepts it: {said}" for name, said in weak.items()]
    if task.proxy:
        notes.append("the published desktops reach pages by a proxy, these by desktops.network")
    verdict = verdict_of(needs)
    return Covered(task.id, verdict, needs, "published" if left else "here", no_network(task), notes)


def _rows(task: Task) -> list[tuple[str, Getter, Getter, Getter]]:
    return task.evaluator.rows() if task.feasible else []


def lacks(task: Task, at_hand: AtHand, present: Present, *, published: bool = False) -> Iterator[Need]:
    """Each thing that `task` needs and that is not here."""
    for step in task.config:
        yield from _step(step, at_hand, present)
    yield from [BY_PASSWORD] * (commands.PASSWORD in dump(task).decode())
    yield from (Need("application", name) for name in _absent(sound_server(task), present))
    for name in task.related_apps:
        program = NAMED.get(name.lower().replace("libreoffice ", "libreoffice_"))
        if program and not present(program):
            yield Need("application", program)
    if not task.feasible:
        return
    for step in task.evaluator.postconfig:
        yield from _step(step, at_hand, present)
    yield from _judging(task.evaluator, at_hand, present, published=published)
    if empty_at_start(task):
        yield Need("network", "what pages leave in the browser, since the set-up opens them")


def _step(step: Step, at_hand: AtHand, present: Present) -> Iterator[Need]:
    missing: list[str] = []

    def fixture(url: str, name: str) -> bytes:
        try:
            return carried(url)
        except Lacking:
            if not at_hand(url, name):
                missing.append(fixture_name(url, name))
            return b""

    try:
        calls = calls_of(step, HOME, fixture)
    except Lacking as lacking:
        yield lacking.need
    else:
        ours = [call for call in calls if not commands.by_password(call.args.get("argv", ()))]  # root's are elsewhere
        yield from (Need("application", name) for name in _absent(ours, present))
    yield from (Need("fixture", one) for one in missing)


def _absent(calls: list[Call], present: Present) -> list[str]:
    """Programs of `calls` that are not present; a path leads to what the task brings along."""
    started = (call.args["argv"] for call in calls if "argv" in call.args)
    named = {name for argv in started if not argv[0].startswith((".", "/home")) for name in commands.programs_of(argv)}
    named |= {"chromium" for call in calls if call.method in BROWSERS or call.args.get("owner") == "BrowserTools"}
    return sorted(name for name in named if not present(name))


def _metric(name: str, result: Getter, expected: Getter, options: Getter, *, published: bool) -> Iterator[Need]:
    """What one function of an evaluator needs."""
    if judge.native(name, result, expected, options):
        return
    rule = expected.get("rules")
    if name in LEFT_METRICS:
        unknown = lacking_rule(frozenset(LEFT_METRICS[name].types), rule) or lacking_rule(frozenset(), options)
    elif name in REFUSED_METRICS:
        unknown = REFUSED_METRICS[name]
    elif name not in METRICS:
        yield Need("metric", name)
        return
    elif getters.left(result) or getters.left(expected) or METRICS[name].lacks(options):
        unknown = lacking_rule(METRICS[name].types, rule)
    else:
        unknown = METRICS[name].lacking(options, rule)
    if unknown:
        yield Need("metric", f"{name}: {unknown}")
    elif not published:
        yield Need("judge", f"{PUBLISHED} for {name}")


def _judging(evaluator: Evaluator, at_hand: AtHand, present: Present, *, published: bool) -> Iterator[Need]:
    for row in evaluator.rows():
        yield from _metric(*row, published=published)
    for getter in getters.sides(evaluator):
        try:
            getters.refuse_lacking(getter)
        except Lacking as lacking:
            yield lacking.need
            continue
        yield from (Need("fixture", fixture_name(*one)) for one in getters.fixtures_of(getter) if not at_hand(*one))
    try:
        asked = getters.commands_of(evaluator, HOME)
    except Lacking as lacking:
        yield lacking.need
        return
    yield from (Need("application", name) for name in _absent(asked, present))


OWN = ("chrome://", "about:", "file://", "data:")  # what a browser shows without a network
NEAR = ("localhost", "127.0.0.1")
URL = re.compile(r"https?://[^\s\"'<>)]+")
SITE = re.compile(
    r"\b(?:from|through|via|visit) (?:the )?((?:[a-z0-9-]+\.)+(?:com|org|net|io|edu|gov))\b", re.IGNORECASE
)
BRINGS = re.compile(r"\b(?:clone|install)\b", re.IGNORECASE)
# What is here already may be installed: a file, or a folder by its name or path.
LOCAL = re.compile(
    r"[~/][\w.-]*/|\.(?:deb|oxt|vsix|whl|xpi|zip)\b|\b(?:desktop|downloads|directory|folder|local)\b", re.IGNORECASE
)
# Of a page that can't be loaded the browser still knows the address: these ask for no more.
ADDRESSES = {"is_expected_bookmarks", "is_expected_search_query", "is_expected_tabs"}
LEFT_BY_PAGES = {"cookie_data", "history"}


def _far(url: str) -> bool:
    if url.startswith(OWN):
        return False
    try:
        parts = urlsplit(url if "://" in url else f"https://{url}")
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.hostname not in NEAR


def _opened(task: Task) -> list[str]:
    """Far pages that the set-up opens."""
    steps = [step for step in task.config if isinstance(step, ChromeOpenTabs)]
    return [url for step in steps for url in step.urls_to_open if _far(url)]


def no_network(task: Task) -> str:
    """Why no policy can solve `task` without a network; "" where nothing in its file says so."""
    if not task.feasible:
        return ""
    pages = [url for url in URL.findall(task.instruction) if _far(url)] + SITE.findall(task.instruction)
    if pages:
        return f"the instruction names {pages[0].rstrip('.,')}"
    if (word := BRINGS.search(task.instruction)) and not LOCAL.search(task.instruction):
        return f"the instruction asks to {word.group().lower()} what is not on the desktop"
    pages = _opened(task)
    if pages and not set(task.evaluator.functions) <= ADDRESSES:
        return f"it starts with {pages[0]}"
    for name, result, expected, _ in task.evaluator.rows():
        rule = expected.get("rules")
        url = str(rule.get("url", "")) if isinstance(rule, dict) else ""
        if name == "is_vlc_playing" and _far(url):
            return f"it plays {url}"
        if name not in ADDRESSES and result.get("type") in getters.LIVE and not url.startswith(OWN):
            return "it is judged by the page in front"
    return ""


def empty_at_start(task: Task) -> bool:
    """Whether it asks for an end to what pages of its set-up leave: without a network there is nothing of that."""
    kinds = {result.get("type") for _, result, _, _ in task.evaluator.rows()}
    remembered = any(isinstance(step, History) for step in task.config)
    return bool(kinds & LEFT_BY_PAGES) and bool(_opened(task)) and not remembered


Row = tuple[str, Getter, Getter, Getter]
_ANY_FILE = re.compile(r"\.(?:sh|py)\b|\*|\bunzip\b|\btar\b|\bgit\b")  # in a line that may make any file


def unsound(task: Task, fixture: Fixture) -> str:
    """What is wrong with a task by its files alone; "" where nothing is seen, as where something is lacking."""
    if not task.feasible:
        return ""
    try:
        start = _start(task, fixture)
        if start is not None and start.value >= SOLVED:
            return f"what it starts with solves it: {start.reason}"
        return next((said for row in task.evaluator.rows() if (said := _by_gold(task, row, fixture))), "")
    except Lacking:
        return ""
    except ConfigError as error:
        return str(error).removeprefix(f"task {task.id}: ")


def _start(task: Task, fixture: Fixture) -> Score | None:
    """The score of the files that `task` starts with; None where they don't decide it."""
    files, lines = _files(task.config, fixture), list(_lines(task))
    scores = [_of_start(task, row, files, lines, fixture) for row in task.evaluator.rows()]
    known = [score for score in scores if score is not None]
    decided = bool(known) and (task.evaluator.conj == "or" or len(known) == len(scores))
    return together(known, task.evaluator.conj) if decided else None


def _files(steps: Sequence[Step], fixture: Fixture) -> dict[str, FileView]:
    return {at_home(path): _view(fixture(url, name)) for path, url, name in downloads(steps)}


def _view(data: bytes) -> FileView:
    return FileView("file", data=data, of_task=True)


def _lines(task: Task) -> Iterator[str]:
    """What set-up and postconfig run, but for programs that are shown and keys that are pressed."""
    for step in (*task.config, *task.evaluator.postconfig):
        calls = calls_of(step, HOME, lambda *_: b"")
        yield from (" ".join(call.args["argv"]) for call in calls if call.method in ("run", "launch"))


def _of_start(
    task: Task, row: Row, files: Mapping[str, FileView], lines: Sequence[str], fixture: Fixture
) -> Score | None:
    _, result, expected, _ = row
    if result.get("type") != "vm_file" or judge.native(*row) is None or not _fixed(task, expected):
        return None
    paths = getters.files_of(result)
    stems = [name_of(path).rpartition(".")[0] or name_of(path) for path in paths]
    if any(_ANY_FILE.search(line) or any(stem in line for stem in stems) for line in lines):
        return None
    return _scored(task, row, files, fixture) if files.keys() >= set(paths) else None


def _fixed(task: Task, expected: Getter) -> bool:
    """Whether what is expected does not come of a desktop."""
    known = judge.brought_by(task).keys() >= set(getters.files_of(expected)) > set()
    return not expected or not getters.is_read(expected) or known


def _of_gold(task: Task, expected: Getter, fixture: Fixture) -> list[FileView]:
    """The files that are expected; none where they are no fixtures."""
    brought, paths = judge.brought_by(task), getters.files_of(expected)
    if not brought.keys() >= set(paths):
        return []
    return [_view(fixture(*one)) for one in (*getters.fixtures_of(expected), *(brought[path] for path in paths))]


def _by_gold(task: Task, row: Row, fixture: Fixture) -> str:
    """How what is expected fails in the place of the result; "" where it passes, or is not to be compared so."""
    _, result, expected, options = row
    metric = judge.native(*row)
    if metric is None or metric.differs(options) or result.get("type") != "vm_file":
        return ""
    paths, golds = getters.files_of(result), _of_gold(task, expected, fixture)
    if not golds or len(golds) != len(paths):
        return ""
    found = _scored(task, row, dict(zip(paths, golds, strict=True)), fixture)
    return "" if found.value >= SOLVED else f"what it expects does not pass itself: {found.reason}"


def _scored(task: Task, row: Row, files: Mapping[str, FileView], fixture: Fixture) -> Score:
    name, result, expected, options = row
    evaluator = replace(task.evaluator, func=name, result=result, expected=expected, options=options)
    return judge.score(replace(task, evaluator=evaluator), files.__getitem__, {}, fixture)
