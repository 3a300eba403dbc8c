"""What a task's set-up asks of the guest agent.

Invariant: pure. A set-up runs only the steps that are named here: each other step is the task's fault.
"""

from __future__ import annotations

from apis.applications import OPENS, PROGRAMS, app_named
from apis.plans.action import SETTLE, Call, pressed
from apis.tasks.osworld import ActivateWindow, Download, Launch, Open, Sleep, Step, Task, data_of, in_home
from runtime.errors import ConfigError

SETUP_MS = 25_000  # for one that a set-up waits for, on a busy machine; less than a call of a set-up may take
# A text file of numbers opens without the dialog that asks about its form: commas, quotes, UTF-8, from the first line.
CSV_FILTER = "--infilter=Text - txt - csv (StarCalc):44,34,76,1"


def setup(task: Task, home: str) -> list[Call]:
    """The calls that prepare `task` on a desktop whose HOME is `home`.

    Raises ConfigError for a step that needs the network or that nothing here carries out: the task is at fault.
    """
    calls: list[Call] = []
    for step in task.config:
        try:
            calls += _setup_step(step, home)
        except ValueError as error:
            raise ConfigError(f"task {task.id}: {error}") from error
    return [*calls, Call("settle", {"timeout_ms": 3000, "quiet_ms": 200})]


def _setup_step(step: Step, home: str) -> list[Call]:
    match step:
        case Download():
            files = step.parameters.files
            return [Call("write_file", {"path": in_home(f.path), "data": data_of(f.url)}) for f in files]
        case Open():
            return _open(in_home(step.parameters.path), home)
        case Launch() if isinstance(step.parameters.command, list) and not step.parameters.shell:
            argv = list(step.parameters.command)
            if argv[:1] and argv[0] in PROGRAMS:
                return [Call("open_window", {"argv": argv, "timeout_ms": SETUP_MS}), SETTLE]
            return [Call("launch", {"argv": argv}), SETTLE]
        case ActivateWindow():
            wanted = step.parameters
            args = {"title": wanted.window_name, "strict": wanted.strict, "by_class": wanted.by_class}
            return [Call("raise_window", {**args, "timeout_ms": SETUP_MS}), SETTLE]
        case Sleep():
            return [SETTLE]
    raise ValueError(f"the set-up step {type(step).__name__} can't be carried out")


def _open(path: str, home: str) -> list[Call]:
    """Open a file or folder of HOME by its name's ending; a spreadsheet fills the screen with the caret in A1."""
    name = path.rpartition("/")[2]
    stem, dot, ending = name.rpartition(".")
    app = app_named(OPENS.get(ending.lower(), "text_editor") if stem and dot else "file_manager")
    filters = [CSV_FILTER] if ending.lower() == "csv" else []
    argv = [*app.argv, *filters, f"{home}/{path}"]
    calls = [Call("open_window", {"argv": argv, "title": name, "timeout_ms": SETUP_MS}), SETTLE]
    return [*calls, pressed("ctrl", "home"), SETTLE] if app.name == "libreoffice_calc" else calls
