"""`computerrl parse`: what a model's answer means."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from apis.applications import ALIASES, APP_NAMES

if TYPE_CHECKING:
    from apis.actions.spaces import ActionSpace

SUMMARY = "parse a model's answer"
DESCRIPTION = (
    "Print the typed action that a model's answer means, or the refusal with its reason.\n"
    "Exit status 0 for an action, 2 for a refusal. Nothing is evaluated and nothing runs."
)
EXAMPLES = (
    "examples:\n"
    "  echo \"Agent.type(text='kiwi')\" | computerrl parse --app text_editor\n"
    "  computerrl parse --app calc \"CalcTools.set_cell(cell='B2', value='7')\"\n"
    "  computerrl parse --app libreoffice_calc --json < answer.txt\n"
)
MAX_BYTES = 1 << 20


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument("answer", metavar="ANSWER", nargs="?", help="the answer (default: standard input)")
    parser.add_argument(
        "--app", required=True, metavar="APP", help=f"one of {', '.join(APP_NAMES)}; also calc, chrome, ..."
    )
    parser.add_argument(
        "--actions", choices=("both", "gui", "api"), default="both", help="actions that the agent has (default: both)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def main(args: argparse.Namespace) -> int:
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
