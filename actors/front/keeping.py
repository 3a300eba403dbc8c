"""Keeps a played episode as a demonstration.

Invariant: a recording is added to whole or stays as it was. It holds only what a run can learn from: a solved training
task, played with the recording's own tokenizer, form and actions.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from actors.cluster import paths as places
from actors.cluster.config import models, suites
from actors.desktop.player import Play
from actors.replay.demos import demo_files
from actors.replay.demos.format import FORMAT, Demo, DemoStep, RecordingHeader, TaskAttempts
from apis.actions.spaces import ActionSpace
from apis.observation import OBSERVATION_VERSION
from apis.prompts import Form
from runtime.errors import ConfigError, StoreError
from runtime.segments import digest_of


def refuse_unkept(file: Path, task: str, form: Form, actions: ActionSpace) -> None:
    """Raise ConfigError where an episode of `task` could not be kept in `file`, before it is played."""
    suites.refuse_for_training("--keep", [task])
    places.refuse_no_file(file, "--keep")
    if file.suffix not in (".jsonl", ".parquet"):
        raise ConfigError(f"--keep {file}: a recording is a .jsonl or a .parquet file")
    if file.exists():
        _read_own(file, _header(form, actions))


def keep(file: Path, played: Play, *, by: str, form: Form, actions: ActionSpace) -> int:
    """Add the episode to the recording `file`, or begin one; how many demonstrations it holds then.

    `by` says who played. Raises ConfigError where it was not solved or the recording is of another kind.
    """
    if played.outcome is None or not played.success:
        raise ConfigError(f"{played.task}: only a solved task is a demonstration")
    steps = []
    for payload in played.steps:
        alone = msgspec.structs.replace(payload, screenshot=None, logprobs=[], spans=[], by=by)
        digest = digest_of(msgspec.msgpack.encode(alone)).hex()
        steps.append(DemoStep(digest=digest, well_formed=payload.refusal is None, payload=alone))
    demo = Demo(
        task=played.task, route="", member=by, reason=played.outcome.reason, wall_s=played.wall_s,
        busy_s=played.wall_s, steps=steps,
    )  # fmt: skip
    if problem := demo_files.unfit(demo):
        raise ConfigError(f"{played.task}: {problem}")
    header, before = _header(form, actions), list[Demo]()
    if file.exists():
        header, before = _read_own(file, header)
    try:
        tried = {one.task: one for one in header.tasks}
        old = tried.get(demo.task, TaskAttempts(task=demo.task, tries=0, wins=0))
        tried[demo.task] = msgspec.structs.replace(old, tries=old.tries + 1, wins=old.wins + 1)
        header = msgspec.structs.replace(header, demos=len(before) + 1, tasks=list(tried.values()))
        demo_files.write(file, header, [*before, demo])
    except StoreError as error:
        raise ConfigError(f"--keep {error}") from None
    return header.demos


def _header(form: Form, actions: ActionSpace) -> RecordingHeader:
    return RecordingHeader(
        format=FORMAT, tokenizer=models.fingerprint(models.bundled()), form=form, actions=actions,
        observations=(OBSERVATION_VERSION,), demos=0,
    )  # fmt: skip


def _read_own(file: Path, wanted: RecordingHeader) -> tuple[RecordingHeader, list[Demo]]:
    """The recording `file`, whole. Raises ConfigError unless it is, and says of itself what `wanted` does."""
    try:
        found, demos = demo_files.read(file)
        whole = list(demos)
    except StoreError as error:
        raise ConfigError(f"--keep {error}") from None
    for name in ("tokenizer", "form", "actions", "observations"):
        if getattr(found, name) != getattr(wanted, name):
            said = f"{getattr(found, name)}, this episode has {getattr(wanted, name)}"
            raise ConfigError(f"--keep {file}: that recording's {name} is {said}: name another file")
    return found, whole
