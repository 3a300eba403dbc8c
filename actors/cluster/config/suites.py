"""Suites: which tasks belong together, and how their instances are numbered."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from importlib import resources
from pathlib import Path

import msgspec

from actors.cluster.config import deploy_files, typed_yaml
from actors.cluster.config.suggest import hint, nearest
from actors.replay.config import TaskRange
from apis.tasks import registry as tasks
from apis.tasks.family import Family
from apis.tasks.words import HELD_OUT, SPLITS, TRAIN
from runtime.errors import ConfigError
from runtime.program import program

ALL = "all"
INSTANCES = {TRAIN: 1_000_000, HELD_OUT: 100_000}  # of every family


class SplitConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The instances of one split: numbers `first` to `first + count - 1` of each family."""

    count: int
    first: int = 0


class SuiteConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A suite's file."""

    splits: dict[str, SplitConfig]
    about: str = ""
    trained: list[str] = []  # that may be trained on; `all`: each of the program whose applications set-up installs
    untrained: list[str] = []  # families never trained on, reported apart; `all` likewise


class Suite(msgspec.Struct, frozen=True, kw_only=True):
    """A suite with its families spelled out."""

    name: str
    about: str
    trained: tuple[str, ...]
    untrained: tuple[str, ...]
    splits: dict[str, SplitConfig]

    @property
    def families(self) -> tuple[str, ...]:
        """All of them, the trained ones first."""
        return (*self.trained, *self.untrained)

    def ids(self, family: str, split: str, first: int, count: int) -> list[str]:
        """`count` instances of `family` from its `first` on. Raises ConfigError when the split has no such numbers."""
        numbers = self.splits.get(split)
        if numbers is None:
            raise ConfigError(f"suite {self.name} has no split {split}; {hint(split, self.splits)}")
        if first < 0 or count < 1 or first + count > numbers.count:
            raise ConfigError(
                f"suite {self.name} numbers {split} from 0 to {numbers.count - 1} in each family: {first} to"
                f" {first + count - 1} is not within"
            )
        begin = numbers.first + first
        return [f"{family}/{split}/{number}" for number in range(begin, begin + count)]

    def spread(self, wanted: TaskRange) -> list[str]:
        """`wanted.count` instances, evenly over the trained (or the never-trained) families, family by family in turn.

        Raises ConfigError when there is no such family, split or number.
        """
        families = self.untrained if wanted.untrained else self.trained
        if not families:
            kind = "never-trained" if wanted.untrained else "trained"
            raise ConfigError(f"suite {self.name} has no {kind} families")
        each, more = divmod(wanted.count, len(families))
        shares = [each + (place < more) for place in range(len(families))]
        columns = [
            self.ids(family, wanted.split, wanted.first, share)
            for family, share in zip(families, shares, strict=True)
            if share
        ]
        return [column[row] for row in range(shares[0]) for column in columns if row < len(column)]


def instance(named: str) -> str:
    """The id of the task that a person calls `named`: FAMILY and FAMILY/SPLIT mean its first one.

    Raises ConfigError with the nearest right id.
    """
    name, split, *_ = [*named.split("/"), ""]
    if name in tasks.FAMILIES and named.count("/") < 2 and split in ("", *SPLITS):
        named = f"{name}/{split or splits_of(tasks.FAMILIES[name])[0]}/0"
    refuse_unknown(named)
    return named


def refuse_unknown(task_id: str) -> None:
    """Raise ConfigError with the nearest right word where no instance of a family can be called `task_id`."""
    name, split, number = [*task_id.split("/", 2), "", ""][:3]
    none = f"there is no task {task_id}"
    if name not in tasks.FAMILIES:
        if name in bundled():
            raise ConfigError(f"{none}: {name} is a suite, whose families are in  {program()} tasks list {name}")
        words = re.split(r"[/:.# ]+", task_id)
        family = nearest(words[0], tasks.FAMILIES)
        if family is None:
            raise ConfigError(f"{none}: {hint(name, tasks.FAMILIES)}")
        own = splits_of(tasks.FAMILIES[family])
        split = words[1] if words[1:] and words[1] in own else own[0]
        number = words[2] if words[2:] and len(words[2]) < 6 and tasks.is_number(words[2]) else "0"
        raise ConfigError(f"{none}: did you mean {family}/{split}/{number}?")
    own = splits_of(tasks.FAMILIES[name])
    if not number and tasks.is_number(split):
        raise ConfigError(f"{none}: did you mean {name}/{own[0]}/{split}?")
    if split and split not in SPLITS:
        raise ConfigError(f"{none}: there is no split {split}; {hint(split, SPLITS)}")
    split = split or own[0]
    last = INSTANCES[split] - 1
    if not tasks.is_number(number) or len(number) > len(str(last)) or int(number) > last:
        plain = "in plain digits, without a 0 before others"
        raise ConfigError(f"{none}: its number is one from 0 to {last} {plain}, for example {name}/{split}/0")


def bundled() -> dict[str, Path]:
    """Name -> path of the suites that come with the program."""
    folder = Path(str(resources.files("deploy"))) / "suites"
    return {path.stem: path for path in sorted(folder.glob("*.yaml"))}


def load(name: str) -> Suite:
    """The suite `name`: a bundled one, a YAML file's path, or a single family. Raises ConfigError."""
    known = bundled()
    if name in known:
        return read(known[name], name)
    if name.endswith((".yaml", ".yml")) and os.path.isfile(name):
        return read(Path(name), name)
    if name in tasks.FAMILIES:
        family = tasks.FAMILIES[name]
        whole = {split: SplitConfig(count=INSTANCES[split]) for split in splits_of(family)}
        trained = (name,) if family.trained else ()
        return Suite(name=name, about="", trained=trained, untrained=() if trained else (name,), splits=whole)
    if name in deploy_files.bundled():
        raise ConfigError(f"{name}: a deploy file is called so, no suite or family (demos record --deploy takes it)")
    if name.endswith(".json") or os.path.isdir(name):
        raise ConfigError(
            f"{name}: tasks by themselves belong to no family, and here a suite or a family is asked for (tasks list,"
            " show and check --static take them)"
        )
    raise ConfigError(f"{name}: no such suite or family; {hint(name, [*known, *tasks.FAMILIES])}")


def read(path: Path, name: str) -> Suite:
    """The suite in the file at `path`. Raises ConfigError naming file and key."""
    config = typed_yaml.read(path, SuiteConfig, name=name)
    for split, numbers in config.splits.items():
        if split not in SPLITS:
            raise ConfigError(f"{name}: splits.{split}: no such split; {hint(split, SPLITS)}")
        if numbers.count < 1 or numbers.first < 0:
            raise ConfigError(f"{name}: splits.{split}: it begins at 0 or later and holds at least one instance")
        if numbers.first + numbers.count > INSTANCES[split]:
            raise ConfigError(f"{name}: splits.{split}.count: a family has {INSTANCES[split]} such instances")
    trained = _named(name, "trained", config.trained, trained=True)
    untrained = _named(name, "untrained", config.untrained, trained=False)
    if not trained and not untrained:
        raise ConfigError(f"{name}: it names no families: list them below trained or untrained, or say [{ALL}]")
    return Suite(name=path.stem, about=config.about, trained=trained, untrained=untrained, splits=config.splits)


def splits_of(family: Family) -> tuple[str, ...]:
    """The splits that `family` has."""
    return SPLITS if family.trained else (HELD_OUT,)


def refuse_for_training(lane: str, ids: list[str]) -> None:
    """Raise ConfigError unless every one of `ids` may be trained on in `lane` (a key of the deploy file)."""
    for task_id in ids:
        family, split, _ = [*task_id.split("/"), "", ""][:3]
        if family in tasks.FAMILIES and not tasks.FAMILIES[family].trained:
            raise ConfigError(f"{lane}: {task_id} is of {family}, which is never trained on: it belongs to tasks.eval")
        if split != TRAIN:
            raise ConfigError(f"{lane}: {task_id} is held out: only split {TRAIN} may be trained or demonstrated")


def _named(name: str, key: str, listed: list[str], *, trained: bool) -> tuple[str, ...]:
    known = [family.name for family in tasks.FAMILIES.values() if family.trained is trained]
    if ALL in listed:
        own = (family for family in known if family not in tasks.OTHERS)  # other packages change no suite
        return tuple(family for family in own if not tasks.FAMILIES[family].optional)
    for place, family in enumerate(listed):
        if family not in tasks.FAMILIES:
            raise ConfigError(f"{name}: {key}.{place}: there is no family {family}; {hint(family, tasks.FAMILIES)}")
        if family not in known:
            other = "untrained" if trained else "trained"
            said = "is never trained on" if trained else "is trained on"
            raise ConfigError(f"{name}: {key}.{place}: {family} {said}: list it below {other}")
    return tuple(dict.fromkeys(listed))


def untrained_families(families: Iterable[str], trained: Collection[str] = ()) -> frozenset[str]:
    """Those of `families` that are not `trained`; where nothing was trained, those that no suite trains on."""
    known = tasks.FAMILIES
    return frozenset(
        name for name in families if (name not in trained if trained else name in known and not known[name].trained)
    )
