"""Run inside a desktop: a fixed amount of the work that observing is made of, to give other costs as multiples of it.

Invariant: a round is the same work in every session. It has Python, round trips to the X server and calls over the
accessibility bus. The bus's own registry answers the calls, so that no application takes part. Each line on standard
input asks for a round; each line on standard output, `done`, ends it. The first says that the programs are loaded.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

# About a third of the processor time each.
LOOPS = 900_000
ROUND_TRIPS = 1600
CALLS = 620
READY, DONE = "ready", "done"  # what it says, a line each


def _python() -> int:
    total = 0
    for number in range(LOOPS):
        total = (total + number * number) % 1_000_003
    return total


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


def main(argv: list[str]) -> None:
    """Work rounds until standard input ends."""
    sys.path.insert(0, sys.argv[1])  # the folder of `guest`
    from guest.session.session import enter  # type: ignore[import-not-found, unused-ignore]

    parser = argparse.ArgumentParser(prog="reference")
    parser.add_argument("--run", type=Path, required=True)
    enter(parser.parse_args(argv).run)

    import gi  # type: ignore[import-not-found, unused-ignore]

    gi.require_version("Atspi", "2.0")
    from gi.repository import Atspi
    from guest.screen.screenlink import ScreenLink

    link = ScreenLink()
    Atspi.init()
    registry = Atspi.get_desktop(0)
    registry.get_id()  # connects
    _say(READY)
    for _ in sys.stdin:
        _python()
        for _ in range(ROUND_TRIPS):
            link.flush()
        for _ in range(CALLS):
            registry.get_id()
        _say(DONE)


if __name__ == "__main__":
    main(sys.argv[2:])
