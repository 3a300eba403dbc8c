"""Models and episodes: played by hand, evaluated, exported, checked, or served to another trainer."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actors.cluster.commands import MODEL, Help, flag, later, take, take_provider, verb
from apis.applications import ALIASES, APP_NAMES

if TYPE_CHECKING:
    from apis.actions.spaces import ActionSpace

PLAY_HELP = Help(
    "play a task by hand, or watch a model play it",
    "Play one task on a real desktop: the screen as text and as a page on this machine, one line an action, ? for what"
    " can be done, the verdict at the end. With --keep a solved training task joins a recording for demos.source.\n"
    "Exit status 1: not solved, or broken by a fault.",
    "examples:\n"
    "  computerrl play file_manager/train/3 --keep mine.parquet\n"
    "  computerrl play calc_cell/held-out/0 --model http://127.0.0.1:30000/v1 --model-name NAME --step\n",
)
SERVE_ENV_HELP = Help(
    "serve tasks on desktops to other trainers, by the OpenEnv protocol",
    "Serve reset, step and state to trainers on this machine, or by ssh -L to others. A session is a WebSocket at /ws."
    " reset takes task or seed; without them tasks come in turn. The printed address holds the clients' token. Needs:\n"
    ".venv/bin/python -m pip install 'computerrl[openenv]'.",
    "examples:\n  computerrl serve-env desktop --split held-out --count 5 --format published --screenshots\n",
)
SERVE_ENV_PORT = 8610
PARSE_HELP = Help(
    "parse a model's answer",
    "Print the typed action that an answer means, or its refusal (exit status 2). Nothing runs.",
    "examples:\n  echo \"Agent.type(text='kiwi')\" | computerrl parse --app text_editor\n",
)
MAX_BYTES = 1 << 20
EVAL_HELP = Help(
    "evaluate a model or a run's weights on real desktops",
    "Play held-out instances with fixed weights and decoding; nothing learns. A server's URL speaks the OpenAI chat"
    " completions protocol, and takes --model-name and mostly --tasks. Without --tasks, a run's own held-out instances"
    " are played in its form.\n"
    "Success comes by family with a 95 % interval (Wilson), over all, feasible and fault-free episodes; with several"
    " episodes per instance pass@k, too.\n"
    "The evaluation is a run: logs and report work on it, and --resume plays the rest.\n"
    "Exit status 1: more than 2 % of the episodes were lost to faults.",
    "examples:\n"
    "  computerrl eval base --tasks desktop --instances 20 --untrained\n"
    "  computerrl eval last --at after_bc --decoding t=1 --episodes 4 --against eval-before\n"
    "  computerrl eval http://127.0.0.1:30000/v1 --model-name NAME --tasks osworld --observation picture\n"
    "  computerrl eval --resume --name cloned                 play the rest of that evaluation\n",
)
EXPORT_HELP = Help(
    "write a run's weights as a Hugging Face folder",
    "Write weights, configuration, tokenizer and a model card with what was measured. Print the lines that serve it.",
    "examples:\n  computerrl export last cloned/ --at after_bc\n",
)
MODEL_HELP = Help(
    "check a model folder beside transformers",
    "Load MODEL as learner and embedded engine do (twice in memory), compare logits with transformers, answer through"
    " its chat template, export and read back. What is not covered is named by its key of config.json.\n"
    "Exit status 1: something is wrong.",
    "examples:\n  computerrl model check Qwen/Qwen2.5-0.5B@main --dtype bfloat16\n",
)


def _play_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", help="FAMILY/SPLIT/NUMBER (FAMILY: its first), or SET/DOMAIN/ID")
    flag(parser, "--keep", "FILE", "add a solved episode to this .parquet recording")
    flag(parser, "--model", "MODEL", f"{MODEL}, or a server's URL")
    flag(parser, "--step", "", "wait for Enter before each turn of a model", action="store_true")
    take(parser, "model-name", "api-key-env", "max-tokens", "screen", "runs", max_turns=50, actions="both", port=0)
    take_provider(parser)


def _serve_env_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("suite", metavar="SUITE", help="a suite, a family, or task files, as `computerrl tasks` has it")
    take(parser, split="train", first=0, count=64, desktops=2, max_turns=12, format="compact", actions="both")
    flag(parser, "--screenshots", "", "send a JPEG of the screen with each turn", action="store_true")
    take(parser, "screen", port=SERVE_ENV_PORT)
    take_provider(parser)


def _parse_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("answer", metavar="ANSWER", nargs="?", help="the answer (default: standard input)")
    flag(parser, "--app", "APP", f"one of {', '.join(APP_NAMES)}; also calc, chrome, ...", required=True)
    take(parser, "json", actions="both")


def _parse(args: argparse.Namespace) -> int:
    from actors.cluster import output
    from actors.cluster.config.suggest import hint
    from runtime.errors import ConfigError

    app = ALIASES.get(args.app, args.app)
    if app not in APP_NAMES:
        raise ConfigError(f"--app {args.app}: no such application; {hint(args.app, [*APP_NAMES, *ALIASES])}")
    if args.answer is None and sys.stdin.isatty():
        output.line("the answer, then Ctrl-D:", to=sys.stderr)
    text = args.answer or sys.stdin.buffer.read(MAX_BYTES + 1).decode("utf-8", errors="replace")
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
    import msgspec

    from apis.actions.grammar import RefusedAnswer, parse

    if app not in APP_NAMES:
        raise KeyError(app)
    result = parse(answer, app, space=space)
    if isinstance(result, RefusedAnswer):
        return {"verdict": "refused", "action": None, "reason": result.reason}
    return {"verdict": "action", "action": msgspec.json.decode(msgspec.json.encode(result)), "reason": None}


def _eval_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", nargs="?", help=f"{MODEL}, or a server's URL")
    what = parser.add_argument_group("what is played")
    flag(what, "--tasks", "SUITE", "suite, family, task set or task files (computerrl tasks)")
    flag(what, "--like", "FILE|RUN", "its held-out instances, form and lengths")
    take(what, "at", "split", "instances", "first")
    every = "also the suite's families that are never trained on"
    flag(what, "--untrained", "", every, action="store_true", default=None)
    flag(what, "--episodes", "K", "of each instance (default: 1)", type=int)
    how = parser.add_argument_group("how it is played")
    flag(how, "--decoding", "D", "greedy (default), or t=T for a temperature T, such as t=1")
    seats = "desktops at the same time (default: 4, or the run's)"
    how.add_argument("--desktops", "--count", type=int, metavar="N", help=seats)
    take(how, "format", "max-turns", "max-tokens", "screen", "set")
    url = parser.add_argument_group("a model at a URL")
    take(url, "model-name", "api-key-env")
    url.add_argument("--model", dest="model_name", help=argparse.SUPPRESS)
    flag(url, "--observation", "", "what the model sees (default: tree)", choices=("tree", "picture", "both"))
    unit = "the unit of its places, 0 to 1000 or pixels (default: thousandths with a picture)"
    flag(url, "--coordinates", "", unit, choices=("pixels", "thousandths"))
    flag(url, "--prompt", "FILE", "a prompt template, a file or `tags`")
    results = parser.add_argument_group("the run and its output")
    flag(results, "--against", "RUN", "print the paired gain over its newest round of this kind")
    flag(results, "--resume", "", "go on with the newest evaluation, or --name", action="store_true")
    flag(results, "--osworld-out", "DIR", "write results in OSWorld's own layout there: result.txt, traj.jsonl")
    take(results, "name", "runs", "json")


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=MODEL)
    parser.add_argument("folder", metavar="DIR", help="folder to write; it must not exist")
    take(parser, "at", "runs", "json")


def _export(args: argparse.Namespace) -> int:
    from actors.cluster.runs import weights

    named = weights.locate(args.model, Path(args.runs), args.at or "")
    return weights.export(named, Path(args.folder), as_json=args.json)


def _model_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    check = verb(verbs, "check", MODEL_HELP)
    check.add_argument("model", metavar="MODEL", help=MODEL)
    computed = "what to compute in (default: float32)"
    flag(check, "--dtype", "", computed, choices=("float32", "bfloat16"), default="float32")
    take(check, "runs", "json")


def _model(args: argparse.Namespace) -> int:
    import warnings

    warnings.simplefilter("ignore")  # Megatron's, of kernels that it lacks
    from actors.cluster.checks import model

    return model.check(args.model, Path(args.runs), args.dtype, as_json=args.json)


COMMANDS = {
    "play": (PLAY_HELP, _play_arguments, later("front.command:main")),
    "serve-env": (SERVE_ENV_HELP, _serve_env_arguments, later("front.serving:main")),
    "parse": (PARSE_HELP, _parse_arguments, _parse),
    "eval": (EVAL_HELP, _eval_arguments, later("cluster.evaluate.play:play")),
    "export": (EXPORT_HELP, _export_arguments, _export),
    "model": (MODEL_HELP, _model_arguments, _model),
}
