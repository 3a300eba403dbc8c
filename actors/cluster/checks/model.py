"""`model check`: whether learner and engine load a folder and agree with transformers; `parse`: a model's answer."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster import output
from actors.cluster.config.suggest import hint
from apis.actions.grammar import RefusedAnswer, parse
from apis.actions.spaces import ActionSpace
from apis.applications import ALIASES, APP_NAMES
from runtime.errors import ConfigError

QUIET_S = 2.0
MOST_BYTES = 1 << 20  # of an answer


def parse_answer(args: argparse.Namespace) -> int:
    """`parse`: print what an answer comes to; 2 where it is refused."""
    app = ALIASES.get(args.app, args.app)
    if app not in APP_NAMES:
        raise ConfigError(f"--app {args.app}: no such application; {hint(args.app, [*APP_NAMES, *ALIASES])}")
    if args.answer is None and sys.stdin.isatty():
        output.line("the answer, then Ctrl-D:", to=sys.stderr)
    text = args.answer or sys.stdin.buffer.read(MOST_BYTES + 1).decode("utf-8", errors="replace")
    parsed = verdict(text, app, args.actions)
    if args.json:
        output.document(parsed)
    else:
        output.line(f"refused: {parsed['reason']}" if parsed["action"] is None else str(parsed["action"]))
    return 2 if parsed["action"] is None else 0


def verdict(answer: str, app: str, space: ActionSpace = "both") -> dict[str, Any]:
    """What `answer`, given while `app` is active by an agent with the actions of `space`, comes to.

    `{"verdict": "action"|"refused", "action": {...}|None, "reason": str|None}`. Names of elements and windows are taken
    as they are. Raises KeyError when `app` is no application of `APP_NAMES`.
    """
    if app not in APP_NAMES:
        raise KeyError(app)
    result = parse(answer, app, space=space)
    if isinstance(result, RefusedAnswer):
        return {"verdict": "refused", "action": None, "reason": result.reason}
    return {"verdict": "action", "action": msgspec.json.decode(msgspec.json.encode(result)), "reason": None}


def check(args: argparse.Namespace) -> int:
    """`model check`: print the verdict; its exit status. Raises ConfigError where there is no such model."""
    warnings.simplefilter("ignore")  # Megatron's, of kernels that it lacks
    from actors.cluster.config import models
    from actors.cluster.runs import weights
    from policy.architecture import ModelVerdict

    folder, began = Path(weights.locate(args.model, Path(args.runs), look=False).folder), time.monotonic()

    def tell(step: str) -> None:
        if not args.json and time.monotonic() - began > QUIET_S:
            output.news(f"{output.duration(time.monotonic() - began)}  {step}")

    try:
        folder = models.locate(str(folder))  # refuses what needs no torch to be refused
        from transformers.utils import logging

        from policy.model_check import compare

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        found = compare(folder, args.dtype, tell)
    except ConfigError as error:
        found = ModelVerdict(architecture="", why=str(error).removeprefix(f"{args.model}: "))
    if args.json:
        output.document(found)
    elif found.why:
        output.line(f"{args.model}: {found.why}")
    else:
        output.prose(
            f"{args.model}: {found.architecture}, {args.dtype}: largest difference of a logit"
            f" {found.max_logit_diff:.2g}; generates; every tensor comes back"
        )
        for refused in found.chat:
            output.prose(f"its chat template refuses {refused}")
    return 1 if found.why else 0
