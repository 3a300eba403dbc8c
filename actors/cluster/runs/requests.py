"""What the arguments of `run` ask for: one request for each run folder, in the order in which they are carried out.

Several seeds are an experiment: runs NAME-SEED of one file, which differ in their seed alone.

Invariant: resolving starts nothing and writes nothing. A change that would do nothing, or break what a run holds, is
refused by name.
"""

from __future__ import annotations

import functools
import hashlib
import json
import shlex
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster import paths as places
from actors.cluster.config import deploy_files
from actors.cluster.config.schema import Deploy
from actors.cluster.config.suggest import blamed, hint
from actors.cluster.runs import apply, ledgers, recordings, refusals, run_folder, weights
from actors.cluster.runs.refusals import Named
from actors.cluster.runs.run_folder import SEED, Asked, NamedWeights, RunRecord
from actors.entropulse.decide import FINAL
from actors.learner.folders import CHECKPOINTS
from actors.learner.probe import FILE as PROBE
from actors.replay.database import queries
from actors.replay.database.ledger_file import LEDGER, copy_ledger
from policy import checkpoints
from runtime.errors import ConfigError, StoreError
from runtime.segments import SEGMENTS

# What a checkpoint's weights, and the steps that are kept, were made with.
FORK_FIXED = ("model.path", "prompt.format", "prompt.action_space", "learner.dtype", "learner.lora", "learner.vision")
# What tasks, groups and weights of a run's first part were made with.
FIXED = (
    SEED, "model.path", "prompt.format", "prompt.action_space", "learner.rl.advantage", "learner.dtype",
)  # fmt: skip
# Keys that decide how weights are cloned, and those among them that do not: they matter later, or only to rounding.
CLONING = (
    "model", "prompt", "tasks.demo", "tasks.max_turns", "demos", "desktops.settle_ms", "learner",
    "replay.sft_batch_size", "sampling.max_new_tokens", "entropulse.bc_steps",
)  # fmt: skip
NOT_CLONING = (
    "demos.source", "learner.rl", "learner.sft.pulse_lr", "learner.sft.threads", "learner.checkpoint_every",
    "learner.parallel",
)  # fmt: skip
TRAINING = ("tasks.train", "tasks.demo", "demos", "learner", "entropulse", "weight_sync")  # nothing to a trained run


class ForkPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Another run's checkpoint, from which a new run goes on."""

    run: Path
    version: str

    def __str__(self) -> str:
        return f"{self.run.name}@{self.version}"


class WantedRuns(msgspec.Struct, frozen=True, kw_only=True):
    """What the words of `run` ask for."""

    file: str  # a deploy file's path or name
    runs: Path  # where run folders are
    name: str | None = None
    resume: bool = False
    dry: bool = False  # it is only shown
    asked: Asked = Asked()


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A run to begin, or to go on with: all that its file names was looked up, and nothing speaks against it."""

    folder: Path
    file: str  # a deploy file, or the command that the run is started by
    named: Named | None  # what its deploy file means; None where nothing is left to do
    ended: RunRecord | None = None  # of a run that is not started again
    resume: bool = False
    experiment: str = ""  # what the run is one of
    settings: str = ""  # digest of what the file says
    asked: Asked | None = None  # by the command
    fork: ForkPoint | None = None  # a new run: what it goes on from
    weights: NamedWeights | None = None  # that `eval` plays
    news: str = ""  # printed before it
    warning: str = ""  # printed before all

    @property
    def deploy(self) -> Deploy:
        """Its settings, where something is left to do."""
        assert self.named is not None
        return self.named.deploy


def request_of(
    folder: Path, deploy: Deploy, *, trains: bool = False, dry: bool = False, changed: bool = False, **others: Any
) -> RunRequest:
    """A run of `deploy` in `folder`; `others` are fields of the request, `changed` says whether --set changed a key.

    Raises ConfigError where `deploy` can't come true, or a run would go on from what is gone or damaged.
    """
    resume = others.get("resume", False)
    ended = _ended(folder, others.get("experiment", "")) if resume and not changed else None
    if resume and ended is None and (wrong := ledgers.damage(folder)):
        raise ConfigError(f"run {folder.name} can't go on: {wrong}")
    named = refusals.look_up(deploy, run_dir=folder, trains=trains, dry=dry) if dry or ended is None else None
    return RunRequest(folder=folder, named=named, ended=ended, **others)


def _ended(folder: Path, experiment: str) -> RunRecord | None:
    """The record of a run that is not started again; None where something is left to do.

    A time limit ends a run of an experiment for good: with more time it would compare with no other.
    """
    record = run_folder.read_record(folder)
    over = record.has_ended or (record.verdict in ("ok", "failed") and experiment)
    return record if over and run_folder.owner(folder) is None else None


def resolve(wanted: WantedRuns) -> list[RunRequest]:
    """The runs that are `wanted`. Raises ConfigError for a bad, taken or unknown name, and for a resume that would make
    later runs differ from those begun."""
    file, runs, asked = wanted.file, wanted.runs, wanted.asked
    if wanted.resume:
        name = _experiment(runs, wanted.name, file, seeds=asked.seeds)
        return _of_experiment(wanted, name) if name else [_alone(wanted)]
    name = places.named(wanted.name, deploy_files.locate(file).stem)
    places.refuse_unwritable(runs, "--runs")
    if asked.seeds and any(record.experiment == name for _, record in run_folder.all_runs(runs)):
        raise ConfigError(
            f"--name {name}: there is an experiment {name}: go on with it with --resume, or give another --name"
        )
    point = fork_point(asked.fork, runs) if asked.fork else None
    if point is not None:
        forked = msgspec.structs.replace(asked, fork=f"{point.run.resolve()}@{point.version}")
        wanted = msgspec.structs.replace(wanted, asked=forked)
    return [_begun(wanted, name, seed, point) for seed in (*asked.seeds,) or (None,)]


def pinned(overrides: Sequence[str], runs: Path) -> list[str]:
    """`overrides` with what names of runs mean now: demos.source=last, and a run as model.path, whose weights change.

    Raises ConfigError where there is none.
    """

    def meant(override: str) -> str:
        key, name = (part.strip() for part in override.split("=", 1)) if "=" in override else ("", "")
        if key == "model.path" and weights.run_of(name, runs) is not None:
            return f"{key}={json.dumps(weights.locate(name, runs).folder)}"
        if (key, name) == ("demos.source", run_folder.LAST):
            with blamed("--set demos.source: "):
                return f"{key}={recordings.locate(name, runs).name}"
        return override

    return [meant(one) for one in overrides]


def _begun(wanted: WantedRuns, name: str, seed: int | None, point: ForkPoint | None) -> RunRequest:
    file, asked = wanted.file, wanted.asked
    seeded = [f"{SEED}={seed}"] if seed is not None else []
    if taken := [one for one in asked.overrides if seeded and one.partition("=")[0].strip() == SEED]:
        raise ConfigError(f"--set {taken[0]}: seeds are chosen with --seed here")
    try:
        deploy, _ = deploy_files.load(file, [*asked.overrides, *seeded])
    except ConfigError as error:
        raise ConfigError(str(error).replace(f"--set {SEED}={seed}:", f"--seed {seed}:")) from None
    folder = wanted.runs / (f"{name}-{seed}" if seeded else name)
    run_folder.refuse_taken(folder)
    if point is not None:
        refuse_fork_changes(point, deploy, file, asked.overrides)
    several = {"experiment": name, "news": f"\nseed {seed}"} if seeded else {}
    return _of_file(wanted, folder, deploy, fork=point, **several)


def _of_file(wanted: WantedRuns, folder: Path, deploy: Deploy, **others: Any) -> RunRequest:
    file = wanted.file
    more: dict[str, Any] = {"file": file, "settings": settings_of(file), "asked": wanted.asked} | others
    return request_of(folder, deploy, trains=True, dry=wanted.dry, **more)


def _alone(wanted: WantedRuns) -> RunRequest:
    file, asked = wanted.file, wanted.asked
    folder = _run_of(wanted.runs, wanted.name, file)
    before, after = (deploy_files.stored(folder, sets) for sets in ([], asked.overrides))
    refuse_changes(folder, before, after)
    was, now = run_folder.read_record(folder).settings, settings_of(file)
    goes_on = f"run {folder.name} goes on as it was begun (--set changes it)"
    warning = f"{file} has changed since: {goes_on}" if was and was != now else ""
    return _of_file(wanted, folder, after, resume=True, changed=bool(asked.overrides), warning=warning)


def _of_experiment(wanted: WantedRuns, name: str) -> list[RunRequest]:
    """The runs of experiment `name`: those begun, and those of more seeds. Raises ConfigError."""
    file, runs, asked = wanted.file, wanted.runs, wanted.asked
    known = [record for record in _begun_with(runs, file) if record.experiment == name]
    if not known:
        names = {record.experiment for record in _begun_with(runs, file) if record.experiment}
        raise ConfigError(f"--name {name}: no such experiment of {file} in {runs}; {hint(name, names)}")
    begun = functools.reduce(Asked.joined, (record.asked or Asked(seeds=[record.seed]) for record in known))
    for override in asked.overrides:
        if asked.overrides != begun.overrides:
            raise ConfigError(f"--set {override}: experiment {name} goes on as it was begun: leave it out")
    for record in known:
        if record.settings and record.settings != settings_of(file):
            raise ConfigError(
                f"{file}: it has changed since {record.name} was begun with it, and what is begun now would differ;"
                " undo the change, or begin another experiment with another --name"
            )
    seeds = asked.seeds or begun.seeds
    wanted = msgspec.structs.replace(wanted, asked=msgspec.structs.replace(begun, seeds=seeds))
    requests = []
    for seed in seeds:
        folder = runs / f"{name}-{seed}"
        if not run_folder.is_run(folder):
            point = fork_point(begun.fork, runs) if begun.fork else None
            requests.append(_begun(wanted, name, seed, point))
            continue
        if run_folder.read_record(folder).experiment != name:
            stranger = f"there is a run {folder.name} that is not of experiment {name}"
            raise ConfigError(f"--name {name}: {stranger}; give another --name")
        stored, news = deploy_files.stored(folder), f"\nseed {seed}"
        requests.append(_of_file(wanted, folder, stored, resume=True, experiment=name, news=news))
    return requests


def _experiment(runs: Path, name: str | None, file: str, *, seeds: Sequence[int]) -> str:
    """The experiment that --resume continues: the one called `name`, or what is newest of `file`; "" for a run."""
    known = _begun_with(runs, file)
    if name is not None:
        alone = run_folder.is_run(runs / name)
        return name if seeds or (not alone and any(record.experiment == name for record in known)) else ""
    if not seeds:
        return known[-1].experiment if known else ""
    newest = next((record.experiment for record in reversed(known) if record.experiment), "")
    if not newest:
        raise ConfigError(f"nothing to resume: no experiment of {file} in {runs}")
    return newest


def _run_of(runs: Path, name: str | None, file: str) -> Path:
    """The run of its own of deploy file `file` that --resume means. Raises ConfigError where `name` is another's."""
    stem = deploy_files.locate(file).stem

    def mine(_: Path, record: RunRecord) -> bool:
        # The file's folder may have another name by now.
        of_file = record.file == file or Path(record.file).stem == stem
        return not record.experiment and record.verb == run_folder.RUN and of_file

    if name is None:
        return run_folder.newest(runs, None, mine, f"run of {file}")
    folder = run_folder.newest(runs, name, lambda *_: True, "run")
    record = run_folder.read_record(folder)
    line = run_folder.to_continue(record, folder)
    if record.experiment:
        raise ConfigError(f"--name {name}: it is a run of experiment {record.experiment}: continue that with  {line}")
    if not mine(folder, record):
        raise ConfigError(f"FILE {file}: run {name} was begun with {record.file}: continue it with  {line}")
    return folder


def _begun_with(runs: Path, file: str) -> list[RunRecord]:
    """The runs below `runs` of deploy file `file`, newest last."""
    return [record for _, record in run_folder.all_runs(runs) if deploy_files.same(record.found, file)]


def settings_of(file: str) -> str:
    """A digest of what deploy file `file` says. Raises ConfigError."""
    text = msgspec.json.encode(deploy_files.parsed(file)[0], order="sorted")
    return hashlib.sha256(text).hexdigest()


def refuse_changes(folder: Path, before: Deploy, after: Deploy) -> None:
    """Raise ConfigError for the first key that the run in `folder`, begun with `before`, can't go on with."""
    cloned = evaluates = False
    if (folder / LEDGER).is_file():
        with ledgers.opened(folder) as db:
            cloned, evaluates = queries.has_cloned(db), queries.evaluates_last(db)
    for path, was, _ in apply.keys(before, after):
        if apply.under(path, FIXED):
            raise ConfigError(f"--set {path}: run {folder.name} has {was}, which it keeps: leave it out")
        if cloned and apply.under(path, CLONING) and not apply.under(path, NOT_CLONING):
            raise ConfigError(f"--set {path}: run {folder.name} has begun to clone, and clones so: leave it out")
        if evaluates and apply.under(path, TRAINING):
            raise ConfigError(
                f"--set {path}: run {folder.name} has begun its last evaluation and is trained no more: leave it out"
            )


def fork_point(named: str, runs: Path) -> ForkPoint:
    """The checkpoint that `RUN@VERSION` means, or RUN alone: its newest. Raises ConfigError with the nearest one."""
    name, _, version = named.rpartition("@") if "@" in Path(named).name else (named, "", "")
    run = run_folder.find(runs, name)
    run_folder.refuse_held(run)
    with blamed(f"--from {named}: "):
        saved = [one for one, _ in checkpoints.complete(run / CHECKPOINTS)]
    _, digests = ledgers.checkpoint_digests(run, saved)
    known = [str(one) for one, digest in zip(saved, digests, strict=True) if digest]
    if known:
        with ledgers.opened(run) as db:
            tried = queries.made_in_trials(db)
        known = [one for one in known if one not in tried]
        if version in tried:
            raise ConfigError(f"--from {named}: {version} was made in a trial of a pulse; {hint(version, known)}")
    if not known:
        raise ConfigError(f"--from {named}: run {name} holds no checkpoint that its ledger knows")
    if version and version not in known:
        raise ConfigError(f"--from {named}: run {name} holds no checkpoint {version}; {hint(version, known)}")
    return ForkPoint(run=run, version=version or known[-1])


def refuse_fork_changes(point: ForkPoint, deploy: Deploy, file: str, overrides: Sequence[str]) -> None:
    """Raise ConfigError for the first key in which a fork can't differ from its trunk, and who of the two gave it."""
    for path, was, _ in apply.keys(deploy_files.stored(point.run), deploy):
        if apply.under(path, FORK_FIXED):
            given = apply.under(path, [one.partition("=")[0].strip() for one in overrides])
            who, said = f"--set {path}" if given else f"{file}: {path}", "the bundled model" if was == "" else was
            mend = shlex.quote(f"{path}={was if isinstance(was, str) else json.dumps(was)}")
            raise ConfigError(f"{who}: {point} was trained with {said}, which a fork keeps: give  --set {mend}")


def make_fork(point: ForkPoint, folder: Path) -> None:
    """Copy into the new folder `folder` what a run goes on from; nothing where that was done before it was killed.

    It appears whole or not at all, with one checkpoint: what the trunk did after it is undone as after a crash. The
    trunk is only read. Raises ConfigError where it can't be copied.
    """
    if (folder / LEDGER).is_file():
        return
    try:
        with (
            run_folder.held(point.run, run_folder.read_record(point.run).started),
            places.made_whole(folder, run_folder.PRIVATE) as made,
        ):
            copy_ledger(point.run, made, again=[FINAL])
            shutil.copytree(point.run / CHECKPOINTS / point.version, made / CHECKPOINTS / point.version)
            if (point.run / PROBE).is_file():
                shutil.copyfile(point.run / PROBE, made / PROBE)
            shutil.copytree(point.run / SEGMENTS, made / SEGMENTS, ignore=shutil.ignore_patterns("*.lock"))
    except (OSError, StoreError) as error:
        raise ConfigError(f"{folder.name} can't be made from {point}: {error}") from None
