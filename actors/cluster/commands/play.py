"""Episodes one at a time: by hand, for another trainer, or a single answer."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from actors.cluster.commands import MODEL, Help, later, take_json, take_provider, take_runs, take_served_model
from apis.applications import ALIASES, APP_NAMES

if TYPE_CHECKING:
    from apis.actions.spaces import ActionSpace

PLAY_HELP = Help(
    "play a task by hand, or watch a model play it",
    "Play one task on a real desktop: the screen as text and as a page on this machine, one line an action, ? for\n"
    "what can be done, the verdict at the end. With --model a model plays and you look on. With --keep a solved\n"
    "training task becomes a demonstration, in a recording that demos.source of a deploy file takes.\n"
    "Exit status: 0 solved, 1 not solved or broken by a fault, 2 bad input, 130 interrupted.",
    "examples:\n"
    "  computerrl play file_manager\n"
    "  computerrl play file_manager/train/3 --keep mine.parquet\n"
    "  computerrl play text_editor/held-out/0 --model last --step\n"
    "  computerrl play calc_cell/held-out/0 --model http://127.0.0.1:30000/v1 --model-name NAME\n",
)
SERVE_ENV_HELP = Help(
    "serve tasks on desktops to other trainers, by the OpenEnv protocol",
    "Serve tasks on real desktops by the OpenEnv protocol (reset, step, state), so that a trainer elsewhere in this\n"
    "machine can learn from them. A session is a WebSocket at /ws. reset takes task or seed; without them the tasks\n"
    "come in turn. The printed address holds the token that clients show. Needs the extra:\n"
    ".venv/bin/python -m pip install 'computerrl[openenv]'. Other machines reach it by ssh -L.",
    "examples:\n"
    "  computerrl serve-env file_manager --count 64 --desktops 4\n"
    "  computerrl serve-env desktop --split held-out --count 5 --format published --screenshots\n",
)
SERVE_ENV_PORT = 8610
PARSE_HELP = Help(
    "parse a model's answer",
    "Print the typed action that a model's answer means, or the refusal with its reason.\n"
    "Exit status 0 for an action, 2 for a refusal. Nothing is evaluated and nothing runs.",
    "examples:\n"
    "  echo \"Agent.type(text='kiwi')\" | computerrl parse --app text_editor\n"
    "  computerrl parse --app calc \"CalcTools.set_cell(cell='B2', value='7')\"\n"
    "  computerrl parse --app libreoffice_calc --json < answer.txt\n",
)
MAX_BYTES = 1 << 20


def _play_arguments(parser: argparse.ArgumentParser) -> None:
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
    take_runs(parser)


def _serve_env_arguments(parser: argparse.ArgumentParser) -> None:
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
    parser.add_argument(
        "--port",
        type=int,
        default=SERVE_ENV_PORT,
        metavar="N",
        help=f"port; 0 for a free one (default: {SERVE_ENV_PORT})",
    )


def _parse_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("answer", metavar="ANSWER", nargs="?", help="the answer (default: standard input)")
    parser.add_argument(
        "--app", required=True, metavar="APP", help=f"one of {', '.join(APP_NAMES)}; also calc, chrome, ..."
    )
    parser.add_argument(
        "--actions", choices=("both", "gui", "api"), default="both", help="actions that the agent has (default: both)"
    )
    take_json(parser)


def _parse(args: argparse.Namespace) -> int:
    """Parse the answer; 0 or 2."""
    import sys

    from actors.cluster import output
    from actors.cluster.config.suggest import hint
    from runtime.errors import ConfigError

    app = ALIASES.get(args.app, args.app)
    if app not in APP_NAMES:
        raise ConfigError(f"--app {args.app}: no such application; {hint(args.app, [*APP_NAMES, *ALIASES])}")
    if args.answer is None and sys.stdin.isatty():
        output.line("the answer, then Ctrl-D:", to=sys.stderr)
    text = args.answer or sys.stdin.buffer.read(MAX_BYTES + 1).decode("utf-8", errors="replace")
    found = verdict(text, app, args.actions)
    accepted = found["verdict"] == "action"
    if args.json:
        output.document(found)
    elif accepted:
        output.line(str(found["action"]))
    else:
        output.line(f"refused: {found['reason']}")
    return 0 if accepted else 2


def verdict(answer: str, app: str, space: ActionSpace = "both") -> dict[str, Any]:
    """What `answer`, given while `app` is active by an agent with the actions of `space`, comes to.

    `{"verdict": "action"|"refused", "action": {...}|None, "reason": str|None}`.
    Element and window names are taken as they stand: there is no observation to look them up in.
    Raises KeyError when `app` is no application of `APP_NAMES`.
    """
    import msgspec

    from apis.actions.grammar import RefusedAnswer, parse

    if app not in APP_NAMES:
        raise KeyError(app)
    result = parse(answer, app, space=space)
    if isinstance(result, RefusedAnswer):
        return {"verdict": "refused", "action": None, "reason": result.reason}
    return {"verdict": "action", "action": msgspec.json.decode(msgspec.json.encode(result)), "reason": None}


COMMANDS = {
    "play": (PLAY_HELP, _play_arguments, later("front.command:main")),
    "serve-env": (SERVE_ENV_HELP, _serve_env_arguments, later("front.serving:main")),
    "parse": (PARSE_HELP, _parse_arguments, _parse),
}
