"""`computerrl episodes`: what was played in a run, and one episode step by step."""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "list a run's episodes, or show one step by step"
DESCRIPTION = (
    "List the episodes of a run, newest first, or show one: what the desktop showed, what the model answered, the"
    " action it became, what came of it and the verdict. Works while the run goes on and after it has ended."
)
EXAMPLES = (
    "examples:\n"
    "  computerrl episodes list last --failure --family file_manager\n"
    "  computerrl episodes list last --phase rl --json\n"
    "  computerrl episodes show last g12.3\n"
    "  computerrl episodes show last g12.3 --tokens           each token with its log-probability\n"
    "  computerrl episodes show last eval.final.4 --html FILE.html   a page with the screenshots\n"
)
MOST = 40


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    every = verbs.add_parser("list", help="list them", description=DESCRIPTION, epilog=EXAMPLES)
    _run(every)
    every.add_argument("--family", metavar="NAME", help="only tasks of this family")
    every.add_argument("--phase", metavar="NAME", help="only this phase or evaluation round: bc, rl, after_bc, ...")
    kinds = every.add_mutually_exclusive_group()
    for kind, what in (("success", "that succeeded"), ("failure", "that failed"), ("fault", "broken by a fault")):
        kinds.add_argument(f"--{kind}", dest="ending", action="store_const", const=kind, help=f"only episodes {what}")
    every.add_argument("--most", type=int, default=MOST, metavar="N", help=f"at most so many (default: {MOST})")
    every.add_argument("--json", action="store_true", help="print one JSON document")
    one = verbs.add_parser("show", help="show one step by step", description=DESCRIPTION, epilog=EXAMPLES)
    _run(one)
    one.add_argument(
        "episode", metavar="EPISODE", help="its trace, as `episodes list` and `logs` name it, or its token"
    )
    one.add_argument("--tokens", action="store_true", help="print the prompt, and each token with its log-probability")
    form = one.add_mutually_exclusive_group()
    form.add_argument("--html", metavar="FILE", help="write a page with the screenshots instead")
    form.add_argument("--json", action="store_true", help="print one JSON document")
    for verb in (every, one):
        verb.set_defaults(parser=verb)


def _run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="a run's name, a path, or `last`")
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where run folders are (default: runs)")


def main(args: argparse.Namespace) -> int:
    """List or show; 0, or 2 where there is no such episode."""
    from actors.cluster import paths
    from actors.cluster.runs import names
    from actors.cluster.views import episodes
    from runtime.errors import ConfigError

    if args.verb == "list" and args.most < 1:
        raise ConfigError(f"--most {args.most}: it counts from 1")
    run = names.find(Path(args.runs), args.run)
    if args.verb == "list":
        wanted = episodes.Wanted(family=args.family, phase=args.phase, ending=args.ending)
        return episodes.show_all(run, wanted, most=args.most, as_json=args.json)
    page = Path(args.html) if args.html is not None else None
    if page is not None:
        paths.refuse_no_folder(page, "--html")
    return episodes.show_one(run, args.episode, tokens=args.tokens, page=page, as_json=args.json)
