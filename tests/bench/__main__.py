"""Measures what desktops, engines, steps and thousands of seats cost here.

`make bench NAME=desktops ARGS="--boots 3"` prints figures and their bounds as JSON. Most bounds are ratios to a
reference workload of the same run. The exit status is 1 when a bound is missed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from runtime.errors import ConfigError
from tests.bench.report import declare, given

# Each module has `Options`, whose fields are the flags, and `run(options)`, which returns the exit status.
BENCHES = {
    "desktops": "an action, a boot and an oracle's episode on real desktops; needs root",
    "providers": "boots and steps of containers and virtual machines next to the sandbox's; needs root",
    "sampler": "tokens per second of engines on growing episodes: embedded, SGLang, transformers",
    "learner": "a step of RL on a run's newest groups, prompts shared and whole",
    "remembered": "episodes of a run played again on real desktops: whether they agree with its memo; needs root",
    "visited": "how sure weights are at the states that a run's rounds showed, kept fixed while weights change",
    "in_context": "what a model answers on families that it never learned, by what its prompt says of them",
    "shapes": "steps of larger shapes with random weights, and the share of a GPU's arithmetic that they use (MFU)",
}
CAPACITY = {
    "seats": "many seats in one desktop process, on simulated desktops: time of a step, memory, lateness",
    "boots": "boots of hundreds of simulated desktops over three machines in namespaces; needs root",
    "scale": "what a step of a desktop elsewhere costs the entry point, and the cores that 2,000 and 10,000 need",
}


def main(argv: Sequence[str]) -> int:
    """Measure and print; 1 when a bound is missed, 2 for arguments that make no sense."""
    parser = argparse.ArgumentParser(prog="make bench NAME=", description=__doc__)
    kinds = parser.add_subparsers(metavar="NAME", required=True)
    parts = kinds.add_parser("capacity", help="what a run of thousands of desktops costs").add_subparsers(required=True)
    for benches, home in ((BENCHES, kinds), (CAPACITY, parts)):
        for name, about in benches.items():
            bench = home.add_parser(name, help=about, description=about)
            bench.set_defaults(module=f"tests.bench.{'seats.seats' if name == 'seats' else name}")
            declare(bench, import_module(bench.get_default("module")).Options)
    args = parser.parse_args(argv)
    module = import_module(args.module)
    try:
        status: int = module.run(given(module.Options, args))
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
