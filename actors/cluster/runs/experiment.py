"""Deploy files that stand for several runs: arms that differ in some keys, and seeds. Pure but for reading the file.

Invariant: a key has one owner, the file, the arms, the seeds or the command line. Two runs of one experiment differ
only in what their arm and seed set.
"""

from __future__ import annotations

import copy
import hashlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, cast

import msgspec

from actors.cluster.config import deploy_files, typed_yaml
from actors.cluster.config.schema import Deploy, DeployFile, RequireConfig
from actors.cluster.config.suggest import hint
from actors.cluster.runs.run_folder import CLONING, RECORDING, Asked
from actors.entropulse.config import EvaluationConfig
from actors.learner.config import LearnerConfig
from runtime.errors import ConfigError

SEED = "run.seed"
# Of the names of keys that digests are made under: a digest under others says nothing.
NAMES = "2"


class OneRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of an experiment."""

    arm: str  # "" where the file has none
    seed: int
    changes: dict[str, Any]  # path -> value of the arm
    deploy: Deploy

    def name(self, experiment: str) -> str:
        """The name of its run folder."""
        return "-".join(part for part in (experiment, self.arm, str(self.seed)) if part)

    @property
    def said(self) -> str:
        """The arm and what it changes."""
        changes = ", ".join(f"{path}: {value}" for path, value in self.changes.items())
        return f"{self.arm} ({changes})" if self.arm and changes else self.arm


def footings(runs: Sequence[OneRun]) -> dict[str, str]:
    """Arm -> the name of the recording of demonstrations that its runs begin from, "" where all share one.

    Arms share a recording unless they differ in what demonstrations are or how they are made: tasks, demonstrators,
    prompts, actions and the tokenizer's model. A recording of several is named after the first arm that begins from it.
    """
    first: dict[bytes, str] = {}
    found = {one.arm: first.setdefault(_footing(one.deploy), one.arm) for one in runs}
    return found if len(set(found.values())) > 1 else dict.fromkeys(found, "")


def _footing(deploy: Deploy) -> bytes:
    return msgspec.json.encode((_demonstrated(deploy), deploy.demos.source))


def _demonstrated(deploy: Deploy) -> dict[str, object]:
    """What decides what is demonstrated, and how, but for the recording that it may be taken from."""
    later = {"source": "", "resample_rounds": 0, "resample_attempts": 1, "resample_bc_steps": 0}
    return {
        "model": msgspec.to_builtins(deploy.model),
        "prompt": msgspec.to_builtins(deploy.prompt),
        "tasks": {"demo": deploy.tasks.demo, "max_turns": deploy.tasks.max_turns},
        "demos": msgspec.to_builtins(msgspec.structs.replace(deploy.demos, **later)),
        "desktops": {"settle_ms": deploy.desktops.settle_ms},
    }


def share_cloning(runs: Sequence[OneRun]) -> bool:
    """Whether arms differ only in what comes after cloning, so that those of a seed begin from the same weights.

    `runs` are all of the experiment's, whichever are carried out.
    """
    firsts = {one.arm: one.deploy for one in reversed(runs)}
    ways = {arm: _cloning(deploy) for arm, deploy in firsts.items()}
    return len(ways) > 1 and len(set(ways.values())) == 1 and all(one.deploy.entropulse.bc_steps for one in runs)


def _cloning(deploy: Deploy) -> bytes:
    """What decides how weights are cloned, but for the seed."""
    return msgspec.json.encode((cloning_of(deploy), deploy.demos.source))


def cloning_of(deploy: Deploy) -> dict[str, object]:
    """Key -> value of all that decides how weights are cloned, but for the seed and for where a recording lies."""
    usual, change = LearnerConfig(), msgspec.structs.replace
    # A pulse's rate comes later, and threads or ranks change no more than the rounding.
    sft = change(deploy.learner.sft, pulse_lr=usual.sft.pulse_lr, threads=usual.sft.threads)
    learner = change(
        deploy.learner, rl=usual.rl, sft=sft, checkpoint_every=usual.checkpoint_every, parallel=usual.parallel
    )
    again = ("resample_rounds", "resample_attempts", "resample_bc_steps")
    # Answers that are longer than the sampler may draw are not learned from, whatever their source.
    drawn = ("max_new_tokens", *(("temperature",) if deploy.demos.resample_rounds else ()))
    found = _demonstrated(deploy)
    return {
        **found,
        "demos": {**cast(dict[str, object], found["demos"]), **{name: getattr(deploy.demos, name) for name in again}},
        "learner": msgspec.to_builtins(learner),
        "replay": {"sft_batch_size": deploy.replay.sft_batch_size},
        "sampling": {name: getattr(deploy.sampling, name) for name in drawn},
        "entropulse": {"bc_steps": deploy.entropulse.bc_steps},
    }


def first_difference(theirs: Mapping[str, object], ours: Mapping[str, object]) -> str | None:
    """The first key by dots that two mappings differ in."""
    for key, value in ours.items():
        other = theirs.get(key)
        if isinstance(value, dict) and isinstance(other, dict):
            if (inner := first_difference(other, value)) is not None:
                return f"{key}.{inner}"
        elif value != other:
            return key
    return None


def cloning_alone(deploy: Deploy) -> Deploy:
    """Of `deploy`, what comes before RL, to its end: no round is played, for the arms that follow play their own."""
    change = msgspec.structs.replace
    return change(
        deploy,
        run=change(deploy.run, require=RequireConfig(bc_steps=deploy.entropulse.bc_steps), limit_s=None),
        entropulse=change(deploy.entropulse, total_rl_steps=0, pulses=0),
        evaluation=EvaluationConfig(enabled=False),
    )


def for_recording(deploy: Deploy, limit_s: float | None = None) -> Deploy:
    """Of `deploy`, the recording of its demonstrations beforehand: from nothing, and without a policy's part."""
    change = msgspec.structs.replace
    return change(
        deploy,
        run=change(deploy.run, limit_s=limit_s),
        tasks=change(deploy.tasks, train=[], eval=[]),
        demos=change(deploy.demos, source="", resample_rounds=0),
        evaluation=EvaluationConfig(enabled=False),
    )


def is_one(file: str) -> bool:
    """Whether deploy file `file` has arms or seeds. Raises ConfigError."""
    found = _parsed(file)
    return any(key in found for key in ("arms", "seeds"))


def expand(
    file: str, overrides: Sequence[str] = (), *, arms: Sequence[str] = (), seeds: Sequence[int] = ()
) -> list[OneRun]:
    """The runs of `file`, seed by seed, so that an experiment broken off has compared what it has.

    `arms` and `seeds` choose among the file's (all when empty); a file without seeds takes any. Raises ConfigError.
    """
    data = _parsed(file)
    arms_said = data.get("arms")
    for arm, changes in arms_said.items() if isinstance(arms_said, dict) else ():
        if not isinstance(changes, dict):
            raise ConfigError(f"{file}: arms.{arm}: an arm gives values to keys, {{}} to none, and not {changes!r}")
    deploy_files.build(copy.deepcopy(data), DeployFile, overrides, source=file)
    found: Mapping[str, Mapping[str, Any]] = data.pop("arms", None) or {}
    listed: list[int] = data.pop("seeds", None) or []
    for arm in found:
        if not arm.replace("_", "").isalnum():
            raise ConfigError(f"{file}: arms.{arm}: an arm's name has letters, digits and underscores")
        if arm in (RECORDING, CLONING):
            raise ConfigError(f"{file}: arms.{arm}: a run of this name is what arms begin from; choose another")
    if len(set(listed)) != len(listed):
        raise ConfigError(f"{file}: seeds: {listed} names one twice")
    _refuse_owned(file, found, [*listed, *seeds], overrides)
    for arm in arms:
        if arm not in found:
            raise ConfigError(f"--arm {arm}: {file} has no such arm; {hint(arm, found) if found else 'it has none'}")
    for seed in seeds:
        if listed and seed not in listed:
            raise ConfigError(f"--seed {seed}: {file} has seeds {', '.join(map(str, listed))}")
    chosen = list(dict.fromkeys(arms)) or list(found) or [""]
    made: list[OneRun] = []
    order: list[int | None] = [*dict.fromkeys(seeds or listed)] or [None]
    for number in order:
        who = f"--seed {number}" if number in seeds else f"{file}: seeds"
        seeded = [] if number is None else [typed_yaml.Placed(SEED, number, who)]
        made += [_one(file, data, overrides, (arm, found.get(arm, {})), seeded) for arm in chosen]
    return made


def settings_of(file: str, arm: str) -> str:
    """A name of what deploy file `file` says to runs of `arm`: another one when a key of theirs is changed.

    Which arms and seeds there are beside it does not matter. Raises ConfigError.
    """
    data = _parsed(file)
    arms = data.pop("arms", None)
    arms = arms if isinstance(arms, dict) else {}
    data.pop("seeds", None)
    said = msgspec.json.encode((data, arms.get(arm)), order="sorted")
    return f"{NAMES}:{hashlib.sha256(said).hexdigest()[:16]}"


def resumed(file: str, name: str, begun: Asked | None, said: Asked) -> Asked:
    """What a resume of experiment `name` asks for: where it says nothing, what it was begun with.

    It may name more arms or seeds: their runs differ from those begun in nothing else. A --set that would change runs
    is refused with a ConfigError, for those begun keep their settings. `begun` is None where the record lacks it.
    """
    if begun is None:
        return said
    if said.cloned and said.cloned != begun.cloned:
        was = f"--cloned {begun.cloned}" if begun.cloned else "cloning of its own"
        raise ConfigError(f"--cloned {said.cloned}: experiment {name} was begun with {was}: leave it out")
    asked = Asked(
        arms=said.arms or begun.arms, seeds=said.seeds or begun.seeds, overrides=begun.overrides, cloned=begun.cloned
    )

    def changes(overrides: Sequence[str]) -> bool:
        found = expand(file, [*begun.overrides, *overrides], seeds=asked.seeds)
        return found != expand(file, begun.overrides, seeds=asked.seeds)

    if said.overrides != begun.overrides and changes(said.overrides):
        first = next((one for one in said.overrides if changes([one])), said.overrides[0])
        was = shlex.join(Asked(overrides=begun.overrides).words()) or "no --set"
        raise ConfigError(f"--set {first}: experiment {name} was begun with {was}: leave it out")
    return asked


def _one(
    file: str,
    data: dict[str, Any],
    overrides: Sequence[str],
    arm: tuple[str, Mapping[str, Any]],
    seeded: Sequence[typed_yaml.Placed],
) -> OneRun:
    name, changes = arm
    placed = [*(typed_yaml.Placed(path, value, f"{file}: arms.{name}") for path, value in changes.items()), *seeded]
    deploy = deploy_files.build(copy.deepcopy(data), Deploy, overrides, source=file, placed=copy.deepcopy(placed))
    return OneRun(arm=name, seed=deploy.run.seed, changes=dict(changes), deploy=deploy)


def _refuse_owned(
    file: str, arms: Mapping[str, Mapping[str, Any]], seeds: Sequence[int], overrides: Sequence[str]
) -> None:
    """Raise ConfigError where --set would undo what an arm or a seed says, or an arm what the seeds say."""
    for arm, changes in arms.items():
        if seeds and SEED in changes:
            raise ConfigError(f"{file}: arms.{arm}: {SEED} is what seeds are for")
    for override in overrides:
        path = override.partition("=")[0].strip()
        if path.partition(".")[0] in ("arms", "seeds"):
            raise ConfigError(f"--set {override}: choose among arms and seeds with --arm and --seed")
        if seeds and path == SEED:
            raise ConfigError(f"--set {override}: seeds are chosen with --seed here")
        for arm, changes in arms.items():
            for own in changes:
                if own == path or own.startswith(path + ".") or path.startswith(own + "."):
                    raise ConfigError(f"--set {override}: arm {arm} of {file} sets {own}")


def _parsed(file: str) -> dict[str, Any]:
    return deploy_files.parsed(file)[0]
