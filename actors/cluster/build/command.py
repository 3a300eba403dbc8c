"""`apis build`, `show`, `accept` and `check DIR`: from arguments to a folder of functions that a run can use."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from actors.cluster import output
from actors.cluster.build.paired import Counting, PairedTrial
from actors.cluster.build.pipeline import FILE, BuildLedger, Exchange, Pipeline
from actors.cluster.build.trials import BuildDesk, Trials
from actors.cluster.checks.desk import provider, sandbox_set
from actors.cluster.checks.tasks import refuse_unless_fit
from actors.cluster.config import suites, tasksets
from actors.cluster.config.schema import SeatsConfig
from actors.cluster.config.suggest import hint
from actors.cluster.evaluate import settings
from actors.desktop.config import EndpointConfig, key_of
from actors.desktop.link import LinkDown
from actors.errors import DesktopFault, GuestRefused
from apis import built
from apis.apps.check.case import NotSo
from apis.build import profile as profiles
from apis.build.answers import AnswerRefusedError, Cases, Interface, sound
from apis.build.judge import Built, Weighed
from apis.catalogue import TOOLS
from apis.tasks import osworld, registry
from apis.tasks.words import HELD_OUT
from runtime import disk
from runtime.errors import ConfigError
from runtime.program import program
from runtime.system import run as run_loop

EXEMPLARS_MOST, EXEMPLAR_CHARS = 200, 500
EACH = 4  # instances of each family of a suite
HELD = 20  # of each family of a paired trial


def build(args: argparse.Namespace) -> int:
    """Build functions; 0 where any was accepted."""
    profile = _profile(args.app)
    exemplars = read_exemplars(args.tasks)
    if not settings.is_url(args.model):
        raise ConfigError(
            f"MODEL {args.model}: a server writes functions: give its URL, as in http://127.0.0.1:30000/v1"
        )
    settings.refuse_nameless(args)
    config = EndpointConfig(url=args.model, model=args.model_name, key_env=args.api_key_env or "", timeout_s=600.0)
    held_out = _held_out(profile, args.trial)
    seats = SeatsConfig(count=1, screenshots="none", provider=sandbox_set(args.overrides))
    folder = Path(args.out or f"apis-{profile.app}")
    if (folder / FILE).exists() != args.resume:
        raise ConfigError(
            f"{folder} has a build: --resume goes on with it, --out names another folder"
            if (folder / FILE).exists()
            else f"--resume: {folder} has no build"
        )
    refuse_unless_fit()
    folder.mkdir(parents=True, exist_ok=True)
    described = [profile, exemplars, config.url, config.model, args.most, args.rounds, list(held_out), args.trial_by]
    begun = hashlib.sha256(msgspec.json.encode(described)).hexdigest()
    ledger = BuildLedger(folder, begun)
    shown = output.Progress(as_json=args.json)

    async def work() -> list[Built]:
        endpoint = Counting(config, key_of(config, os.environ))
        played = PairedTrial(profile, seats, endpoint if args.trial_by == "model" else None)
        async with provider(sandbox_set(args.overrides)) as made:
            trials = Trials(profile, made)
            known = [function.name for function in TOOLS.get(profile.app, ())]
            limits = {"rounds": args.rounds, "budget_tokens": args.budget_tokens}
            done = Pipeline(profile, ledger, endpoint, trials.trial, shown.line, known, args.most, **limits)
            done.plays, done.held_out = played.play, held_out
            try:
                outcomes = await done.run(exemplars)
                write(folder, profile, done, outcomes, ledger.exchanges(), exemplars, PLAYED[args.trial_by])
                return outcomes
            finally:
                await played.close()
                await trials.close()
                await endpoint.close()

    try:
        outcomes = run_loop(work())
        exchanges = ledger.exchanges()
    except (DesktopFault, LinkDown, NotSo) as error:
        raise ConfigError(f"{error}; nothing is lost: go on with --resume") from error
    finally:
        ledger.close()
    if args.json:
        output.document(outcomes)
    else:
        output.table(HEAD, rows(outcomes, exchanges))
        output.line(f"\nlook at it:  {program()} apis show {folder}   then  {program()} apis accept {folder}")
    return 0 if any(each.accepted for each in outcomes) else 1


def show(args: argparse.Namespace) -> int:
    """Print what a folder declares, its code and its report; 0."""
    folder = Path(args.dir)
    api = built.read(folder)
    output.line(f"{len(api.functions)} functions for {api.title}, digest {built.digest(folder)}, {_standing(folder)}")
    if api.server:
        output.line(f"tools of an MCP server that this machine starts or asks: {shlex.join(api.server)}")
    output.line(f"given: {api.helpers or 'nothing'}; may import: {', '.join(api.imports) or 'nothing'}")
    sources = built.sources(folder)
    for function in api.declared():
        output.line(f"\n{function.signature}\n  {function.description}")
        for param in function.params:
            output.line(f"  {param.name}: {param.told}")
        output.quoted(sources[function.name].rstrip("\n"))
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


def check(args: argparse.Namespace) -> int:
    """Run a folder's cases again on desktops; 0 where all pass."""
    folder = Path(args.dir)
    api = built.read(folder)
    profile = _profile(api.app if args.profile is None else args.profile)
    made = built.decoded(folder / built.CASES, dict[str, Cases])
    if lacking := sorted(set(api.functions) - set(made)):
        raise ConfigError(f"{folder / built.CASES}: no case calls {lacking[0]}")
    functions = {name: Interface(name, each.does, each.params) for name, each in api.functions.items()}
    for name, interface in functions.items():
        try:
            sound(made[name], interface, profile)
        except AnswerRefusedError as error:
            raise ConfigError(f"{folder / built.CASES}: {name}: {error}") from error
    refuse_unless_fit()
    shown = output.Progress(as_json=args.json)

    async def work() -> dict[str, str]:
        problems = {}
        async with provider(sandbox_set(args.overrides)) as desktops:
            trials = Trials(profile, desktops)
            try:
                for name, source in built.sources(folder).items():
                    shown.line(name)
                    problems[name] = await trials.checked(functions[name], source, made[name])
            finally:
                await trials.close()
        return problems

    problems = run_loop(work())
    output.table(("function", "verdict"), [(name, problem or "ok") for name, problem in problems.items()])
    return 1 if any(problems.values()) else 0


def attempt(args: argparse.Namespace) -> int:
    """Run lines of one's own as a profile's snippets run, on one fresh desktop; 0 where none failed."""
    profile = _profile(args.app)
    refuse_unless_fit()

    async def work() -> int:
        failed = 0
        async with provider(sandbox_set(args.overrides)) as made:
            desk = BuildDesk(profile, made)
            try:
                await desk.again()
                for lines in args.lines:
                    try:
                        output.quoted(await desk.read(lines))
                    except GuestRefused as refused:
                        failed = 1
                        output.quoted(f"{refused.kind}: {refused.text}")
            finally:
                await desk.close()
        return failed

    try:
        return run_loop(work())
    except (DesktopFault, LinkDown, NotSo) as error:
        raise ConfigError(f"{args.app}: {error}") from error


def read_exemplars(names: Sequence[str]) -> list[str]:
    """Instructions: lines of a text file, or of a suite's or a folder's tasks. Raises ConfigError."""
    texts: list[str] = []
    for name in names:
        path = Path(name)
        if path.suffix == ".txt":
            try:
                texts += [line.strip() for line in disk.read_text(path).splitlines() if line.strip()]
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"--tasks {name}: {error}") from error
        else:
            texts += _instructions(name)
    unique = list(dict.fromkeys(text[:EXEMPLAR_CHARS] for text in texts))
    if not unique:
        raise ConfigError("--tasks: there is no instruction in what it names")
    return unique[:EXEMPLARS_MOST]


def _instructions(name: str) -> list[str]:
    if tasksets.is_of_files(name):
        return [osworld.load(disk.read_bytes(file)).instruction for file in tasksets.files_at(name)]
    suite = suites.load(name)
    ids = [f"{family}/train/{number}" for family in suite.trained for number in range(EACH)]
    return [registry.task(task_id).instruction for task_id in ids]


def _held_out(profile: profiles.Profile, names: Sequence[str]) -> dict[str, str]:
    """Held-out tasks of suites or families by their ids, each with its instruction. Raises ConfigError."""
    found: dict[str, str] = {}
    for name in names:
        suite = suites.load(name)
        for family in suite.families:
            if profile.app not in registry.FAMILIES[family].apps:
                raise ConfigError(f"--trial {name}: {family} has no task of {profile.title}")
            ids = suite.ids(family, HELD_OUT, 0, HELD)
            found |= {task_id: registry.task(task_id).instruction for task_id in ids}
    return found


def _profile(name: str) -> profiles.Profile:
    if name in profiles.bundled():
        return profiles.load(profiles.BUNDLED / f"{name}.yaml")
    if name.endswith((".yaml", ".yml")):
        return profiles.load(Path(name))
    known = profiles.bundled()
    raise ConfigError(f"--app {name}: no profile of that name, and no YAML file; {hint(name, known)}")


def _standing(folder: Path) -> str:
    try:
        return f"accepted as {built.accepted(folder)}"
    except ConfigError as error:
        return str(error)


REPORT = "report.md"
TURNS = "Turns are those with it less those without, a mean with its 95 % interval."
PLAYED = {
    "oracle": "each by the calls that the model planned and then by mouse and keyboard, and by these alone",
    "model": "each by the model with the function in its prompt, and without",
}
HEAD = ("function", "verdict", "repairs", "tokens", "p50 ms", "p95 ms", "mutants noticed", "serves", "paired trial")


def write(  # noqa: PLR0917 - what a report is made of
    folder: Path,
    profile: profiles.Profile,
    done: Pipeline,
    outcomes: Sequence[Built],
    exchanges: Mapping[str, Exchange],
    exemplars: Sequence[str],
    played: str,
) -> None:
    """Write what `apis show`, `accept` and `check` read, the declaration last."""
    write_json(folder / built.CODE, {name: done.sources[name] for name in sorted(done.sources)})
    cases = {name: done.cases[name] for name in sorted(done.cases)}
    write_json(folder / built.CASES, cases)
    lines = [
        f"# Functions for {profile.title}",
        "",
        f"{len(done.sources)} of {len(outcomes)} were accepted, for {len(exemplars)} tasks. "
        f"{len(exchanges)} answers of the model{_tokens(list(exchanges.values()))}.",
        "",
        "| " + " | ".join(HEAD) + " |",
        "|" + "---|" * len(HEAD),
        *(
            "| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in row) + " |"
            for row in rows(outcomes, exchanges)
        ),
        *(["", f"Paired trial: {len(done.held_out)} held-out tasks, {played}. {TURNS}"] * bool(done.held_out)),
        "",
        "Tasks:",
        "",
        *(f"{number}. {_plain(text)}" for number, text in enumerate(exemplars, 1)),
    ]
    (folder / REPORT).write_text("\n".join(lines) + "\n")
    api = built.Api(
        profile.app,
        profile.owner,
        profile.title,
        profile.helpers,
        profile.imports,
        {name: built.BuiltFunction(each.does, each.params) for name, each in sorted(done.interfaces.items())},
        argv=profile.argv,
        windows=profile.windows,
    )
    write_json(folder / built.API, api)


def write_json(path: Path, value: object) -> None:
    """Write a file of a built folder."""
    path.write_text(json.dumps(msgspec.to_builtins(value), indent=1, ensure_ascii=False) + "\n")


def rows(outcomes: Sequence[Built], exchanges: Mapping[str, Exchange]) -> list[tuple[object, ...]]:
    """A row of `HEAD` for each interface."""
    made: list[tuple[object, ...]] = []
    for each in outcomes:
        own = [answer for key, answer in exchanges.items() if each.name in key.split()]
        trial, verdict = each.trial, "accepted" if each.accepted else f"dropped: {_plain(each.why)[:160]}"
        counts = [(a.read_tokens or 0) + (a.written_tokens or 0) for a in own if a.read_tokens is not None]
        noticed = f"{trial.noticed} of {trial.mutants}" if trial.mutants else "-"
        times = (f"{trial.p50_ms:.1f}", f"{trial.p95_ms:.1f}") if each.accepted else ("-", "-")
        serves = ", ".join(map(str, each.serves)) or "-"
        cells = (each.name, verdict, each.rounds, sum(counts) if counts else "-", *times, noticed, serves)
        made.append((*cells, _weighed(each.weighed)))
    return made


def _weighed(found: Weighed | None) -> str:
    if found is None or not found.tasks:
        return found.why if found else "-"
    low, high = found.turns_within or (float("nan"),) * 2
    turns = f"turns {found.turns:+.1f} ({low:+.1f} to {high:+.1f})"
    return f"{found.verdict}: {found.solved[1]} of {found.tasks} solved, {found.solved[0]} without; {turns}"


def _tokens(all_answers: Sequence[Exchange]) -> str:
    known = [each for each in all_answers if each.read_tokens is not None]
    if not known:
        return "; the server counts no tokens"
    read, written = (sum(getattr(each, name) or 0 for each in known) for name in ("read_tokens", "written_tokens"))
    return f", {read} tokens read and {written} written"


def _plain(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
