"""`apis build`, `show`, `accept` and `try`: from arguments to a folder of functions that a run can use."""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec
import yaml
from msgspec.structs import replace

from actors.cluster import output, tables
from actors.cluster.build.paired import PairedTrial, Weighed
from actors.cluster.build.pipeline import FILE, BuildLedger, Built, Pipeline
from actors.cluster.build.trials import Trials
from actors.cluster.checks.desk import RealDesk, opened, provider, sandbox_set
from actors.cluster.checks.tasks import refuse_unless_fit
from actors.cluster.config import suites, tasksets
from actors.cluster.config.suggest import hint
from actors.cluster.evaluate import settings
from actors.desktop.config import key_of
from actors.desktop.endpoint import Endpoint
from actors.desktop.link import LinkDown
from actors.errors import DesktopFault
from actors.front.library import DesktopSettings
from actors.front.library import opened as opened_pool
from apis import built
from apis.applications import APP_NAMES, bring_built
from apis.apps.check.case import NotSo, table_of
from apis.built import Api
from apis.catalogue import TOOLS
from apis.tasks import osworld, registry
from apis.tasks.words import HELD_OUT
from runtime import disk
from runtime.errors import ConfigError
from runtime.program import program
from runtime.system import run as run_loop

PROFILES = Path(built.__file__).parent / "build/profiles"
EXEMPLARS_MOST, EXEMPLAR_CHARS = 200, 500
EACH = 4  # instances of each family of a suite
HELD = 20  # of each family of a paired trial
REPORT = "report.md"
HEAD = ("function", "verdict", "repairs", "tokens", "p50 ms", "p95 ms", "mutants noticed", "serves", "paired trial")
PLAYED = {
    "oracle": "each by the calls that the model planned and then by mouse and keyboard, and by these alone",
    "model": "each by the model with the function in its prompt, and without",
}


def build(args: argparse.Namespace) -> int:
    """Build functions; 0 where any was accepted."""
    api, exemplars = profile(args.app), read_exemplars(args.tasks)
    args.model = args.llm
    settings.refuse_nameless(args)
    if not settings.is_url(args.llm):
        raise ConfigError(f"--llm {args.llm}: a server writes functions: give its URL, as in http://127.0.0.1:30000/v1")
    config = replace(settings.endpoint_of(args, 1), timeout_s=600.0)
    held_out, folder = _held_out(api, args.trial), Path(args.out or f"apis-{api.app}")
    if (folder / FILE).exists() and not args.resume:
        raise ConfigError(f"{folder} has a build: --resume goes on with it, --out names another folder")
    if args.resume and not (folder / FILE).exists():
        raise ConfigError(f"--resume: {folder} has no build")
    refuse_unless_fit()
    settings.refuse_unanswering(config, picture=False)
    begun = msgspec.json.encode([api, exemplars, config.url, config.model, args.most, args.rounds, *held_out])
    ledger = BuildLedger(folder, hashlib.sha256(begun + args.trial_by.encode()).hexdigest())
    shown = output.Progress(as_json=args.json)

    async def work() -> list[Built]:
        endpoint, boxes = Endpoint(config, key_of(config, os.environ)), sandbox_set(args.overrides)
        async with provider(boxes) as desktops, opened_pool(DesktopSettings(provider=boxes)) as pool:
            played = PairedTrial(api, pool, endpoint if args.trial_by == "model" else None)
            desk = RealDesk(table_of(api, []), desktops)
            known = [function.name for function in TOOLS.get(api.app, ())]
            done = Pipeline(api, ledger, endpoint, Trials(api, desk).trial, shown.line, known, args.most, args.rounds)
            done.budget_tokens, done.plays, done.held_out = args.budget_tokens, played.play, held_out
            try:
                return await done.run(exemplars)
            finally:
                await desk.close()
                await endpoint.close()

    try:
        outcomes = run_loop(work())
        report = tables.TextTable(HEAD, [_row(each, ledger.spent(each.name)) for each in outcomes])
        tokens = ledger.spent()
    except (DesktopFault, LinkDown, NotSo, ConfigError) as error:
        raise ConfigError(f"{error}; nothing is lost: go on with --resume") from error
    finally:
        ledger.close()
    kept = sorted((each.made for each in outcomes if each.accepted and each.made), key=lambda made: made.name)
    head = f"{len(kept)} of {len(outcomes)} were accepted, for {len(exemplars)} tasks. The model's tokens: {tokens}."
    trial = f"Paired trial: {len(held_out)} held-out tasks, {PLAYED[args.trial_by]}. Turns are those with it less those"
    trial = f"{trial} without, a mean with its 95 % interval." if held_out else ""
    numbered = [f"{number}. {output.clean(text)}" for number, text in enumerate(exemplars, 1)]
    parts = [f"# Functions for {api.title}", head, tables.markdown(report), trial, "Tasks:", "\n".join(numbered)]
    built.put(folder / REPORT, ("\n\n".join(filter(None, parts)) + "\n").encode())
    if kept:
        built.write(folder, replace(api, functions=kept))
    if args.json:
        output.document(outcomes)
    else:
        tables.show(report)
    if kept and not args.json:
        output.line(f"\nlook at it:  {program()} apis show {folder}   then  {program()} apis accept {folder}")
    return 0 if kept else 1


def _row(each: Built, tokens: int) -> tuple[object, ...]:
    trial, verdict = each.trial, "accepted" if each.accepted else f"dropped: {output.clean(each.why)[:160]}"
    noticed = f"{trial.mutants - len(trial.missed)} of {trial.mutants}" if trial.mutants else "-"
    times = (f"{trial.p50_ms:.1f}", f"{trial.p95_ms:.1f}") if each.accepted else ("-", "-")
    serves = ", ".join(map(str, each.made.serves)) if each.made else ""
    return each.name, verdict, each.rounds, tokens or "-", *times, noticed, serves or "-", _weighed(each.weighed)


def _weighed(found: Weighed | None) -> str:
    if found is None or not found.tasks:
        return found.verdict if found else "-"
    low, high = found.turns_within or (float("nan"),) * 2
    turns = f"turns {found.turns:+.1f} ({low:+.1f} to {high:+.1f})"
    return f"{found.verdict}: {found.solved[1]} of {found.tasks} solved, {found.solved[0]} without; {turns}"


def show(args: argparse.Namespace) -> int:
    """Print what a folder declares, its code and its report; 0."""
    folder = Path(args.dir)
    api = built.read(folder)
    try:
        standing = f"accepted as {built.accepted(folder)}"
    except ConfigError as error:
        standing = str(error)
    output.line(f"{len(api.functions)} functions for {api.title}, digest {built.digest(folder)}, {standing}")
    if api.server:
        output.line(f"tools of an MCP server that this machine starts or asks: {shlex.join(api.server)}")
    output.line(f"given: {api.helpers or 'nothing'}; may import: {', '.join(api.imports) or 'nothing'}")
    for made, function in zip(api.functions, api.declared(), strict=True):
        output.line(f"\n{function.signature}\n  {function.description}")
        for param in function.params:
            output.line(f"  {param.name}: {param.told}")
        output.quoted(made.code.rstrip("\n"))
    if (report := folder / REPORT).is_file():
        output.line(f"\n{report}")
        output.quoted(disk.read_text(report).rstrip("\n"))
    return 0


def accept(args: argparse.Namespace) -> int:
    """Pin a folder as it is; 0."""
    folder = Path(args.dir)
    digest = built.accept(folder)
    output.line(f"accepted as {digest}")
    output.line(f"in a deploy file:  desktops: {{apis: [{folder}@{digest}]}}")
    output.line(f"elsewhere:  export {built.PLACES_ENV}={folder.absolute()}")
    return 0


def attempt(args: argparse.Namespace) -> int:
    """Run lines of one's own as a profile's snippets run, on one fresh desktop; 0 where none failed."""
    api = profile(args.app)
    api = replace(api, reads={f"line_{number}": lines for number, lines in enumerate(args.lines, 1)})
    refuse_unless_fit()

    async def work() -> int:
        failed = 0
        async with provider(sandbox_set(args.overrides)) as made, opened(made, table_of(api, [])) as desk:
            for name in api.reads:
                try:
                    output.quoted(await desk.call("tool", owner=built.PROFILE, name=f"read_{name}", arguments={}))
                except NotSo as refused:
                    failed = 1
                    output.quoted(str(refused))
        return failed

    try:
        return run_loop(work())
    except (DesktopFault, LinkDown, NotSo) as error:
        raise ConfigError(f"{args.app}: {error}") from error


def profile(name: str) -> Api:
    """A bundled application's profile, or the one in a YAML file. Raises ConfigError."""
    bundled = {file.stem: file for file in PROFILES.glob("*.yaml")}
    if name not in bundled and not name.endswith((".yaml", ".yml")):
        raise ConfigError(f"--app {name}: no profile of that name, and no YAML file; {hint(name, sorted(bundled))}")
    file = bundled.get(name, Path(name))
    try:
        made = msgspec.convert(yaml.safe_load(disk.read_text(file)), Api)
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{file}: {' '.join(str(error).split())}") from error
    bring_built(made.app, made.argv, made.windows)
    if made.app not in APP_NAMES:
        raise ConfigError(f"{file}: app {made.app}: none of {', '.join(APP_NAMES)}; another has argv and windows here")
    return made


def read_exemplars(names: Sequence[str]) -> list[str]:
    """Instructions: lines of a text file, or of a suite's or a folder's tasks. Raises ConfigError."""
    texts: list[str] = []
    for name in names:
        if name.endswith(".txt"):
            try:
                texts += [line.strip() for line in disk.read_text(Path(name)).splitlines() if line.strip()]
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"--tasks {name}: {getattr(error, 'strerror', None) or error}") from error
        elif tasksets.is_of_files(name):
            texts += [osworld.load(disk.read_bytes(file)).instruction for file in tasksets.files_at(name)]
        else:
            numbered = [f"{family}/train/{n}" for family in suites.load(name).trained for n in range(EACH)]
            texts += [registry.task(task_id).instruction for task_id in numbered]
    unique = list(dict.fromkeys(text[:EXEMPLAR_CHARS] for text in texts))
    if not unique:
        raise ConfigError("--tasks: there is no instruction in what it names")
    return unique[:EXEMPLARS_MOST]


def _held_out(api: Api, names: Sequence[str]) -> dict[str, str]:
    """Held-out tasks of suites or families by their ids, each with its instruction. Raises ConfigError."""
    found: dict[str, str] = {}
    for name in names:
        suite = suites.load(name)
        for family in suite.families:
            if api.app not in registry.FAMILIES[family].apps:
                raise ConfigError(f"--trial {name}: {family} has no task of {api.title}")
            ids = suite.ids(family, HELD_OUT, 0, HELD)
            found |= {task_id: registry.task(task_id).instruction for task_id in ids}
    return found
