"""Show that tests can fail: every invariant's, and those of the ledger, of trust and of losses.

For each tests/invariants/test_<invariant>.py: it passes on a copy of the tree, and a test in it fails once
tests/mutants/<invariant>.patch is applied. A patch that no longer applies, an import error or an unnoticed mutant is a
failure. Then small changes of the modules in areas.py are made by mutate.py, some of each module or with --all every
one, and each is caught by its module's tests or explained in accepted.txt.

Usage: python -m tests.mutants.run [INVARIANT | AREA | MODULE ...] [--all] [--each N] [--seed N] [--budget S]
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from tests.mutants import generated
from tests.mutants.areas import AREAS

ROOT = Path(__file__).resolve().parents[2]
PATCHES = Path(__file__).resolve().parent
INVARIANTS = sorted(path.stem.removeprefix("test_") for path in (ROOT / "tests" / "invariants").glob("test_*.py"))
LIMIT_S = 300.0


@contextmanager
def copies(count: int) -> Iterator[list[Path]]:
    """Copies of the files that git knows or would take."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout.decode().split("\0")
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        os.chmod(scratch, 0o755)  # what reads a guest's files is another user, who has to find the program
        trees = [Path(scratch) / str(number) for number in range(count)]
        for tree in trees:
            for name in filter(None, listed):
                if (ROOT / name).is_file():
                    (tree / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(ROOT / name, tree / name)
        yield trees


def wrong_with(invariant: str, tree: Path, server: generated.Server) -> str:
    """What is wrong with an invariant's mutant; nothing where the test passes without the patch and fails with it."""
    tests = [f"tests/invariants/test_{invariant}.py"]
    clean = server.run(tests, LIMIT_S)
    if clean["code"] != 0:
        return f"the test does not pass without the patch:\n{clean['tail']}"
    apply = ["git", "apply", "--whitespace=nowarn", str(PATCHES / f"{invariant}.patch")]
    applied = subprocess.run(apply, cwd=tree, capture_output=True, text=True, check=False)
    if applied.returncode:
        return f"the patch does not apply: {applied.stderr.strip()}"
    mutant = server.run(tests, LIMIT_S)
    subprocess.run([*apply, "--reverse"], cwd=tree, check=True)
    if mutant["code"] == 0:
        return "not caught: the test passes with the invariant broken"
    return "" if mutant["code"] == 1 else f"an error instead of a failure:\n{mutant['tail']}"


def invariants(names: list[str], trees: list[Path]) -> bool:
    """Run the invariants' mutants; whether all are caught."""
    began = time.monotonic()

    def judged(number: int) -> int:
        """How many are caught of those that fall to one copy."""
        caught, server = 0, generated.Server(trees[number], "")
        try:
            for name in names[number :: len(trees)]:
                start = time.monotonic()
                wrong = wrong_with(name, trees[number], server)
                caught += not wrong
                say(f"{name:<28} {wrong or 'caught'}, {time.monotonic() - start:.1f} s")
        finally:
            server.close()
        return caught

    with ThreadPoolExecutor(len(trees)) as pool:
        caught = sum(pool.map(judged, range(len(trees))))
    say(f"{caught} of {len(names)} mutants caught in {time.monotonic() - began:.0f} s")
    return caught == len(names)


def say(line: str) -> None:
    """One line of output, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """0 when every mutant is caught or explained."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these (default: all)")
    parser.add_argument("--all", action="store_true", help="every generated mutant, without a limit of time")
    parser.add_argument("--each", type=int, default=5, help="generated mutants of each module (default: 5; 0: none)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default: 1)")
    parser.add_argument("--budget", type=float, default=270.0, help="seconds for the generated ones (default: 270)")
    parser.add_argument("--jobs", type=int, default=2, help="at once (default: 2)")
    args = parser.parse_args()
    files = {file for modules in AREAS.values() for file in modules}
    wrong = [name for name in args.names if name not in {*INVARIANTS, *AREAS, *files}]
    if wrong:
        parser.error(f"{wrong[0]} is no invariant, area or module; known: {', '.join([*INVARIANTS, *AREAS, *files])}")
    of_invariants = [name for name in args.names or INVARIANTS if name in INVARIANTS]
    of_areas = [name for name in args.names if name not in INVARIANTS]
    with copies(args.jobs) as trees:
        good = not of_invariants or invariants(of_invariants, trees)
        if of_areas or (args.each and not args.names):
            good &= generated.run(
                trees,
                most=None if args.all else args.each,
                seed=args.seed,
                budget_s=float("inf") if args.all else args.budget,
                files=of_areas,
                say=say,
            )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
