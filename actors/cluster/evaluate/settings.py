"""From the arguments of `eval` to a deploy file.

Invariant: equal arguments give two evaluations equal settings: instances, prompt format, length of answers and
episodes. Where an argument is not given, a run is evaluated as it was trained.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster import output
from actors.cluster.config import deploy_files, lanes, suites, tasksets, typed_yaml
from actors.cluster.config.schema import DemonstrationsConfig, Deploy, ModelConfig, RunConfig
from actors.cluster.config.suggest import hint, nearest
from actors.cluster.evaluate import served
from actors.cluster.runs import run_folder
from actors.cluster.runs.weights import NamedWeights
from actors.desktop.config import PromptConfig, SshConfig
from actors.entropulse.config import EntropulseConfig, EvaluationConfig
from actors.replay.config import EVERY, ReplayConfig, TaskRange, TasksConfig
from actors.sampler.config import EmbeddedConfig, SamplersConfig, SglangConfig
from actors.settings import COLDEST
from apis.prompts import Form
from apis.prompts.template import Template
from apis.tasks import registry as families
from apis.tasks.words import HELD_OUT
from apis.tasksets import published
from runtime.errors import ConfigError
from runtime.program import program

GREEDY = "greedy"
HOTTEST = 100  # temperatures are below it
INSTANCES = 20  # per family
URL_TOKENS = 4096  # of an answer of a model at a URL, its reasoning included
TURN_S = 120.0  # of an episode's lease, for each answer of such a model
# Flag -> what it is without being given: all that decide what is played and how.
FLAGS: dict[str, Any] = {
    "at": "",
    "tasks": None,
    "like": None,
    "split": HELD_OUT,
    "instances": None,
    "first": 0,
    "untrained": False,
    "episodes": None,
    "decoding": GREEDY,
    "desktops": None,
    "format": None,
    "observation": None,
    "coordinates": None,
    "prompt": None,
    "max_turns": None,
    "seed": 0,
    "attach": [],
    "engine": None,
    "model_name": None,
    "api_key_env": None,
    "screen": None,
    "max_tokens": None,
    "overrides": [],
}


def filled(args: argparse.Namespace) -> argparse.Namespace:
    """`args` with the flags that were not given."""
    unsaid = {name: default for name, default in FLAGS.items() if getattr(args, name) is None}
    return argparse.Namespace(**{**vars(args), **unsaid})


def temperature(decoding: str) -> float:
    """`greedy`, or `t=NUMBER` from COLDEST to below HOTTEST, as a temperature. Raises ConfigError."""
    if decoding == GREEDY:
        return 0.0
    head, _, number = decoding.partition("=")
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if head.lower() == "t" and value == 0:
        raise ConfigError(f"--decoding {decoding}: temperature 0 is said as greedy")
    if head.lower() != "t" or not COLDEST <= value < HOTTEST:
        raise ConfigError(
            f"--decoding {decoding}: greedy, or t=T for a temperature from {COLDEST:g} to below {HOTTEST}, such as t=1"
        )
    return value


def deploy_of(args: argparse.Namespace, weights: NamedWeights) -> Deploy:
    """What evaluates `weights` as the arguments ask. Raises ConfigError."""
    args = filled(args)
    for name in ("instances", "episodes", "desktops", "max_turns", "max_tokens"):
        if (value := getattr(args, name)) is not None and value < 1:
            raise ConfigError(f"--{name.replace('_', '-')} is {value}: it counts from 1")
    heat = temperature(args.decoding)
    if heat == 0 and (args.episodes or 1) > 1:
        raise ConfigError(f"--episodes {args.episodes}: greedy episodes repeat each other; add --decoding t=1")
    like, url = _like(args, weights), served.is_url(args.model)
    ids = _tasks(args, like)
    turns = args.max_turns or like.tasks.max_turns
    usual = URL_TOKENS if url and not args.like else like.sampling.max_new_tokens
    tokens = args.max_tokens or usual
    seats = args.desktops or min(like.desktops.count, len(ids))
    parts = {
        "run": RunConfig(seed=args.seed, log_level=like.run.log_level),
        "model": ModelConfig(path=weights.folder, endpoint=served.endpoint_of(args, seats) if url else None),
        "prompt": _prompt(like.prompt, args, usual="published" if url and not args.like else like.prompt.format),
        "tasks": TasksConfig(eval=list(ids), max_turns=turns),
        "demos": DemonstrationsConfig(count=0),
        "desktops": msgspec.structs.replace(
            like.desktops,
            count=seats,
            processes=min(like.desktops.processes, seats),
            screen=args.screen or like.desktops.screen,
            screenshots="all" if args.osworld_out else like.desktops.screenshots,
            warm_pool=min(like.desktops.warm_pool if isinstance(like.desktops.provider, SshConfig) else 2, seats),
        ),
        "samplers": _samplers(like, args),
        "sampling": msgspec.structs.replace(like.sampling, eval_temperature=heat, max_new_tokens=tokens),
        "weight_sync": msgspec.structs.replace(like.weight_sync, transport="disk"),  # nothing is trained
        "replay": _patient(like, turns) if url else like.replay,
        "entropulse": EntropulseConfig(bc_steps=0, total_rl_steps=0, pulses=0),
        "evaluation": EvaluationConfig(episodes=args.episodes or 1, published_metrics=_published(ids, like)),
        "cluster": like.cluster,
    }
    # As plain values: sections are held against each other only once --set has had its say.
    return typed_yaml.build(msgspec.to_builtins(parts), Deploy, args.overrides, source="eval")


def _prompt(like: PromptConfig, args: argparse.Namespace, usual: Form) -> PromptConfig:
    template = (
        typed_yaml.read(_template_at(args.prompt), Template, name=f"--prompt {args.prompt}") if args.prompt else None
    )
    return PromptConfig(
        format=args.format or usual,
        action_space=like.action_space,
        observation=args.observation or like.observation,
        coordinates=args.coordinates or like.coordinates,
        template=template or like.template,
    )


def _template_at(name: str) -> Path:
    """The template called `name`: a path, or a bundled file's name. Raises ConfigError with the nearest name."""
    if Path(name).is_file():
        return Path(name)
    bundled = {path.stem: path for path in Path(str(resources.files("deploy"))).glob("prompts/*.yaml")}
    if name not in bundled:
        raise ConfigError(f"--prompt {name}: no such template; {hint(name, bundled)}")
    return bundled[name]


def _patient(like: Deploy, turns: int) -> ReplayConfig:
    """The ledger's rules where each answer may take `TURN_S` on its way to a server and back."""
    return msgspec.structs.replace(like.replay, lease_s=max(like.replay.lease_s, turns * TURN_S))


def _samplers(like: Deploy, args: argparse.Namespace) -> SamplersConfig:
    # A run's key is for its own servers.
    found = msgspec.structs.replace(like.samplers, attach=list(args.attach), api_key_env="")
    if args.engine is None:
        if like.samplers.attach and not args.attach:
            gone = "not again, for they may serve another's training: name servers by --attach, or say --engine"
            raise ConfigError(f"the run's answers were drawn by servers that it attached, {gone}")
        return found
    engine = SglangConfig() if args.engine == "sglang" else EmbeddedConfig()
    same = isinstance(found.engine, type(engine))
    return msgspec.structs.replace(found, engine=found.engine if same else engine)


def _like(args: argparse.Namespace, weights: NamedWeights) -> Deploy:
    """The deploy file whose settings stand where the arguments say nothing."""
    if args.like:
        runs = Path(args.runs)
        if (run := run_folder.look_up(runs, args.like)) is not None:
            return deploy_files.stored(run)
        try:
            deploy_files.locate(args.like)
        except ConfigError as error:
            raise ConfigError(f"--like {args.like}: no run in {runs}; {error}") from None
        return deploy_files.load(args.like, [one for one in args.overrides if _of_machines(one)])[0]
    return deploy_files.stored(Path(weights.run)) if weights.run else Deploy()


def _of_machines(override: str) -> bool:
    """Whether a --set says where parts run, which is another matter here than where the file's own job runs."""
    name = f"{override.partition('=')[0].strip()}."
    return any(name.startswith(f"{key}.") for key in ("cluster", *Deploy().places))


def _of_files(args: argparse.Namespace, like: Deploy) -> list[str]:
    """The task files of --tasks that can be played here; the others are counted on standard error."""
    if args.untrained or args.split != HELD_OUT:
        raise ConfigError("--split and --untrained choose from a suite: task files have neither")
    try:
        name = tasksets.set_of(args.tasks)
        wanted = TaskRange(set=name, count=args.instances or EVERY, first=args.first)
        asked = published.is_here() and not like.desktops.place
        ids, found = tasksets.chosen(wanted, published=asked), tasksets.verdicts(name, published=asked)
    except ConfigError as error:
        raise ConfigError(f"--tasks {args.tasks}: {error}") from None
    left = Counter(one.verdict for one in found if one.verdict != "runnable")
    offline = sum(one.verdict == "runnable" and not one.solvable for one in found)
    if offline:
        output.line(f"task set {name}: {offline} of these can't be solved without a network", to=sys.stderr)
    if left:
        said = ", ".join(f"{count} {verdict}" for verdict, count in left.most_common())
        playable = f"{len(found) - left.total()} of {len(found)} can be played here"
        output.line(f"task set {name}: {playable}; left out: {said}", to=sys.stderr)
    return ids


def _published(ids: list[str], like: Deploy) -> bool:
    """Whether the published package is asked: where it is here, and so are the desktops, and a task file is played."""
    return published.is_here() and not like.desktops.place and any(map(families.of_set, ids))


def _unfetched(name: str) -> str:
    """For a name that may be meant as a task set's: how one is fetched; as the end of an error's line."""
    known = [*suites.bundled(), *families.FAMILIES]
    if name in known or nearest(name, known) is not None:
        return ""
    if "/" in name:
        return "; nor is there a file or a folder"
    return f"; a task set is fetched by  {program()} tasks fetch {name} --from FOLDER"


def _tasks(args: argparse.Namespace, like: Deploy) -> list[str]:
    """The instances to play."""
    if args.tasks is None:
        ids = lanes.lanes_of(TasksConfig(eval=like.tasks.eval)).eval
        if not ids:
            raise ConfigError("nothing to play: name a suite or a family with --tasks, or a run or file with --like")
        if args.instances or args.untrained or args.split != HELD_OUT or args.first:
            raise ConfigError("--instances, --first, --split and --untrained choose from a suite: add --tasks SUITE")
        return ids
    if tasksets.is_of_files(args.tasks):
        return _of_files(args, like)
    try:
        suite = suites.load(args.tasks)
    except ConfigError as error:
        said = str(error).removeprefix(f"{args.tasks}: ")
        raise ConfigError(f"--tasks {args.tasks}: {said}{_unfetched(args.tasks)}") from None
    both = args.untrained or not suite.trained
    found: list[str] = []
    for family in (*suite.trained, *(suite.untrained if both else ())):
        if family in suite.trained or args.split == HELD_OUT:
            found += suite.ids(family, args.split, args.first, args.instances or INSTANCES)
    if not found:
        raise ConfigError(f"--split {args.split}: {args.tasks} has no such instances")
    return found
