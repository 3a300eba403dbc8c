"""`computerrl episodes`: what was played in a run, and one episode step by step."""

from __future__ import annotations

import argparse
from pathlib import Path

from runtime.program import program

SUMMARY = "list a run's episodes, or show one step by step"
DESCRIPTION = (
    "List the episodes of a run, newest first, or show one: what the desktop showed, what the model answered, the"
    " action it became, what came of it and the verdict. Works while the run goes on and after it has ended."
)
EXAMPLES = (
    "examples:\n"
    "  computerrl episodes last --failure --family file_manager\n"
    "  computerrl episodes last --phase rl --json\n"
    "  computerrl episodes show last g12.3\n"
    "  computerrl episodes show last g12.3 --tokens           each token with its log-probability\n"
    "  computerrl episodes show last eval.final.4 --html FILE.html   a page with the screenshots\n"
)
MOST = 40


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
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
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where run folders are (default: runs)")


def main(args: argparse.Namespace) -> int:
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
