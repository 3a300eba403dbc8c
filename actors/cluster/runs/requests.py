"""What the arguments of `run` ask for: one request for each run folder, in the order in which they are carried out.

A run of its own is a list of one. The runs of an experiment stand behind the recordings and the clonings that they
begin from. Arms that differ only in what comes after cloning begin, for each seed, from weights cloned once.

Invariant: resolving starts nothing and writes nothing; what is begun later has the settings that the first runs were
begun with.
"""

from __future__ import annotations

import argparse
import shlex
import time
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster import paths as places
from actors.cluster.config import deploy_files
from actors.cluster.config.schema import Deploy
from actors.cluster.runs import experiment, resume, run_folder, weights
from actors.cluster.runs import recordings as demosource
from actors.cluster.runs.run_folder import CLONING, RECORDING, Asked, RunRecord
from runtime.errors import ConfigError


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A run to begin, or to go on with."""

    folder: Path
    deploy: Deploy  # but for what runs before it make
    file: str  # a deploy file, or the command that the run is started by
    resume: bool = False
    changed: bool = False  # by --set: it goes on even where it had ended
    recording: Path | None = None  # the run before it that records its demonstrations
    cloning: Path | None = None  # the run before it that clones the weights it begins with
    experiment: str = ""  # what the run is one of
    arm: str = ""
    changes: dict[str, Any] = {}  # path -> value of the arm
    said: str = ""  # the arm and what it changes
    cloned: str = ""  # the run of another experiment, or of none, whose cloned weights it begins with
    settings: str = ""  # names what the file says to it
    asked: Asked | None = None  # of the experiment, or of the one run
    news: str = ""  # said before it
    warning: str = ""  # said before all

    @property
    def is_own(self) -> bool:
        """Whether it was asked for itself, and not for others to begin from."""
        return self.arm not in (RECORDING, CLONING)

    def ended(self) -> RunRecord | None:
        """The record of a run that is not started again; None where something is left to do.

        A time limit ends a run of an experiment for good: with more time it would compare with no other.
        """
        if not self.resume or self.changed:
            return None
        record = run_folder.read_record(self.folder)
        over = record.has_ended or (record.verdict in ("ok", "failed") and self.experiment)
        return record if over and run_folder.owner(self.folder) is None else None

    def begins(self) -> Deploy:
        """The settings it has, or begins with when the runs before it have ended."""
        if self.resume and self.experiment:
            return deploy_files.stored(self.folder)
        deploy, change = self.deploy, msgspec.structs.replace
        if self.recording is not None:
            deploy = change(deploy, demos=change(deploy.demos, source=str(self.recording.resolve())))
        if self.cloning is not None:
            run = self.cloning.resolve()
            deploy = resume.after_cloning(deploy, weights.locate(str(run), run.parent).folder, run)
        return deploy


def resolve(args: argparse.Namespace) -> list[RunRequest]:
    """What the arguments of `run` ask for. Raises ConfigError for a bad, taken or unknown name, and for a resume that
    would make later runs differ from those begun."""
    file, runs = args.file, Path(args.runs)
    sets = demosource.pinned(args.overrides, runs)
    said = Asked(arms=args.arm, seeds=args.seed, overrides=sets, cloned=args.cloned or "")
    several = bool(said.arms or said.seeds) or experiment.is_one(file)
    if args.resume and (several or resume.is_experiment(runs, args.name, file)):
        name, begun = resume.experiment_of(runs, args.name, file)
        said, several = experiment.resumed(file, name, begun, said), True
    elif args.resume:
        return [_resumed(args, said)]
    else:
        name = args.name or places.unnamed(deploy_files.locate(file).stem, time.time())
        places.refuse_bad_name(name)
        said = msgspec.structs.replace(said, cloned=resume.pinned(said.cloned, runs))
    places.refuse_unwritable(runs, "--runs")
    if several and not args.resume:
        _refuse_others(runs, name, file, said)
    found = _requests(file, runs, name, said, several=several)
    for one in found:
        if one.is_own and not args.resume:
            run_folder.refuse_taken(one.folder)
        elif one.resume and run_folder.read_record(one.folder).experiment != name:
            stranger = f"there is a run {one.folder.name} that is none of experiment {name}'s"
            raise ConfigError(f"--name {name}: {stranger}; give another --name")
    return found


def _resumed(args: argparse.Namespace, said: Asked) -> RunRequest:
    """The run of its own that --resume goes on with."""
    resume.refuse_given(args, ["cloned"], "a run goes on with what it has")
    folder, settings = resume.run_of(Path(args.runs), args.name, args.file), experiment.settings_of(args.file, "")
    was, goes_on = run_folder.read_record(folder).settings, "goes on as it was begun (--set changes it)"
    warning = (
        f"{args.file} has changed since: run {folder.name} {goes_on}"
        if was.startswith(experiment.NAMES) and was != settings
        else ""
    )
    return RunRequest(
        folder=folder, deploy=resume.settings(folder, said.overrides), file=args.file, resume=True,
        changed=bool(said.overrides), settings=settings, asked=said, warning=warning,
    )  # fmt: skip


def _requests(file: str, runs: Path, name: str, said: Asked, *, several: bool) -> list[RunRequest]:
    """The run called `name`; with `several`, those of the experiment and what they begin from."""
    ones = experiment.expand(file, said.overrides, arms=said.arms, seeds=said.seeds)
    whole = experiment.expand(file, said.overrides)  # all arms, whichever are chosen
    footings, alone = experiment.footings(whole), not several or bool(said.cloned)
    shared = not alone and experiment.share_cloning(whole)
    cloned = resume.cloned_in(said.cloned, runs).name if said.cloned else ""

    def request(stem: str, deploy: Deploy, arm: str, **more: Any) -> RunRequest:
        folder = runs / stem
        return RunRequest(
            folder=folder, deploy=deploy, file=file, resume=several and run_folder.is_run(folder), asked=said,
            experiment=name if several else "", arm=arm, cloned=cloned, settings=experiment.settings_of(file, arm),
            **more,
        )  # fmt: skip

    recordings: dict[str, RunRequest] = {}  # by what is demonstrated
    for one in [] if alone else ones:
        footing, demos = footings[one.arm], one.deploy.demos
        if demos.count and not demos.source and footing not in recordings:
            stem = "-".join(part for part in (name, footing, RECORDING) if part)
            news = f"{demos.count} demonstrations that runs begin from are recorded into {stem}"
            recordings[footing] = request(stem, experiment.for_recording(one.deploy), RECORDING, news=news)
    clonings: dict[int, RunRequest] = {}  # by seed
    found = list(recordings.values())
    for number, one in enumerate(ones, 1):
        recorded = recordings.get(footings[one.arm])
        recording = recorded.folder if recorded is not None else None
        if shared and one.seed not in clonings:
            stem, deploy = run_folder.cloning_of(name, one.seed), experiment.cloning_alone(one.deploy)
            news = f"\ncloning for all arms of seed {one.seed}"
            clonings[one.seed] = request(stem, deploy, CLONING, recording=recording, news=news)
            found.append(clonings[one.seed])
        deploy = resume.from_cloned(said.cloned, runs, one.deploy) if said.cloned else one.deploy
        news = f"\n{number} of {len(ones)}: {one.said or 'no arm'}, seed {one.seed}" if several else ""
        cloning = clonings[one.seed].folder if shared else None
        stem, made = one.name(name) if several else name, {"recording": recording, "cloning": cloning}
        found.append(request(stem, deploy, one.arm, changes=one.changes, said=one.said, news=news, **made))
    return found


def _refuse_others(runs: Path, name: str, file: str, said: Asked) -> None:
    """Raise ConfigError where runs of an experiment called `name` were begun otherwise than what is begun now.

    They would begin from its recording and from what it has cloned.
    """
    known = [record for _, record in run_folder.all_runs(runs) if record.experiment == name]
    for record in known:
        was, asked = "", record.asked
        if not deploy_files.same(record.found, file):
            was = f"is of {record.file}"
        elif asked is not None and asked.overrides != said.overrides:
            was = f"was begun with {shlex.join(Asked(overrides=asked.overrides).words()) or 'no --set'}"
        elif asked is not None and bool(asked.cloned) is not bool(said.cloned):
            was = f"was begun with {f'--cloned {asked.cloned}' if asked.cloned else 'cloning of its own'}"
        if was:
            raise ConfigError(f"--name {name}: experiment {name} {was}; give another --name")
    resume.refuse_changed(file, runs, known)
