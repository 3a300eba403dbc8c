"""`computerrl play`: one episode before a person's eyes, by the person or by a model.

Invariant: what can't be played or kept is refused before a desktop boots. The exit status is 0 only for a solved task.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from actors.cluster import output
from actors.cluster.config import deploy_files
from actors.cluster.evaluate import served
from actors.cluster.evaluate.settings import URL_TOKENS
from actors.cluster.runs import weights
from actors.cluster.web.serve import refuse_port
from actors.cluster.words import plain
from actors.desktop.endpoints.config import key_of
from actors.desktop.player import Play
from actors.errors import DesktopFault, GuestRefused
from actors.front import keeping, models
from actors.front.page import PlayPage
from actors.front.person import Person, read_line
from actors.front.playing import Policy, Seen, play
from actors.front.task import TaskHandle
from apis.actions.gui import Action
from apis.prompts import Form
from runtime.errors import ConfigError
from runtime.program import program
from runtime.system import run as run_loop

MODEL_TOKENS = 96  # of an answer of a model folder
PERSON, MODEL = "person", "model"  # who played, in a demonstration


def main(args: argparse.Namespace) -> int:
    """Play what the arguments ask for; 0 where it was solved, else 1."""
    task = TaskHandle(args.task)
    url = served.is_url(args.model)
    form: Form = "published" if url else "compact"
    if args.max_turns < 1:
        raise ConfigError(f"--max-turns is {args.max_turns}: it counts from 1")
    refuse_port(args.port, "--port")
    if args.max_tokens is not None and not args.model:
        raise ConfigError("--max-tokens is of a model's answer: add --model")
    if args.max_tokens is not None and args.max_tokens < 1:
        raise ConfigError(f"--max-tokens is {args.max_tokens}: it counts from 1")
    for name, flag in (("model_name", "--model-name"), ("api_key_env", "--api-key-env")):
        if getattr(args, name) and not url:
            raise ConfigError(f"{flag}: it goes with a server's URL as --model")
    if url and not args.model_name:
        raise ConfigError(f"--model {args.model}: name the model as that server calls it: --model-name NAME")
    if args.step and not args.model:
        raise ConfigError("--step waits for a key before each turn of a model: add --model")
    if url:
        served.refuse_unanswering(served.endpoint_of(args, 1), picture=False)
    file = Path(args.keep) if args.keep else None
    if file is not None:
        keeping.refuse_unkept(file, task.id, form, args.actions)
    try:
        played = run_loop(_played(args, task, form))
    except DesktopFault as fault:
        output.line(output.clean(f"broken by a fault, no verdict: {fault}"))
        return 1
    if file is not None and played.success:
        by = MODEL if args.model else PERSON
        count = keeping.keep(file, played, by=by, form=form, actions=args.actions)
        output.line(f"kept in {file}, which holds {count} demonstrations ({program()} demos show {file})")
    elif file is not None:
        output.line("not kept: only a solved task is a demonstration")
    return 0 if played.success else 1


async def _played(args: argparse.Namespace, task: TaskHandle, form: Form) -> Play:
    page, provider = PlayPage(task.instruction, args.max_turns), deploy_files.provider_set(args.overrides)
    async with _policy(args, task, form) as policy, page.served(args.port) as address:
        output.line(output.clean(f"task: {task.instruction}"))
        output.line(f"page: {address}   (a desktop boots; ? lists what can be done, Ctrl-C leaves)")
        if tunnel := over_ssh(address, os.environ):
            output.line(output.clean(tunnel))
        watched = WatchedPolicy(policy, page, by_model=bool(args.model), wait=args.step)
        settings: dict[str, Any] = {"screen": args.screen} if args.screen else {}
        found = await play(
            task, watched, max_turns=args.max_turns, form=form, actions=args.actions, provider=provider, **settings
        )  # fmt: skip
        assert found.outcome is not None, "play raises where there is no outcome"
        verdict = f"{'solved' if found.success else 'not solved'} ({plain(found.outcome.reason)}): {found.detail}"
        page.end(verdict)
        output.line(output.clean(f"verdict: {verdict}; {len(found.steps)} turns"))
        return found


def over_ssh(address: str, environment: Mapping[str, str]) -> str:
    """How the page at `address` is opened from where this terminal is; "" for a terminal of this machine."""
    came = environment.get("SSH_CONNECTION", "").split()
    if len(came) != 4:
        return ""
    port = urlsplit(address).port
    here = f"{environment.get('USER', 'USER')}@{came[2]}"
    return f"over SSH: first  ssh -NL {port}:127.0.0.1:{port} {here}  on your own machine, then open the page there"


class WatchedPolicy:
    """`policy`, each turn shown on the page and in the terminal."""

    def __init__(self, policy: Policy, page: PlayPage, *, by_model: bool, wait: bool) -> None:
        self._policy, self._page, self._by_model = policy, page, by_model
        self._wait = wait  # for Enter, until the end of input

    async def __call__(self, seen: Seen) -> str | Action:
        """What it says to a look; one that has no picture is shown without."""
        try:
            picture = await seen.screenshot()
        except GuestRefused:
            picture = b""
        self._page.show(seen, picture)
        output.line(f"\nturn {seen.step + 1}")
        output.quoted(seen.prompt)
        if self._wait:
            self._wait = await read_line(ask="Enter goes on: ") is not None
        said = self._policy(seen)
        answer = await said if isinstance(said, Awaitable) else said
        if self._by_model:
            output.line("answer")
            output.quoted(str(answer))
        return answer


@asynccontextmanager
async def _policy(args: argparse.Namespace, task: TaskHandle, form: Form) -> AsyncIterator[Policy]:
    if not args.model:
        yield Person(args.actions)
    elif form == "compact":
        found = weights.locate(args.model, Path(args.runs))
        yield models.of_folder(Path(found.folder), max_tokens=args.max_tokens or MODEL_TOKENS)
    else:
        config = served.endpoint_of(args, 1)
        tokens = args.max_tokens or URL_TOKENS
        async with models.of_endpoint(
            config, key_of(config, os.environ), task.instruction, form=form, actions=args.actions, max_tokens=tokens
        ) as policy:
            yield policy
