"""`computerrl play`: play a task by hand, or watch a model play it."""

from __future__ import annotations

import argparse

from actors.cluster.commands import MODEL, take_provider, take_served_model

SUMMARY = "play a task by hand, or watch a model play it"
DESCRIPTION = (
    "Play one task on a real desktop: the screen as text and as a page on this machine, one line an action, ? for\n"
    "what can be done, the verdict at the end. With --model a model plays and you look on. With --keep a solved\n"
    "training task becomes a demonstration, in a recording that demos.source of a deploy file takes.\n"
    "Exit status: 0 solved, 1 not solved or broken by a fault, 2 bad input, 130 interrupted."
)
EXAMPLES = (
    "examples:\n"
    "  computerrl play file_manager\n"
    "  computerrl play file_manager/train/3 --keep mine.parquet\n"
    "  computerrl play text_editor/held-out/0 --model last --step\n"
    "  computerrl play calc_cell/held-out/0 --model http://127.0.0.1:30000/v1 --model-name NAME\n"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument("task", metavar="TASK", help="FAMILY/SPLIT/NUMBER (FAMILY: its first), or SET/DOMAIN/ID")
    parser.add_argument("--keep", metavar="FILE", help="add a solved episode to this .parquet recording")
    parser.add_argument("--model", metavar="MODEL", help=f"{MODEL}, or a server's URL")
    take_served_model(parser.add_argument_group("a model at a URL"))
    parser.add_argument("--max-tokens", type=int, metavar="N", help="of a model's answer (default: 96, of a URL 4096)")
    parser.add_argument("--step", action="store_true", help="wait for Enter before each turn of a model")
    parser.add_argument("--max-turns", type=int, default=50, metavar="N", help="answers at most (default: 50)")
    parser.add_argument(
        "--actions", choices=("both", "gui", "api"), default="both", help="what may be done (default: both)"
    )
    parser.add_argument("--screen", metavar="WxH", help="the desktop's screen in pixels (default: 1280x720)")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="of the page (default: any free one)")
    take_provider(parser)
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where run folders are (default: runs)")


def main(args: argparse.Namespace) -> int:
    """Play it; 0 where it was solved."""
    from actors.front import command

    return command.main(args)
