"""From the arguments of `eval`, a model behind a URL among them, to a deploy file.

Equal arguments give two evaluations equal settings. What is not given comes from the run, but for decoding (greedy) and
episodes (one each). An endpoint that can't answer is refused before anything is started; its key is in no file.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import re
import sys
from collections import Counter
from collections.abc import Sequence
from http import HTTPStatus
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster import output
from actors.cluster.commands import flag_of
from actors.cluster.config import deploy_files, lanes, suites, tasksets, typed_yaml
from actors.cluster.config.schema import DemonstrationsConfig, Deploy, ModelConfig, RunConfig
from actors.cluster.config.suggest import hint, nearest
from actors.cluster.runs import run_folder
from actors.cluster.runs.weights import NamedWeights
from actors.desktop.answers import pictured
from actors.desktop.config import EndpointConfig, PromptConfig, RemoteConfig, key_of
from actors.desktop.endpoint import Endpoint, EndpointDown
from actors.desktop.provider import has_root
from actors.entropulse.config import EntropulseConfig, EvaluationConfig
from actors.replay.config import EVERY, TaskRange, TasksConfig
from actors.sampler.config import SamplersConfig
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
_NO_DEFAULT = (
    "tasks like instances episodes desktops format observation coordinates prompt max_turns model_name"
    " api_key_env screen max_tokens"
)
FLAGS: dict[str, Any] = {
    **dict.fromkeys(_NO_DEFAULT.split()),
    "at": "",
    "split": HELD_OUT,
    "first": 0,
    "untrained": False,
    "decoding": GREEDY,
    "overrides": [],
}

MODEL_FLAG = "--model-name"
TRIAL_TOKENS = 16  # some servers refuse fewer
TRIAL_SIDE = 64  # pixels
ASKED = "Answer with one word: ready?"
OF_URLS = ("model_name", "api_key_env", "observation", "coordinates", "prompt")
_HOST = re.compile(r"(?:localhost|[\w-]+(?:\.[\w-]+)+)(?::\d+|/v1(?:/|$))|[\w-]+:\d+(?:/|$)")  # without a scheme


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
        raise ConfigError(f"--decoding {decoding}: temperature 0 is named greedy")
    if head.lower() != "t" or not COLDEST <= value < HOTTEST:
        raise ConfigError(
            f"--decoding {decoding}: greedy, or t=T for a temperature from {COLDEST:g} to below {HOTTEST}, such as t=1"
        )
    return value


def deploy_of(args: argparse.Namespace, weights: NamedWeights) -> Deploy:
    """What evaluates `weights` as the arguments ask. Raises ConfigError."""
    args = filled(args)
    heat = temperature(args.decoding)
    if heat == 0 and (args.episodes or 1) > 1:
        raise ConfigError(f"--episodes {args.episodes}: greedy episodes repeat each other; add --decoding t=1")
    like, url = _like(args, weights), is_url(args.model)
    ids = _tasks(args, like)
    turns = args.max_turns or like.tasks.max_turns
    usual = URL_TOKENS if url and not args.like else like.sampling.max_new_tokens
    tokens = args.max_tokens or usual
    seats = args.desktops or min(like.desktops.count, len(ids))
    # Each answer of a server may take `TURN_S` on its way and back.
    lease_s = max(like.replay.lease_s, turns * TURN_S) if url else like.replay.lease_s
    ask_published = published.is_here() and not like.desktops.place and any(map(families.of_set, ids))
    # What a task set's files ask for may change by itself.
    remembers = not any(map(families.of_set, ids))
    prompt = _prompt(like.prompt, args, usual="published" if url and not args.like else like.prompt.format)
    parts = {
        "run": RunConfig(log_level=like.run.log_level),
        "model": ModelConfig(path=weights.folder, endpoint=endpoint_of(args, seats) if url else None),
        "prompt": prompt,
        "tasks": TasksConfig(eval=list(ids), max_turns=turns),
        "demos": DemonstrationsConfig(count=0),
        "desktops": msgspec.structs.replace(
            like.desktops,
            count=seats,
            processes=min(like.desktops.processes, seats),
            screen=args.screen or like.desktops.screen,
            memo=like.desktops.memo if remembers and prompt.format == "compact" else "off",
            warm_pool=min(like.desktops.warm_pool if isinstance(like.desktops.provider, RemoteConfig) else 2, seats),
        ),
        "samplers": _samplers(like, args.overrides),
        "sampling": msgspec.structs.replace(like.sampling, eval_temperature=heat, max_new_tokens=tokens),
        "weight_sync": msgspec.structs.replace(like.weight_sync, transport="disk"),  # nothing is trained
        "replay": msgspec.structs.replace(like.replay, lease_s=lease_s),
        "entropulse": EntropulseConfig(bc_steps=0, total_rl_steps=0, pulses=0),
        "evaluation": EvaluationConfig(episodes=args.episodes or 1, published_metrics=ask_published),
        "cluster": like.cluster,
    }
    # As plain values: sections are checked against each other only after --set.
    return typed_yaml.build(msgspec.to_builtins(parts), Deploy, args.overrides, source="eval")


def _prompt(like: PromptConfig, args: argparse.Namespace, usual: Form) -> PromptConfig:
    template = None
    if args.prompt:  # a path, or a bundled file's name
        bundled = {path.stem: path for path in Path(str(resources.files("deploy"))).glob("prompts/*.yaml")}
        if args.prompt not in bundled and not Path(args.prompt).is_file():
            raise ConfigError(f"--prompt {args.prompt}: no such template; {hint(args.prompt, bundled)}")
        file = Path(args.prompt) if Path(args.prompt).is_file() else bundled[args.prompt]
        template = typed_yaml.read(file, Template, name=f"--prompt {args.prompt}")
    return PromptConfig(
        format=args.format or usual,
        action_space=like.action_space,
        observation=args.observation or like.observation,
        coordinates=args.coordinates or like.coordinates,
        template=template or like.template,
    )


def _samplers(like: Deploy, overrides: Sequence[str]) -> SamplersConfig:
    if like.samplers.attach and not any(override.startswith("samplers.") for override in overrides):
        raise ConfigError(
            "the run's answers were drawn by servers that it attached, not again, for they may serve another's"
            " training: name servers by --set samplers.attach=[URL], or one engine by --set samplers.engine"
        )
    # A run's servers, and the key for them, are its own.
    return msgspec.structs.replace(like.samplers, attach=[], api_key_env="")


def _like(args: argparse.Namespace, weights: NamedWeights) -> Deploy:
    if args.like:
        runs = Path(args.runs)
        if (run := run_folder.look_up(runs, args.like)) is not None:
            return deploy_files.stored(run)
        try:
            deploy_files.locate(args.like)
        except ConfigError as error:
            raise ConfigError(f"--like {args.like}: no run in {runs}; {error}") from None
        return deploy_files.load(args.like, list(filter(_of_machines, args.overrides)))[0]
    return deploy_files.stored(Path(weights.run)) if weights.run else Deploy()


def _of_machines(override: str) -> bool:
    name = f"{override.partition('=')[0].strip()}."
    return any(name.startswith(f"{key}.") for key in ("cluster", *Deploy().places))


def _of_files(args: argparse.Namespace, like: Deploy) -> list[str]:
    """The task files of --tasks that can be played here; the others are counted on standard error."""
    if args.untrained or args.split != HELD_OUT:
        raise ConfigError("--split and --untrained choose from a suite: task files have neither")
    try:
        name = tasksets.set_of(args.tasks)
        wanted = TaskRange(set=name, count=args.instances or EVERY, first=args.first)
        there = {"published": published.is_here() and not like.desktops.place}
        there["root"] = has_root(like.desktops.provider)
        ids, verdicts = tasksets.chosen(wanted, **there), tasksets.verdicts(name, **there)
    except ConfigError as error:
        raise ConfigError(f"--tasks {args.tasks}: {error}") from None
    left = Counter(verdict.verdict for verdict in verdicts if verdict.verdict != "runnable")
    offline = sum(verdict.verdict == "runnable" and not verdict.solvable for verdict in verdicts)
    if offline:
        output.line(f"task set {name}: {offline} of these can't be solved without a network", to=sys.stderr)
    if left:
        causes = ", ".join(f"{count} {verdict}" for verdict, count in left.most_common())
        playable = f"{len(verdicts) - left.total()} of {len(verdicts)} can be played here"
        output.line(f"task set {name}: {playable}; left out: {causes}", to=sys.stderr)
    return ids


def _tasks(args: argparse.Namespace, like: Deploy) -> list[str]:
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
        why, known = str(error).removeprefix(f"{args.tasks}: "), [*suites.bundled(), *families.FAMILIES]
        if nearest(args.tasks, known) is None:  # it may be meant as a task set's name
            fetch = f"; a task set is fetched by  {program()} tasks fetch {args.tasks} --from FOLDER"
            why += "; nor is there a file or a folder" if "/" in args.tasks else fetch
        raise ConfigError(f"--tasks {args.tasks}: {why}") from None
    untrained = suite.untrained if (args.untrained or not suite.trained) and args.split == HELD_OUT else ()
    each = args.instances or INSTANCES
    played = (*suite.trained, *untrained)
    ids = [task for family in played for task in suite.ids(family, args.split, args.first, each)]
    if not ids:
        raise ConfigError(f"--split {args.split}: {args.tasks} has no such instances")
    return ids


def is_url(model: str | None) -> bool:
    """Whether MODEL is a server's address."""
    return model is not None and "://" in model


def refuse_nameless(args: argparse.Namespace) -> None:
    """Raise ConfigError for a server's address without its scheme, or without the name of the model there."""
    if _HOST.match(args.model):
        raise ConfigError(f"MODEL {args.model}: a server's URL begins with its scheme, as in http://{args.model}")
    if is_url(args.model) and not args.model_name:
        raise ConfigError(f"MODEL {args.model}: name the model as that server calls it: {MODEL_FLAG} NAME")


def refuse_misplaced(args: argparse.Namespace) -> None:
    """Raise ConfigError for a flag that says nothing of this kind of model."""
    url = is_url(args.model)
    refuse_nameless(args)
    for name in ("at",) if url else OF_URLS:
        if getattr(args, name) not in (None, []):
            models = "a run or a model folder" if url else "a server's URL, such as http://127.0.0.1:30000/v1"
            raise ConfigError(f"{flag_of(name)}: it goes with {models}, and MODEL is {args.model}: leave it out")


def named(args: argparse.Namespace) -> NamedWeights:
    """What the evaluation calls it."""
    return NamedWeights(folder="", name=f"{args.model_name} at {args.model}")


def endpoint_of(args: argparse.Namespace, seats: int) -> EndpointConfig:
    """The endpoint that the arguments name, for `seats` episodes at once. Raises ConfigError."""
    key = args.api_key_env or ""
    endpoint = EndpointConfig(url=args.model, model=args.model_name, key_env=key, concurrent=seats, timeout_s=180.0)
    return msgspec.structs.replace(endpoint, retries=5, first_backoff_s=1.0, longest_backoff_s=60.0)


def refuse_unanswering(config: EndpointConfig, *, picture: bool) -> None:
    """Raise ConfigError unless the endpoint answers a short question now, with a `picture` if it will be shown any."""
    key = key_of(config, os.environ)
    once = msgspec.structs.replace(config, retries=1, timeout_s=min(config.timeout_s, 60.0))

    async def ask() -> None:
        endpoint = Endpoint(once, key)
        try:
            question = [{"role": "user", "content": pictured(ASKED, _blank(), first=True) if picture else ASKED}]
            await endpoint.complete(question, seed=0, temperature=0.0, max_tokens=TRIAL_TOKENS)
        except EndpointDown as error:
            served = await endpoint.models() if error.status else []
            todo = _mended_by(config, error, served, picture=picture)
            raise ConfigError(f"MODEL {config.url}: {error.detail} ({error.cause}){todo}") from None
        finally:
            await endpoint.close()

    asyncio.run(ask())


def _mended_by(config: EndpointConfig, error: EndpointDown, served: list[str], *, picture: bool) -> str:
    """What to do about `error` of an endpoint that lists the models `served`, as the end of its line."""
    if error.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        key = f"the key in {config.key_env} is not taken" if config.key_env else "it wants a key"
        return f"; {key}: --api-key-env names the variable that holds it"
    if served and config.model not in served:
        there = [ascii(name)[1:-1] for name in served]
        return f"; {MODEL_FLAG} {config.model}: it serves no such model, {hint(config.model, there)}"
    if error.cause == "endpoint_silent":
        return "; start that server, or mend its host and port"
    if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED) or error.cause == "endpoint_malformed":
        return "; an OpenAI-compatible server's URL mostly ends in /v1: mend it, or the model's name"
    if picture and error.status:
        return "; where the model takes no pictures, leave --observation out"
    return ""


def _blank() -> bytes:
    """A white PNG, large enough for models that refuse tiny ones."""
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (TRIAL_SIDE, TRIAL_SIDE), "white").save(out, "PNG")
    return out.getvalue()
