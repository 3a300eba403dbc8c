"""`computerrl serve-env`: desktops for other trainers."""

from __future__ import annotations

import argparse

from actors.cluster.commands import take_provider

SUMMARY = "serve tasks on desktops to other trainers, by the OpenEnv protocol"
DESCRIPTION = (
    "Serve tasks on real desktops by the OpenEnv protocol (reset, step, state), so that a trainer elsewhere in this\n"
    "machine can learn from them. A session is a WebSocket at /ws. reset takes task or seed; without them the tasks\n"
    "come in turn. The printed address holds the token that clients show. Needs the extra:\n"
    ".venv/bin/python -m pip install 'computerrl[openenv]'. Other machines reach it by ssh -L."
)
EXAMPLES = (
    "examples:\n"
    "  computerrl serve-env file_manager --count 64 --desktops 4\n"
    "  computerrl serve-env desktop --split held-out --count 5 --format published --screenshots\n"
)
PORT = 8610


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument("suite", metavar="SUITE", help="a suite, a family, or task files, as `computerrl tasks` has it")
    parser.add_argument("--split", choices=("train", "held-out"), default="train", help="which (default: train)")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="number of the first task (default: 0)")
    parser.add_argument("--count", type=int, default=64, metavar="N", help="tasks of each family (default: 64)")
    parser.add_argument("--desktops", type=int, default=2, metavar="N", help="sessions at once (default: 2)")
    parser.add_argument("--max-turns", type=int, default=12, metavar="N", help="answers at most (default: 12)")
    parser.add_argument(
        "--format", choices=("compact", "published"), default="compact", help="of prompts (default: compact)"
    )
    parser.add_argument(
        "--actions", choices=("both", "gui", "api"), default="both", help="what may be done (default: both)"
    )
    parser.add_argument("--screenshots", action="store_true", help="send a JPEG of the screen with each turn")
    parser.add_argument("--screen", metavar="WxH", help="the desktops' screen in pixels (default: 1280x720)")
    take_provider(parser)
    parser.add_argument("--port", type=int, default=PORT, metavar="N", help=f"port; 0 for a free one (default: {PORT})")


def main(args: argparse.Namespace) -> int:
    """Serve until interrupted."""
    from actors.front import serving

    return serving.main(args)
