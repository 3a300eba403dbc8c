"""`computerrl eval`: how well a model does, on real desktops."""

from __future__ import annotations

import argparse

SUMMARY = "evaluate a model or a run's weights on real desktops"
DESCRIPTION = (
    "Play held-out instances with fixed weights and decoding on real desktops; nothing learns.\n"
    "MODEL is `base` (the bundled model), a Hugging Face folder, OWNER/MODEL of the hub, a run's name or folder, or\n"
    "the URL of a server that speaks the OpenAI chat completions protocol, with --model and mostly --tasks. --at\n"
    "chooses among a run's weights: `newest` (default), an evaluation round's name (after_bc, final), or a version\n"
    "(0.240). Success comes by family with a 95 % interval (Wilson): over all episodes, feasible ones and those\n"
    "without faults. With several episodes per instance, pass@k is given, too. Without --tasks, a run's own held-out\n"
    "instances are played, with its prompt format and length of episodes.\n"
    "The evaluation is itself a run: logs, report and --resume work on it. --resume plays the rest of what was begun:\n"
    "MODEL may be left out, and flags that would play something else are refused.\n"
    "Exit status: 0 played, 1 more than 2 % of the episodes were lost to faults, 2 bad input, 130 interrupted."
)
EXAMPLES = (
    "examples:\n"
    "  computerrl eval base --tasks desktop --instances 20 --untrained\n"
    "  computerrl eval last --at after_bc --decoding t=1\n"
    "  computerrl eval last --decoding t=1 --episodes 4 --json\n"
    "  computerrl eval exported/ --like local --decoding t=1 --against eval-before\n"
    "  computerrl eval http://127.0.0.1:30000/v1 --model NAME --tasks desktop --screen 1920x1080 --max-turns 50\n"
    "  computerrl eval http://127.0.0.1:30000/v1 --model NAME --tasks osworld --observation picture --prompt tags\n"
    "  computerrl eval --resume --name cloned                 play the rest of that evaluation\n"
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="base, a model folder or hub name, a run, `last` (that trained), a URL",
    )
    parser.add_argument(
        "--model", dest="model_name", metavar="NAME", help="of a URL: the model, as that server calls it"
    )
    parser.add_argument("--api-key-env", metavar="VAR", help="of a URL: the environment variable that holds its key")
    parser.add_argument("--at", metavar="POINT", help="of a run: newest, a round's name, or a version")
    parser.add_argument("--tasks", metavar="SUITE", help="suite, family, task set or task files (computerrl tasks)")
    parser.add_argument("--like", metavar="FILE|RUN", help="its held-out instances, form and lengths")
    parser.add_argument(
        "--split", choices=("train", "held-out"), metavar="S", help="instances of --tasks: held-out (default), or train"
    )
    parser.add_argument("--instances", type=int, metavar="N", help="of each family of the suite (default: 20)")
    parser.add_argument("--first", type=int, metavar="N", help="number of each family's first instance (0)")
    parser.add_argument(
        "--untrained", action="store_true", default=None, help="also the suite's families that are never trained on"
    )
    parser.add_argument("--episodes", type=int, metavar="K", help="of each instance (default: 1)")
    decoding = "greedy (default), or t=T for a temperature T, such as t=1"
    parser.add_argument("--decoding", metavar="D", help=decoding)
    count = "desktops at the same time (default: 4, or the run's)"
    parser.add_argument("--desktops", "--count", type=int, metavar="N", help=count)
    form = "of prompts and answers (default: compact, of a URL published, or the run's)"
    parser.add_argument("--format", choices=("compact", "published"), help=form)
    parser.add_argument(
        "--observation", choices=("tree", "picture", "both"), help="of a URL: what the model sees (default: tree)"
    )
    unit = "of a URL: the unit of its places, 0 to 1000 or pixels (default: thousandths with a picture)"
    parser.add_argument("--coordinates", choices=("pixels", "thousandths"), help=unit)
    parser.add_argument("--prompt", metavar="FILE", help="of a URL: a prompt template, a file or `tags`")
    tail = "of task files: judge by the published package (make osworld-judge) where a metric is not here"
    parser.add_argument("--published-metrics", action="store_true", default=None, help=tail)
    parser.add_argument("--max-turns", type=int, metavar="N", help="answers per episode (default: 12, or the run's)")
    tokens = "of one answer (default: the run's, or 4096 of a URL)"
    parser.add_argument("--max-tokens", type=int, metavar="N", help=tokens)
    parser.add_argument(
        "--screen", metavar="WxH", help="the desktops' screen in pixels (default: 1280x720, or the run's)"
    )
    parser.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="PATH=VALUE",
        help="change one key, such as model.endpoint.top_p=0.9 (repeatable)",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, metavar="N", help="of the run (default: 0)")
    parser.add_argument(
        "--attach", action="append", default=[], metavar="URL",
        help="a running SGLang server in place of an engine (repeatable); it is told to load the model's folder",
    )  # fmt: skip
    parser.add_argument(
        "--engine", choices=("embedded", "sglang"), help="what draws the answers (default: the run's, or embedded)"
    )
    parser.add_argument("--against", metavar="RUN", help="print the paired gain over its newest round of this kind")
    parser.add_argument("--name", metavar="NAME", help="name of the run (default: eval and the time)")
    parser.add_argument("--resume", action="store_true", help="go on with the newest evaluation, or --name")
    parser.add_argument("--out", metavar="DIR", help="write result.json and episodes.jsonl there")
    parser.add_argument(
        "--osworld-out", metavar="DIR", help="write results in OSWorld's own layout there: result.txt, traj.jsonl"
    )
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where run folders are (default: runs)")
    parser.add_argument("--json", action="store_true", help="print one JSON document; progress goes to standard error")


def main(args: argparse.Namespace) -> int:
    """Evaluate; 1 when too many faults fell into it."""
    from actors.cluster.evaluate import play

    return play.play(args)
