"""Where a recording lies that a run begins from; an unfit one is refused before anything is made or started."""

from __future__ import annotations

import os
from collections.abc import Collection
from importlib import resources
from pathlib import Path

from actors.cluster.config import suites
from actors.cluster.config.schema import Deploy
from actors.cluster.config.suggest import blamed, hint
from actors.cluster.runs import run_folder
from actors.replay.database import queries
from actors.replay.database.ledger_file import LEDGER
from actors.replay.demos import demo_files
from actors.replay.demos.format import RecordingHeader
from actors.replay.ledger.demo_tasks import refuse_foreign
from apis.actions.spaces import SPACES
from apis.observation import OBSERVATION_VERSION
from apis.prompts import FORMS
from runtime.errors import ConfigError

SUFFIX = ".parquet"


def locate(name: str, runs: Path) -> Path:
    """The recording `name`: a .parquet file, a run's folder, or a run's name below `runs`.

    Raises ConfigError with the nearest name.
    """
    if Path(name).suffix == SUFFIX:
        bundled = Path(str(resources.files("deploy"))).parent / name
        if not os.path.isfile(name) and name.startswith("deploy/") and bundled.is_file():
            return bundled
        if not os.path.isfile(name):
            near = sorted(Path(name).parent.glob("*")) if Path(name).parent.is_dir() else []
            why = hint(name, [str(file) for file in near if file.suffix == SUFFIX])
            if not Path(name).parent.is_dir():
                why = f"there is no folder {Path(name).parent}"
            elif os.path.exists(name):
                why = "it is no regular file"
            raise ConfigError(f"{name}: no such file of demonstrations; {why}")
        return Path(name).resolve()
    if (found := run_folder.look_up(runs, name, _has_ledger, _may_record)) is not None:
        return found.resolve()
    known = [path.name for path, record in run_folder.all_runs(runs) if _may_record(path, record)]
    raise ConfigError(
        f"{name}: no recording of that name: it is a .parquet file or a run in {runs}; {hint(name, known)}"
    )


def _has_ledger(folder: Path) -> bool:
    return os.path.isfile(folder / LEDGER)


def _may_record(folder: Path, record: run_folder.RunRecord) -> bool:
    return _has_ledger(folder) and not record.of_eval


def header_of(path: Path) -> RecordingHeader:
    """What the recording at `path` says of itself. Raises ConfigError, also where it names a form or actions that
    there are not."""
    with blamed(""):
        header = demo_files.read(path)[0]
    for key, said, known in (("form", header.form, FORMS), ("actions", header.actions, SPACES)):
        if said and said not in known:
            raise ConfigError(f"{path} names {key} {said!r}; {hint(said, known)}")
    return header


def caution(path: Path) -> str:
    """One line where what the recording at `path` shows is not what desktops of this build show; "" where it is.

    Raises ConfigError.
    """
    versions = header_of(path).observations
    if versions == (OBSERVATION_VERSION,):
        return ""
    return (
        f"{path} was recorded with observation {queries.versions_text(versions)}, desktops show observation"
        f" {OBSERVATION_VERSION} now: what is cloned from it reads screens of another kind"
    )


def refuse_leaks(
    path: Path, key: str, held_out: Collection[str] = (), *, played: bool = False, vocabulary: int = 0
) -> None:
    """Raise ConfigError for a recording at `path` that must not be cloned.

    It shows a task of `held_out`, one that does not exist or may not be trained on, or a demonstration is unusable, as
    by a model of so small a `vocabulary` (0: not known).

    With `played`, tasks that it names are tried again, so all of them have to exist here.
    """
    shown: dict[str, None] = {}
    with blamed(f"{key}: "):
        header, demos = demo_files.read(path)
        for demo in demos:
            shown[demo.task] = None
            if problem := demo_files.unfit(demo, vocabulary):
                raise ConfigError(f"{path}: {demo.task}: {problem}")
    tried = [one.task for one in header.tasks]
    with blamed(f"{key}: {path}: "):
        for task in dict.fromkeys([*shown, *(tried if played else ())]):
            suites.refuse_unknown(task)
    suites.refuse_for_training(f"{key}: {path}", [*shown, *tried])
    leaked = set(held_out).intersection([*shown, *tried])
    if leaked:
        raise ConfigError(f"{key}: {path}: {min(leaked)} is also in tasks.eval, which must be held out")


def refuse_unfit(
    deploy: Deploy, path: Path, tokenizer: str, held_out: Collection[str] = (), vocabulary: int = 0
) -> None:
    """Raise ConfigError unless the recording at `path` suits the run's tokenizer, vocabulary, form, actions and tasks.

    `held_out` are the tasks of the run's evaluation.
    """
    header = header_of(path)
    with blamed("demos.source: "):
        refuse_foreign(path, header, tokenizer=tokenizer, form=deploy.prompt.format, actions=deploy.prompt.action_space)
    if header.demos < deploy.demos.count and not deploy.tasks.demo:
        raise ConfigError(
            f"demos.source: {path} holds {header.demos} demonstrations, demos.count asks for {deploy.demos.count} and"
            " tasks.demo is empty"
        )
    again = bool(deploy.demos.resample_rounds)
    refuse_leaks(path, "demos.source", held_out, played=again, vocabulary=vocabulary)
