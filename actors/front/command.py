"""`computerrl play`: one episode, by a person at the terminal or by a model, and its place in a recording."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import os
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import torch

from actors.cluster import output
from actors.cluster import paths as places
from actors.cluster.config import deploy_files, models, suites
from actors.cluster.config.suggest import blamed
from actors.cluster.evaluate import settings as evaluated
from actors.cluster.output import plain
from actors.cluster.runs import weights
from actors.desktop.answers import Chat
from actors.desktop.config import EndpointConfig, key_of, screen_of
from actors.desktop.endpoint import Endpoint
from actors.desktop.player import Play
from actors.errors import DesktopFault, GuestRefused
from actors.front.library import Policy, Seen, TaskHandle, play
from actors.front.person import Person, PlayPage, read_line
from actors.replay.demos import demo_files
from actors.replay.demos.format import FORMAT, Demo, DemoStep, RecordingHeader, TaskAttempts
from actors.replay.messages import Sampling
from apis.actions.gui import Action
from apis.actions.spaces import ActionSpace
from apis.observation import OBSERVATION_VERSION
from apis.prompts import Form
from policy.architecture import read_architecture
from policy.engine.core import EngineCore, EngineOptions
from policy.engine.model import load_weights
from policy.engine.scheduler import Draw, Sequence
from policy.hf_folder import DTYPES
from policy.tokenizer import Tokenizer
from runtime.errors import ConfigError
from runtime.program import program
from runtime.system import run as run_loop

DTYPE = "float32"
MODEL_TOKENS = 96  # of an answer of a model folder
PERSON, MODEL = "person", "model"  # who played, in a demonstration


def main(args: argparse.Namespace) -> int:
    """Play what the arguments ask for; 0 where it was solved, else 1."""
    task = TaskHandle(args.task)
    form: Form = "published" if evaluated.is_url(args.model) else "compact"
    _refuse_flags(args)
    if evaluated.is_url(args.model):
        evaluated.refuse_unanswering(evaluated.endpoint_of(args, 1), picture=False)
    file = Path(args.keep) if args.keep else None
    if file is not None:
        refuse_unkept(file, task.id, form, args.actions)
    try:
        played = run_loop(_played(args, task, form))
    except DesktopFault as fault:
        output.line(output.clean(f"broken by a fault, no verdict: {fault}"))
        return 1
    if file is not None and played.success:
        count = keep(file, played, by=MODEL if args.model else PERSON, form=form, actions=args.actions)
        output.line(f"kept in {file}, which holds {count} demonstrations ({program()} demos show {file})")
    elif file is not None:
        output.line("not kept: only a solved task is a demonstration")
    return 0 if played.success else 1


def _refuse_flags(args: argparse.Namespace) -> None:
    """Raise ConfigError for a flag out of its range, or that does not go with the others."""
    url = evaluated.is_url(args.model)
    if args.max_tokens is not None and not args.model:
        raise ConfigError("--max-tokens is of a model's answer: add --model")
    for name, flag in (("model_name", "--model-name"), ("api_key_env", "--api-key-env")):
        if getattr(args, name) and not url:
            raise ConfigError(f"{flag}: it goes with a server's URL as --model")
    if args.model:
        evaluated.refuse_nameless(args)
    if args.step and not args.model:
        raise ConfigError("--step waits for a key before each turn of a model: add --model")
    if args.screen:
        with blamed("--screen: "):
            screen_of(args.screen)


async def _played(args: argparse.Namespace, task: TaskHandle, form: Form) -> Play:
    page, provider = PlayPage(task.instruction, args.max_turns), deploy_files.provider_set(args.overrides)
    async with _policy(args, task, form) as policy, page.served(args.port) as address:
        output.line(output.clean(f"task: {task.instruction}"))
        output.line(f"page: {address}   (a desktop boots; ? lists what can be done, Ctrl-C leaves)")
        if came := os.environ.get("SSH_CONNECTION", "").split():  # the peer's address and port, then ours
            port, here = urlsplit(address).port, f"{getpass.getuser()}@{came[2] if len(came) == 4 else 'HOST'}"
            output.line(output.clean(f"on your own machine:  ssh -NL {port}:127.0.0.1:{port} {here}"))
        watched = WatchedPolicy(policy, page, by_model=bool(args.model), wait=args.step)
        settings: dict[str, Any] = {"screen": args.screen} if args.screen else {}
        played = await play(
            task, watched, max_turns=args.max_turns, form=form, actions=args.actions, provider=provider, **settings
        )
        assert played.outcome is not None, "play raises where there is no outcome"
        verdict = f"{'solved' if played.success else 'not solved'} ({plain(played.outcome.reason)}): {played.detail}"
        page.end(verdict)
        output.line(output.clean(f"verdict: {verdict}; {len(played.steps)} turns"))
        return played


class WatchedPolicy:
    """`policy`, each turn shown on the page and in the terminal."""

    def __init__(self, policy: Policy, page: PlayPage, *, by_model: bool, wait: bool) -> None:
        self._policy, self._page, self._by_model = policy, page, by_model
        self._wait = wait  # for Enter, until the end of input

    async def __call__(self, seen: Seen) -> str | Action:
        try:
            picture = await seen.screenshot()
        except GuestRefused:
            picture = b""
        self._page.show(seen, picture)
        output.line(f"\nturn {seen.step + 1}")
        output.quoted(seen.prompt)
        if self._wait:
            self._wait = await read_line(ask="Enter goes on: ") is not None
        coming = self._policy(seen)
        answer = await coming if isinstance(coming, Awaitable) else coming
        if self._by_model:
            output.line("answer")
            output.quoted(str(answer))
        return answer


@asynccontextmanager
async def _policy(args: argparse.Namespace, task: TaskHandle, form: Form) -> AsyncIterator[Policy]:
    if not args.model:
        yield Person(args.actions)
    elif form == "compact":
        named = weights.locate(args.model, Path(args.runs))
        yield of_folder(Path(named.folder), max_tokens=args.max_tokens or MODEL_TOKENS)
    else:
        config = evaluated.endpoint_of(args, 1)
        tokens = args.max_tokens or evaluated.URL_TOKENS
        async with of_endpoint(
            config, key_of(config, os.environ), task.instruction, form=form, actions=args.actions, max_tokens=tokens
        ) as policy:
            yield policy


def of_folder(folder: Path, *, max_tokens: int = MODEL_TOKENS) -> Policy:
    """The model of a Hugging Face folder, drawn on the CPU; greedy.

    An answer has as many tokens as the prompt leaves of the model's context, `max_tokens` at most. Where it leaves none
    the answer says so: that is no action, and costs the turn.
    """
    arch, tokenizer = read_architecture(folder), Tokenizer.load(folder)
    options = EngineOptions(model_path=str(folder), dtype=DTYPE, max_running_requests=1, context_length=arch.context)
    core = EngineCore(options, load_weights(folder, torch.device("cpu"), DTYPES[DTYPE]))
    stops = frozenset({*arch.eos_ids, *tokenizer.stop_ids})

    def draw(seen: Seen) -> str:
        ids = seen.prompt_ids(tokenizer)
        room = arch.context - len(ids)
        if room < 1:
            return f"the prompt has {len(ids)} tokens, and the model takes {arch.context}"
        drawn = Draw(min(max_tokens, room), 0.0, stops, 0)
        answer = Sequence(rid=str(seen.step), ids=list(ids), draw=drawn)
        core.submit([answer])
        while answer.finish is None:
            core.step()
        return tokenizer.decode([token for token in answer.output if token not in stops])

    return lambda seen: asyncio.to_thread(draw, seen)


@asynccontextmanager
async def of_endpoint(
    config: EndpointConfig, key: str, instruction: str, *, form: Form, actions: ActionSpace, max_tokens: int
) -> AsyncIterator[Policy]:
    """The model behind a URL, for one episode of a task with this instruction; greedy.

    The policy raises DesktopFault where the server does not answer.
    """
    endpoint = Endpoint(config, key)
    chat = Chat(endpoint, Sampling(temperature=0.0, max_new_tokens=max_tokens), instruction, form, actions)

    async def ask(seen: Seen) -> str:
        return (await chat.asked(seen.step, seen.observation, seen.history, seen.last, seen.step)).text

    try:
        yield ask
    finally:
        await endpoint.close()


def refuse_unkept(file: Path, task: str, form: Form, actions: ActionSpace) -> None:
    """Raise ConfigError where an episode of `task` could not be kept in `file`, before it is played."""
    suites.refuse_for_training("--keep", [task])
    places.refuse_no_file(file, "--keep")
    with blamed("--keep "):
        demo_files.refuse_unwritable(file)
    if file.exists():
        _read_own(file, _header(form, actions))


def keep(file: Path, played: Play, *, by: str, form: Form, actions: ActionSpace) -> int:
    """Add the episode to the recording `file`, or begin one; how many demonstrations it holds then.

    `by` says who played. Raises ConfigError where it was not solved or the recording is of another kind.
    """
    if played.outcome is None or not played.success:
        raise ConfigError(f"{played.task}: only a solved task is a demonstration")
    by_whom = (msgspec.structs.replace(payload, by=by) for payload in played.steps)
    steps = [DemoStep.of(payload, well_formed=payload.refusal is None) for payload in by_whom]
    reason, wall_s = played.outcome.reason, played.wall_s
    demo = Demo(task=played.task, route="", member=by, reason=reason, wall_s=wall_s, busy_s=wall_s, steps=steps)
    if problem := demo_files.unfit(demo):
        raise ConfigError(f"{played.task}: {problem}")
    header, before = _header(form, actions), list[Demo]()
    if file.exists():
        header, before = _read_own(file, header)
    with blamed("--keep "):
        tried = {attempts.task: attempts for attempts in header.tasks}
        old = tried.get(demo.task, TaskAttempts(task=demo.task, tries=0, wins=0))
        tried[demo.task] = msgspec.structs.replace(old, tries=old.tries + 1, wins=old.wins + 1)
        header = msgspec.structs.replace(header, demos=len(before) + 1, tasks=list(tried.values()))
        demo_files.write(file, header, [*before, demo])
    return header.demos


def _header(form: Form, actions: ActionSpace) -> RecordingHeader:
    tokenizer = models.fingerprint(models.bundled())
    seen = (OBSERVATION_VERSION,)
    return RecordingHeader(format=FORMAT, tokenizer=tokenizer, form=form, actions=actions, observations=seen, demos=0)


def _read_own(file: Path, wanted: RecordingHeader) -> tuple[RecordingHeader, list[Demo]]:
    """The recording `file`, whole. Raises ConfigError unless its header agrees with `wanted`."""
    with blamed("--keep "):
        header, demos = demo_files.read(file)
        whole = list(demos)
    for name in ("tokenizer", "form", "actions", "observations"):
        if getattr(header, name) != getattr(wanted, name):
            differs = f"{getattr(header, name)}, this episode has {getattr(wanted, name)}"
            raise ConfigError(f"--keep {file}: that recording's {name} is {differs}: name another file")
    return header, whole
