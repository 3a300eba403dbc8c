"""Models: how well they do, and their weights."""

from __future__ import annotations

import argparse
from pathlib import Path

from actors.cluster.commands import MODEL, Help, later, take_json, take_runs, take_served_model, take_sets

EVAL_HELP = Help(
    "evaluate a model or a run's weights on real desktops",
    "Play held-out instances with fixed weights and decoding on real desktops; nothing learns.\n"
    "MODEL is `base` (the bundled model), a Hugging Face folder, OWNER/MODEL of the hub, a run's name or folder, or\n"
    "the URL of a server that speaks the OpenAI chat completions protocol, with --model-name and mostly --tasks. --at\n"
    "chooses among a run's weights: `newest` (default), an evaluation round's name (after_bc, final), or a version\n"
    "(0.240). Success comes by family with a 95 % interval (Wilson): over all episodes, feasible ones and those\n"
    "without faults. With several episodes per instance, pass@k is given, too. Without --tasks, a run's own held-out\n"
    "instances are played, with its prompt format and length of episodes.\n"
    "The evaluation is itself a run: logs, report and --resume work on it. --resume plays the rest of what was begun:\n"
    "MODEL may be left out, and flags that would play something else are refused.\n"
    "Exit status: 0 played, 1 more than 2 % of the episodes were lost to faults, 2 bad input, 130 interrupted.",
    "examples:\n"
    "  computerrl eval base --tasks desktop --instances 20 --untrained\n"
    "  computerrl eval last --at after_bc --decoding t=1\n"
    "  computerrl eval last --decoding t=1 --episodes 4 --json\n"
    "  computerrl eval exported/ --like local --decoding t=1 --against eval-before\n"
    "  computerrl eval http://127.0.0.1:30000/v1 --model-name NAME --tasks desktop --screen 1920x1080 --max-turns 50\n"
    "  computerrl eval http://127.0.0.1:30000/v1 --model-name NAME --tasks osworld --observation picture\n"
    "  computerrl eval --resume --name cloned                 play the rest of that evaluation\n",
)
EXPORT_HELP = Help(
    "write a run's weights as a Hugging Face folder",
    "Write weights to a new folder in Hugging Face's layout: weights, configuration, tokenizer and a model card. The\n"
    "card says what was measured. Print the lines that serve it with SGLang and with the embedded engine.\n"
    "MODEL is a run, `last`, `base`, a folder or a name on the hub. --at chooses among a run's weights. It is\n"
    "`newest` (default), the name of an evaluation round (after_bc, final), or a version (0.240).",
    "examples:\n  computerrl export last model/\n  computerrl export last cloned/ --at after_bc --json\n",
)
MODEL_HELP = Help(
    "check a model folder beside transformers",
    "Load MODEL as learner and embedded engine do, compare logits with\n"
    "transformers, draw a greedy answer through the model's own chat template, export the weights and read them back.\n"
    "float32: a logit may differ by 1e-4, or by 1e-5 of the largest logit. bfloat16: the rms distance from float32\n"
    "may be at most 1.5 times that of transformers' own bfloat16. A model that is not covered is named by its key of\n"
    "config.json.\n"
    "Exit status 1 where something is wrong. Memory: the model twice.",
    "examples:\n"
    "  computerrl model check models/smollm2\n"
    "  computerrl model check Qwen/Qwen2.5-0.5B@main\n"
    "  computerrl model check ~/Qwen3-1.7B --dtype bfloat16 --json\n",
)


def _eval_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", nargs="?", help=f"{MODEL}, or a server's URL")
    _take_what(parser.add_argument_group("what is played"))
    _take_how(parser.add_argument_group("how it is played"))
    url = parser.add_argument_group("a model at a URL")
    take_served_model(url)
    url.add_argument("--model", dest="model_name", help=argparse.SUPPRESS)
    url.add_argument("--observation", choices=("tree", "picture", "both"), help="what the model sees (default: tree)")
    unit = "the unit of its places, 0 to 1000 or pixels (default: thousandths with a picture)"
    url.add_argument("--coordinates", choices=("pixels", "thousandths"), help=unit)
    url.add_argument("--prompt", metavar="FILE", help="a prompt template, a file or `tags`")
    _take_output(parser.add_argument_group("the run and its output"))


def _take_what(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--at", metavar="POINT", help="of a run: newest, a round's name, or a version")
    group.add_argument("--tasks", metavar="SUITE", help="suite, family, task set or task files (computerrl tasks)")
    group.add_argument("--like", metavar="FILE|RUN", help="its held-out instances, form and lengths")
    group.add_argument(
        "--split", choices=("train", "held-out"), metavar="S", help="instances of --tasks: held-out (default), or train"
    )
    group.add_argument("--instances", type=int, metavar="N", help="of each family of the suite (default: 20)")
    group.add_argument("--first", type=int, metavar="N", help="number of each family's first instance (0)")
    group.add_argument(
        "--untrained", action="store_true", default=None, help="also the suite's families that are never trained on"
    )
    group.add_argument("--episodes", type=int, metavar="K", help="of each instance (default: 1)")


def _take_how(group: argparse._ArgumentGroup) -> None:
    decoding = "greedy (default), or t=T for a temperature T, such as t=1"
    group.add_argument("--decoding", metavar="D", help=decoding)
    count = "desktops at the same time (default: 4, or the run's)"
    group.add_argument("--desktops", "--count", type=int, metavar="N", help=count)
    form = "of prompts and answers (default: compact, of a URL published, or the run's)"
    group.add_argument("--format", choices=("compact", "published"), help=form)
    group.add_argument("--max-turns", type=int, metavar="N", help="answers per episode (default: 12, or the run's)")
    tokens = "of one answer (default: the run's, or 4096 of a URL)"
    group.add_argument("--max-tokens", type=int, metavar="N", help=tokens)
    group.add_argument(
        "--screen", metavar="WxH", help="the desktops' screen in pixels (default: 1280x720, or the run's)"
    )
    group.add_argument("--seed", type=int, metavar="N", help="of the run (default: 0)")
    group.add_argument(
        "--attach", action="append", default=[], metavar="URL",
        help="a running SGLang server in place of an engine (repeatable); it is told to load the model's folder",
    )  # fmt: skip
    group.add_argument(
        "--engine", choices=("embedded", "sglang"), help="what draws the answers (default: the run's, or embedded)"
    )
    take_sets(group, "change one key, such as model.endpoint.top_p=0.9 (repeatable)")


def _take_output(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--against", metavar="RUN", help="print the paired gain over its newest round of this kind")
    group.add_argument("--name", metavar="NAME", help="name of the run (default: eval and the time)")
    group.add_argument("--resume", action="store_true", help="go on with the newest evaluation, or --name")
    group.add_argument("--out", metavar="DIR", help="write result.json and episodes.jsonl there")
    group.add_argument(
        "--osworld-out", metavar="DIR", help="write results in OSWorld's own layout there: result.txt, traj.jsonl"
    )
    take_runs(group)
    group.add_argument("--json", action="store_true", help="print one JSON document; progress goes to standard error")


def _export_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=MODEL)
    parser.add_argument("folder", metavar="DIR", help="folder to write; it must not exist")
    parser.add_argument("--at", metavar="POINT", help="newest, a round's name, or a version")
    take_runs(parser)
    take_json(parser)


def _export(args: argparse.Namespace) -> int:
    """Write it; 0."""
    from actors.cluster.runs import weights

    return weights.export(
        weights.locate(args.model, Path(args.runs), args.at or ""), Path(args.folder), as_json=args.json
    )


def _model_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    check = verbs.add_parser(
        "check", help="compare with transformers", description=MODEL_HELP.description, epilog=MODEL_HELP.examples
    )
    check.add_argument("model", metavar="MODEL", help=MODEL)
    check.add_argument(
        "--dtype", choices=("float32", "bfloat16"), default="float32", help="what to compute in (default: float32)"
    )
    take_runs(check)
    take_json(check)
    check.set_defaults(parser=check)


def _model(args: argparse.Namespace) -> int:
    """Check it; 0 where all is good, else 1."""
    import warnings

    warnings.simplefilter("ignore")  # Megatron's, of kernels that it lacks
    from actors.cluster.checks import model

    return model.check(args.model, Path(args.runs), args.dtype, as_json=args.json)


COMMANDS = {
    "eval": (EVAL_HELP, _eval_arguments, later("cluster.evaluate.play:play")),
    "export": (EXPORT_HELP, _export_arguments, _export),
    "model": (MODEL_HELP, _model_arguments, _model),
}
