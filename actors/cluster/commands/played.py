"""Looking at what was played."""

from __future__ import annotations

import argparse
from pathlib import Path

from actors.cluster.commands import Help, of_run, take_json, take_provider, take_run, take_runs
from runtime.program import program

EPISODES_HELP = Help(
    "list a run's episodes, or show one step by step",
    "List the episodes of a run, newest first, or show one: what the desktop showed, what the model answered, the"
    " action it became, what came of it and the verdict. Works while the run goes on and after it has ended.",
    "examples:\n"
    "  computerrl episodes last --failure --family file_manager\n"
    "  computerrl episodes last --phase rl --json\n"
    "  computerrl episodes show last g12.3\n"
    "  computerrl episodes show last g12.3 --tokens           each token with its log-probability\n"
    "  computerrl episodes show last eval.final.4 --html FILE.html   a page with the screenshots\n",
)
MOST = 40
RERUN_HELP = Help(
    "play a recorded episode again on a fresh desktop",
    "Give the recorded answers of an episode again, on a fresh desktop, and compare what comes of them: each\n"
    "observation, action and result, and the verdict.\n"
    "Exit status: 0 all came as recorded, 1 something did not or a fault broke it, 2 bad input.",
    "examples:\n  computerrl rerun last g12.3\n  computerrl rerun last eval.final.4 --json\n",
)
REVERIFY_HELP = Help(
    "judge kept end states again, after a verifier was mended",
    "Judge the end states of a run's episodes by the verifiers of today and say which verdicts change. No desktop is\n"
    "booted, and nothing of the run is changed. End states are kept for as long as an episode's steps are.\n"
    "Exit status: 0 every verdict is as recorded, 1 some are others, 2 bad input or nothing to judge.",
    "examples:\n  computerrl reverify last\n  computerrl reverify last --family calc --json\n",
)


def _episodes_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "computerrl episodes [-h] [options] RUN\n       computerrl episodes show [-h] [options] RUN EPISODE"
    named = "a run's name, a path, or `last`; `show RUN EPISODE` shows the episode of that trace or token"
    parser.add_argument("words", nargs="+", metavar="RUN", help=named)
    every = parser.add_argument_group("of a list")
    every.add_argument("--family", metavar="NAME", help="only tasks of this family")
    every.add_argument("--phase", metavar="NAME", help="only this phase or evaluation round: bc, rl, after_bc, ...")
    kinds = every.add_mutually_exclusive_group()
    for kind, what in (("success", "that succeeded"), ("failure", "that failed"), ("fault", "broken by a fault")):
        kinds.add_argument(f"--{kind}", dest="ending", action="store_const", const=kind, help=f"only episodes {what}")
    every.add_argument("--most", type=int, metavar="N", help=f"at most so many (default: {MOST})")
    one = parser.add_argument_group("of one episode")
    one.add_argument("--tokens", action="store_true", help="print the prompt, and each token with its log-probability")
    form = one.add_mutually_exclusive_group()
    form.add_argument("--html", metavar="FILE", help="write a page with the screenshots instead")
    form.add_argument("--json", action="store_true", help="print one JSON document, of a list as well")
    take_runs(parser)


def _episodes(args: argparse.Namespace) -> int:
    """List or show; 0, or 2 where there is no such episode."""
    from actors.cluster import paths
    from actors.cluster.runs import run_folder
    from actors.cluster.views import episodes
    from runtime.errors import ConfigError

    run, episode = _meant(args)
    found = run_folder.find(Path(args.runs), run)
    if episode is None:
        most = MOST if args.most is None else args.most
        if most < 1:
            raise ConfigError(f"--most {most}: it counts from 1")
        wanted = episodes.Wanted(family=args.family, phase=args.phase, ending=args.ending)
        return episodes.show_all(found, wanted, most=most, as_json=args.json)
    page = Path(args.html) if args.html is not None else None
    if page is not None:
        paths.refuse_no_file(page, "--html")
    return episodes.show_one(found, episode, tokens=args.tokens, page=page, as_json=args.json)


def _meant(args: argparse.Namespace) -> tuple[str, str | None]:
    """The run, and the episode where one is to be shown."""
    words = args.words
    if len(words) > 1 and (words[0] != "show" or len(words) != 3):
        forms = f"a list is  {program()} episodes RUN,  one of them  {program()} episodes show RUN EPISODE"
        args.parser.error(f"{' '.join(words)}: {forms}")
    *_, run, episode = words if len(words) > 1 else (words[0], None)
    strange = ("family", "phase", "ending", "most") if episode else ("tokens", "html")
    if given := [name for name in strange if getattr(args, name) not in (None, False)]:
        flag = args.ending if given[0] == "ending" else given[0]
        args.parser.error(
            f"--{flag} is of {'a list' if episode else f'one episode: {program()} episodes show RUN EPISODE'}"
        )
    return run, episode


def _rerun_arguments(parser: argparse.ArgumentParser) -> None:
    take_run(parser)
    named = "its trace, as `episodes` and `logs` name it, or its token"
    parser.add_argument("episode", metavar="EPISODE", help=named)
    take_provider(parser)
    take_runs(parser)
    take_json(parser)


def _reverify_arguments(parser: argparse.ArgumentParser) -> None:
    take_run(parser, default="last")
    parser.add_argument("--family", metavar="NAME", help="only tasks of this family")
    take_runs(parser)
    take_json(parser)


COMMANDS = {
    "episodes": (EPISODES_HELP, _episodes_arguments, _episodes),
    "rerun": (RERUN_HELP, _rerun_arguments, of_run("cluster.checks.played.rerun:show", "episode", "overrides")),
    "reverify": (REVERIFY_HELP, _reverify_arguments, of_run("cluster.checks.played.reverify:show", "family")),
}
