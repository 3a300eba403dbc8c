"""`computerrl bench`: what desktops, engines and steps cost here, and whether a run stands faults."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from actors.cluster.commands import take_provider

if TYPE_CHECKING:
    import msgspec

T = TypeVar("T", bound="msgspec.Struct")

SUMMARY = "measure"
DESCRIPTION = "Measure on this machine."
EXAMPLES = (
    "examples:\n"
    "  computerrl bench startup\n"
    "  computerrl bench startup --file local --json\n"
    "  computerrl bench desktops\n"
    "  computerrl bench desktops --apps libreoffice_calc --actions 30 --boots 0 --episodes 0\n"
    "  computerrl bench desktops --actions 0 --boots 0 --episodes 0 --hold 64 --hold-app libreoffice_calc\n"
    "  computerrl bench desktops --actions 0 --boots 0 --kinds office,Chromium,VLC --screens 1280x720,1920x1080\n"
    "  computerrl bench soak --minutes 30 --seed 0 --out soak/\n"
    "  computerrl bench soak --machines --minutes 15 --every 60\n"
    "  computerrl bench sampler\n"
    "  computerrl bench sampler --engines embedded,batched --episodes 8 --json\n"
    "  computerrl bench publish --widths 128,512 --run last\n"
    "  computerrl bench learner --run last\n"
    "  computerrl bench learner --shapes qwen2.5-0.5b,qwen2.5-1.5b --tokens 4096,16384\n"
    "  computerrl bench ledger --episodes 1000000\n"
    "  computerrl bench seats --seats 2000 --period 40\n"
    "  computerrl bench seats --format published --model DIR\n"
    "  computerrl bench hosts --actors 100,2000\n"
    "  computerrl bench parked --seats 2000\n"
    "  computerrl bench scale\n"
    "  computerrl bench web --seats 2000 --viewers 100\n"
    "  computerrl bench typing --apps text_editor,libreoffice_writer --tries 5\n"
)
STARTUP = "Run a deploy file and print the seconds from the command to the first optimizer step of RL, by part."
DESKTOPS = (
    "Measure real desktops: what a click, typing and a hotkey take with settling and the observation after it, by part"
    " and by process; what a boot and an oracle's episode take in processor time; what holding many at once takes."
    " Bounds are in rounds of a reference workload (Python, round trips to X, accessibility calls; about 0.1 s of"
    " processor time), which runs in between. Exit status 1 when a target is missed. Needs root, and an idle"
    " machine for wall times that mean something."
)
SOAK = (
    "Start a real run, break its parts at random times drawn from the seed, and judge: every fault in the log under its"
    " name within its deadline, processes, descriptors, memory and folders back to the level of minute 2, the ledger's"
    " counts right, nothing left after the stop. Exit status 1 when any of that fails. Needs root."
)
SAMPLER = (
    "Play the same episodes, whose prompts share a beginning and grow, on every engine in turn: the embedded one,\n"
    "real SGLang (where `make sglang-cpu` was run), and transformers' generate, batched and one by one. Prints drawn\n"
    "tokens per second and latency. Exit status 1 when the embedded engine is not 3 times batched generate. Nothing\n"
    "else should run meanwhile; the machine's load at the start is printed."
)
PUBLISH = (
    "Give engines new weights by every way they know (the embedded one: from disk; real SGLang: from disk, and by\n"
    "gloo one tensor at a time and as one bucket), and print seconds by way and model size, with the check that what\n"
    "is served afterwards is what was sent. --run adds the share of the samplers' time that loads took in a run.\n"
    "Exit status 1 when served weights are wrong, or that share is over 2 %."
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
HOSTS = (
    "Start many actors in one host process, ask what each is doing, look at the logs, and stop them. Prints processor\n"
    "milliseconds by number of actors. Exit status 1 when a status costs too much more per actor in the largest host."
)
PARKED = (
    "Play episodes that do nothing at a ledger, with no seat waiting for work and with many. Prints the processor\n"
    "milliseconds of an episode. Exit status 1 when the seats that wait make it more than half as dear again."
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
WEB = (
    "Write a run of many seats as a run does, let many browsers watch its live page, and print what the page's server\n"
    "takes. Seats and browsers are simulated; the server is the real one, in a process of its own. Exit status 1 when\n"
    "a target is missed.\n"
)
TYPING = (
    "Type texts of distinct signs that no keyboard has into real applications while busy programs hold the processor,\n"
    "and read back what stands there; before that a Latin text, for what a keystroke costs, and lines that editors\n"
    "correct. Prints per application how many texts were exact, were not and typing said so, or were wrong. Exit\n"
    "status 1 when a text was wrong or a line was corrected.\n"
    "Needs root."
)


def arguments(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    kinds = parser.add_subparsers(dest="kind", metavar="WHAT", required=True)
    for name, summary, description, add in (
        ("startup", "command to first RL step", STARTUP, _startup),
        ("desktops", "cost of desktops", DESKTOPS, _desktops),
        ("soak", "faults at random", SOAK, _soak),
        ("sampler", "tokens per second of engines", SAMPLER, _sampler),
        ("publish", "seconds to new weights", PUBLISH, _publish),
        ("learner", "seconds of a step of RL", LEARNER, _learner),
        ("ledger", "milliseconds of requests", LEDGER, _ledger),
        ("hosts", "cost of many actors", HOSTS, _hosts),
        ("parked", "cost of waiting seats", PARKED, _parked),
        ("seats", "many seats in one process", SEATS, _seats),
        ("scale", "thousands of desktops elsewhere", SCALE, _scale),
        ("web", "cost of the live page", WEB, _web),
        ("typing", "exactness under load", TYPING, _typing),
    ):
        kind = kinds.add_parser(name, help=summary, description=description, epilog=EXAMPLES)
        add(kind)
        kind.add_argument("--json", action="store_true", help="print one JSON document")
        kind.set_defaults(parser=kind)


def _startup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--file", default="smoke", metavar="FILE", help="deploy file (default: smoke)")
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="PATH=VALUE")
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where the run folder goes (default: runs)")


def _ledger(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--episodes", type=int, default=1_000_000, metavar="N", help="of the ledger (1000000)")
    parser.add_argument("--steps", type=int, default=40, metavar="N", help="optimizer steps to play on it (40)")


def _hosts(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--actors", default="100,500,1000,2000", metavar="LIST", help="(default: 100,500,1000,2000)")


def _parked(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seats", type=int, default=2000, metavar="N", help="that wait for work (2000)")


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


def _soak(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--minutes", type=float, default=30.0, metavar="M", help="in RL until the stop (30)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of times, kinds and victims (0)")
    apart = "mean seconds between faults (20)"
    parser.add_argument("--every", dest="every_s", type=float, default=20.0, metavar="S", help=apart)
    far = "break machines instead: desktops go to two network namespaces that share a Ray with the run's (make ray)"
    parser.add_argument("--machines", action="store_true", help=far)
    usual = "deploy file (default: soak, with --machines soak-machines)"
    parser.add_argument("--file", metavar="FILE", help=usual)
    parser.add_argument("--set", action="append", default=[], dest="overrides", metavar="PATH=VALUE")
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where the run folder goes (default: runs)")
    parser.add_argument("--out", metavar="DIR", help="write samples and faults as JSON lines, and a picture")


def _sampler(parser: argparse.ArgumentParser) -> None:
    every = "embedded,sglang,batched,sequential"
    parser.add_argument("--model", metavar="DIR", help="model folder (default: the bundled one)")
    parser.add_argument("--engines", default=every, metavar="LIST", help=f"of {every} (default: all)")
    parser.add_argument("--episodes", type=int, default=16, metavar="N", help="at the same time (16)")
    parser.add_argument("--steps", type=int, default=6, metavar="N", help="of each (6)")
    drawn = "tokens drawn in each step (32)"
    parser.add_argument("--answer", dest="answer_tokens", type=int, default=32, metavar="N", help=drawn)


def _publish(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--widths", default="128,512", metavar="LIST", help="of models to publish (128,512)")
    parser.add_argument("--times", type=int, default=5, metavar="N", help="publications of each way (5)")
    parser.add_argument("--run", metavar="RUN", help="a run or `last`: tell its samplers' lost time")
    parser.add_argument("--runs", default="runs", metavar="DIR", help="where run folders are (default: runs)")


def _scale(_: argparse.ArgumentParser) -> None:
    pass


def _web(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seats", type=int, default=2000, metavar="N", help="of the run (2000)")
    parser.add_argument("--viewers", type=int, default=100, metavar="N", help="at once (100)")
    parser.add_argument("--seconds", type=float, default=30.0, metavar="S", help="to measure for (30)")


def _typing(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--apps", metavar="LIST", help="applications (default: all that are installed)")
    parser.add_argument("--signs", type=int, default=1000, metavar="N", help="distinct ones in each text (1000)")
    parser.add_argument("--tries", type=int, default=20, metavar="N", help="texts in each application (20)")
    parser.add_argument("--load", type=int, default=10, metavar="N", help="busy programs beside it (10)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the signs (0)")
    take_provider(parser)


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


def main(args: argparse.Namespace) -> int:
    """Measure and print; 1 when the verdict is bad."""
    as_json: bool = args.json
    if args.kind == "publish":
        from actors.cluster.bench import publish

        return publish.run(_asked(publish.PublishOptions, args, widths=publish.widths_of(args.widths)), as_json=as_json)
    if args.kind == "sampler":
        from actors.cluster.bench import sampler

        return sampler.run(_asked(sampler.SamplerOptions, args, engines=sampler.known(args.engines)), as_json=as_json)
    if args.kind == "learner":
        if args.shapes:
            from actors.cluster.bench import utilisation

            shapes = tuple(args.shapes.split(","))
            others = {"tokens": utilisation.lengths_of(args.tokens)} if args.tokens else {}
            of_shapes = _asked(utilisation.UtilisationOptions, args, **{"shapes": shapes} | others)
            return utilisation.run(of_shapes, as_json=as_json)
        from actors.cluster.bench import learner

        return learner.run(_asked(learner.LearnerOptions, args), as_json=as_json)
    if args.kind == "ledger":
        from actors.cluster.bench import ledger

        return ledger.run(args.episodes, args.steps, as_json=as_json)
    if args.kind == "hosts":
        from actors.cluster.bench import hosts

        return hosts.run(hosts.counts_of(args.actors), as_json=as_json)
    if args.kind == "parked":
        from actors.cluster.bench import parked

        return parked.run(args.seats, as_json=as_json)
    if args.kind == "seats":
        from actors.cluster.bench.seats import seats

        return seats.run(_asked(seats.SeatsOptions, args), as_json=as_json)
    if args.kind == "scale":
        from actors.cluster.bench import scale

        return scale.run(as_json=as_json)
    if args.kind == "web":
        from actors.cluster.bench import web

        return web.run(seats=args.seats, viewers=args.viewers, seconds=args.seconds, as_json=as_json)
    if args.kind == "typing":
        from actors.cluster.bench import typing

        return typing.run(_asked(typing.TypingOptions, args), as_json=as_json)
    if args.kind == "startup":
        from actors.cluster.runs import startup

        return startup.measure(args.file, args.overrides, Path(args.runs), as_json=as_json)
    if args.kind == "soak":
        from actors.cluster.bench.soak import show
        from actors.cluster.bench.soak.soak import SoakOptions

        file = args.file or ("soak-machines" if args.machines else "soak")
        asked = _asked(SoakOptions, args, runs=Path(args.runs), file=file)
        return show.run(asked, Path(args.out) if args.out else None, as_json=as_json)
    from actors.cluster.bench import desktops

    return desktops.run(_asked(desktops.DesktopsOptions, args), as_json=as_json)


def _asked(options: type[T], args: argparse.Namespace, **others: object) -> T:
    """The options that the arguments of their names give; `others` are made of arguments."""
    import msgspec

    names = [field.name for field in msgspec.structs.fields(options)]
    return options(**{name: said for name in names if (said := getattr(args, name, None)) is not None} | others)
