"""Measures what desktops, engines, steps and a ledger cost here: `make bench NAME=desktops ARGS="--boots 3"`.

A command prints its figures and their bounds, which are ratios to a reference workload of the same run. Its exit status
is 1 when a bound is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from actors.cluster.commands import take_provider
from runtime.errors import ConfigError

T = TypeVar("T", bound="msgspec.Struct")

STARTUP = "Run a deploy file and print the seconds from the command to the first optimizer step of RL, by part."
DESKTOPS = (
    "Measure real desktops: what a click, typing and a hotkey take with settling and the observation after it, by part"
    " and by process; what a boot and an oracle's episode take in processor time; what holding many at once takes."
    " Bounds are in rounds of a reference workload (Python, round trips to X, accessibility calls; about 0.1 s of"
    " processor time), which runs in between. Exit status 1 when a target is missed. Needs root, and an idle"
    " machine for wall times that mean something."
)
SAMPLER = (
    "Play the same episodes, whose prompts share a beginning and grow, on every engine in turn: the embedded one,\n"
    "real SGLang (where `make sglang-cpu` was run), and transformers' generate, batched and one by one. Prints drawn\n"
    "tokens per second and latency. Exit status 1 when the embedded engine is not 3 times batched generate. Nothing\n"
    "else should run meanwhile; the machine's load at the start is printed."
)
LEARNER = (
    "Time a step of RL on the newest groups that a run still stores, from its newest weights: once with prompts that\n"
    "samples share computed once, as in training, and once with every sample whole. Prints processor seconds. Exit\n"
    "status 1 when the two ways disagree on the loss, the entropy or the gradient's norm. The run is only read.\n"
    "With --shapes, time steps of models of those shapes with random weights instead, on a GPU where there is one,\n"
    "and print the share of its arithmetic that they use (MFU)."
)
LEDGER = (
    "Make a ledger of many episodes in a temporary folder, and time every request that an actor makes of it, beside\n"
    "the same requests to a small ledger. Exit status 1 when a request takes more than 20 ms at the median or 100 ms\n"
    "at the 99th percentile. A million episodes take 1.5 GB of the folder for temporary files."
)
SCALE = (
    "Measure what one step of a desktop on another machine costs the entry point's process: passing a request and its\n"
    "answer on, the router, taking in the stored step, the ledger. Prints the cores that 2,000 and 10,000 desktops\n"
    "need there. Exit status 1 when 2,000 need more than one."
)
SEATS = (
    "Hold many seats in one desktop process and print what it takes: processor time of a step, memory of a seat, and\n"
    "how late its event loop comes. Controllers, SSH at both ends, episodes, prompts, tokenizer, recorder and ledger\n"
    "are real. Desktops are simulated: scripts that speak the agent's protocol; so is the sampler. Exit status 1 when\n"
    "a target is missed. The simulated desktops take about as much of the machine again.\n"
)


def _startup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--file", default="smoke", metavar="FILE", help="deploy file (default: smoke)")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="PATH=VALUE")
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where the run folder goes (default: runs)")


def _ledger(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--episodes", type=int, default=1_000_000, metavar="N", help="of the ledger (1000000)")
    parser.add_argument("--steps", type=int, default=40, metavar="N", help="optimizer steps to play on it (40)")


def _seats(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seats", type=int, default=100, metavar="N", help="in one desktop process (100)")
    parser.add_argument(
        "--format", default="compact", metavar="NAME", help="of prompts: compact or published (compact)"
    )
    parser.add_argument("--screen", default="sheet", metavar="NAME", help="seen: text, sheet or page (sheet)")
    parser.add_argument(
        "--changed", type=float, default=0.15, metavar="SHARE", help="of what is seen, from step to step (0.15)"
    )
    parser.add_argument("--seconds", type=float, default=30.0, metavar="S", help="to measure for (30)")
    parser.add_argument(
        "--period", dest="period_s", type=float, default=2.0, metavar="S", help="of one seat's steps, about (2)"
    )
    parser.add_argument("--model", metavar="DIR", help="folder of a tokenizer (default: the bundled one)")
    parser.add_argument("--servers", type=int, default=2, metavar="N", help="processes of simulated desktops (2)")
    parser.add_argument(
        "--begin", dest="begin_s", type=float, default=600.0, metavar="S", help="for all to be at work (600)"
    )


def _desktops(parser: argparse.ArgumentParser) -> None:
    all_of_them = "text_editor,file_manager,terminal,libreoffice_calc"
    parser.add_argument("--apps", default=all_of_them, metavar="LIST", help=f"of the actions (default: {all_of_them})")
    parser.add_argument("--actions", type=int, default=60, metavar="N", help="of each kind and application (60)")
    parser.add_argument("--boots", type=int, default=10, metavar="N", help="boots to measure (10)")
    parser.add_argument("--episodes", type=int, default=10, metavar="N", help="oracle episodes of each kind (10)")
    parser.add_argument(
        "--kinds", default="light,Calc", metavar="LIST", help="of episodes: light,Calc,office,Chromium,VLC (light,Calc)"
    )
    parser.add_argument(
        "--screens", default="1280x720", metavar="LIST", help="of episodes, compared with the first (1280x720)"
    )
    parser.add_argument("--hold", type=int, default=0, metavar="N", help="hold N desktops at once (0: none)")
    parser.add_argument("--hold-app", default="text_editor", metavar="APP", help="open in each of them (text_editor)")
    take_provider(parser)
    parser.add_argument(
        "--no-targets", dest="targets", action="store_false", help="measure only: exit status 0 whatever comes out"
    )


def _sampler(parser: argparse.ArgumentParser) -> None:
    every = "embedded,sglang,batched,sequential"
    parser.add_argument("--model", metavar="DIR", help="model folder (default: the bundled one)")
    parser.add_argument("--engines", default=every, metavar="LIST", help=f"of {every} (default: all)")
    parser.add_argument("--episodes", type=int, default=16, metavar="N", help="at the same time (16)")
    parser.add_argument("--steps", type=int, default=6, metavar="N", help="of each (6)")
    drawn = "tokens drawn in each step (32)"
    parser.add_argument("--answer", dest="answer_tokens", type=int, default=32, metavar="N", help=drawn)


def _learner(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--run", default="last", metavar="RUN", help="a run's name or folder, or `last` (the default)")
    parser.add_argument("--times", type=int, default=3, metavar="N", help="steps of each way, in turns (3)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="that a step computes with (1)")
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where run folders are (default: runs)")
    parser.add_argument("--shapes", metavar="LIST", help="of deploy/shapes, or folders with a config.json: no run")
    parser.add_argument("--tokens", metavar="LIST", help="of --shapes: tokens of a step (4096,16384)")
    parser.add_argument("--recompute", choices=("none", "selective", "full"), help="of --shapes: learner.recompute")
    parser.add_argument(
        "--peak", type=float, metavar="TFLOPS", help="of --shapes: the device's most, if it is not known"
    )


def _scale(_: argparse.ArgumentParser) -> None:
    pass


def run_startup(args: argparse.Namespace) -> int:
    """Measure a whole run's start."""
    from tests.bench import startup

    return startup.measure(args.file, args.overrides, Path(args.runs), as_json=args.json)


def run_desktops(args: argparse.Namespace) -> int:
    """Measure real desktops."""
    from tests.bench import desktops

    return desktops.run(_options(desktops.DesktopsOptions, args), as_json=args.json)


def run_sampler(args: argparse.Namespace) -> int:
    """Measure engines."""
    from tests.bench import sampler

    return sampler.run(_options(sampler.SamplerOptions, args, engines=sampler.known(args.engines)), as_json=args.json)


def run_learner(args: argparse.Namespace) -> int:
    """Measure a step of a run, or of larger shapes."""
    if args.shapes:
        from tests.bench import utilisation

        shapes = tuple(args.shapes.split(","))
        others = {"tokens": utilisation.lengths_of(args.tokens)} if args.tokens else {}
        of_shapes = _options(utilisation.UtilisationOptions, args, **{"shapes": shapes} | others)
        return utilisation.run(of_shapes, as_json=args.json)
    from tests.bench import learner

    return learner.run(_options(learner.LearnerOptions, args), as_json=args.json)


def run_ledger(args: argparse.Namespace) -> int:
    """Measure the ledger's requests."""
    from tests.bench import ledger

    return ledger.run(args.episodes, args.steps, as_json=args.json)


def run_seats(args: argparse.Namespace) -> int:
    """Measure many seats in one process."""
    from tests.bench.seats import seats

    return seats.run(_options(seats.SeatsOptions, args), as_json=args.json)


def run_scale(args: argparse.Namespace) -> int:
    """Measure what desktops elsewhere cost the entry point."""
    from tests.bench import scale

    return scale.run(as_json=args.json)


Arguments = Callable[[argparse.ArgumentParser], None]
Run = Callable[[argparse.Namespace], int]
BENCHES: dict[str, tuple[str, Arguments, Run]] = {
    "startup": (STARTUP, _startup, run_startup),
    "desktops": (DESKTOPS, _desktops, run_desktops),
    "sampler": (SAMPLER, _sampler, run_sampler),
    "learner": (LEARNER, _learner, run_learner),
}
CAPACITY: dict[str, tuple[str, Arguments, Run]] = {
    "ledger": (LEDGER, _ledger, run_ledger),
    "seats": (SEATS, _seats, run_seats),
    "scale": (SCALE, _scale, run_scale),
}


def _options(options: type[T], args: argparse.Namespace, **others: object) -> T:
    """The options that the arguments of their names give; `others` are made of arguments."""
    names = [field.name for field in msgspec.structs.fields(options)]
    return options(**{name: value for name in names if (value := getattr(args, name, None)) is not None} | others)


def _declare(kinds: argparse._SubParsersAction, benches: dict[str, tuple[str, Arguments, Run]]) -> None:
    for name, (description, arguments, run) in benches.items():
        parser = kinds.add_parser(name, description=description)
        arguments(parser)
        parser.add_argument("--json", action="store_true", help="print one JSON document")
        parser.set_defaults(measured=run)


def main(argv: Sequence[str]) -> int:
    """Measure and print; 1 when a bound is missed."""
    parser = argparse.ArgumentParser(prog="make bench NAME=", description=__doc__)
    kinds = parser.add_subparsers(metavar="NAME", required=True)
    _declare(kinds, BENCHES)
    capacity = kinds.add_parser("capacity", description="What a run of thousands of desktops costs here.")
    _declare(capacity.add_subparsers(metavar="PART", required=True), CAPACITY)
    args = parser.parse_args(argv)
    try:
        status: int = args.measured(args)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
