"""Show that tests can fail: every invariant's, and those of the ledger, of trust and of losses.

For each tests/mutants/<invariant>.patch: tests/invariants/test_<invariant>.py passes on a clean copy of the tree, and
a test in it fails on a copy with the patch applied. A patch that no longer applies, an import error or an unnoticed
mutant is a failure. Then small changes of the modules in areas.py are made by mutate.py, some of each module or with
--all every one, and each is caught by its module's tests or explained in accepted.txt.

Usage: python tests/mutants/run.py [INVARIANT | AREA | MODULE ...] [--all] [--each N] [--seed N] [--budget S] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import generated
from areas import AREAS

ROOT = Path(__file__).resolve().parents[2]
PATCHES = Path(__file__).resolve().parent
INVARIANTS = (
    "model_output_is_data",
    "faults_are_not_outcomes",
    "groups_end_once",
    "staleness_is_bounded",
    "committed_is_kept",
    "every_wait_has_a_deadline",
    "nothing_grows_without_bound",
    "nothing_outlives_the_run",
    "sampler_and_learner_agree",
    "ranks_train_as_one",
    "events_are_declared",
)
LIMIT_S = 300.0


@dataclass(frozen=True)
class Counts:
    """What one pytest run came to."""

    passed: int
    failed: int
    errors: int
    seconds: float
    tail: str


@dataclass(frozen=True)
class Verdict:
    """One mutant."""

    invariant: str
    ok: bool
    why: str
    failed: list[str]
    seconds: float


def copy_tree(target: Path) -> None:
    """The files git knows, and those it would take, into `target`."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    ).stdout
    for name in filter(None, listed.decode().split("\0")):
        source = ROOT / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)


def run_test(tree: Path, invariant: str) -> tuple[Counts, list[str]]:
    """Run the invariant's test file in `tree`."""
    report = tree / "report.xml"
    report.unlink(missing_ok=True)
    env = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    start = time.monotonic()
    command = [sys.executable, "-m", "pytest", f"tests/invariants/test_{invariant}.py", f"--junitxml={report}", "-x"]
    try:
        done = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        tail = (done.stdout + done.stderr)[-2000:]
    except subprocess.TimeoutExpired:
        return Counts(0, 0, 1, time.monotonic() - start, f"no result within {LIMIT_S:.0f} s"), []
    seconds = time.monotonic() - start
    if not report.exists():
        return Counts(0, 0, 1, seconds, tail), []
    cases = list(ET.parse(report).getroot().iter("testcase"))
    failed = [case.get("name", "?") for case in cases if case.find("failure") is not None]
    errors = sum(case.find("error") is not None for case in cases)
    return Counts(len(cases) - len(failed) - errors, len(failed), errors, seconds, tail), failed


def judge(invariant: str, scratch: Path) -> Verdict:
    """Whether the invariant's test passes as it is and fails with the patch."""
    start = time.monotonic()

    def verdict(ok: bool, why: str, failed: list[str]) -> Verdict:
        return Verdict(invariant, ok, why, failed, round(time.monotonic() - start, 1))

    patch = PATCHES / f"{invariant}.patch"
    if not patch.is_file():
        return verdict(False, "there is no patch", [])
    if not (ROOT / "tests/invariants" / f"test_{invariant}.py").is_file():
        return verdict(False, "there is no test", [])
    tree = scratch / invariant
    tree.mkdir()
    copy_tree(tree)
    clean, _ = run_test(tree, invariant)
    if clean.failed or clean.errors or not clean.passed:
        return verdict(False, f"the test does not pass without the patch:\n{clean.tail}", [])
    applied = subprocess.run(
        ["git", "apply", "--whitespace=nowarn", str(patch)], cwd=tree, capture_output=True, text=True, check=False
    )
    if applied.returncode:
        return verdict(False, f"the patch does not apply: {applied.stderr.strip()}", [])
    mutant, failed = run_test(tree, invariant)
    shutil.rmtree(tree, ignore_errors=True)
    if mutant.failed:
        return verdict(True, "caught", failed)
    if mutant.errors:
        return verdict(False, f"an error instead of a failure:\n{mutant.tail}", [])
    return verdict(False, "not caught: the test passes with the invariant broken", [])


def invariants(names: list[str], jobs: int, *, as_json: bool) -> bool:
    """Run the invariants' mutants; whether all are caught."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch, ThreadPoolExecutor(jobs) as pool:
        verdicts = []
        for found in pool.map(lambda name: judge(name, Path(scratch)), names):
            verdicts.append(found)
            if not as_json:
                mark = "caught" if found.ok else "NOT CAUGHT" if found.why.startswith("not caught") else "BROKEN"
                detail = ", ".join(found.failed) if found.ok else found.why
                say(f"{found.invariant:<28} {mark:<10} {found.seconds:6.1f} s  {detail}")
    caught = sum(found.ok for found in verdicts)
    if as_json:
        say(json.dumps([asdict(found) for found in verdicts], indent=2))
    else:
        say(f"{caught} of {len(verdicts)} mutants caught in {time.monotonic() - start:.0f} s")
    return caught == len(verdicts)


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
    parser.add_argument("--json", action="store_true", help="print the invariants' as one JSON document")
    parser.add_argument("--jobs", type=int, default=2, help="at once (default: 2)")
    args = parser.parse_args()
    files = {file for modules in AREAS.values() for file in modules}
    wrong = [name for name in args.names if name not in {*INVARIANTS, *AREAS, *files}]
    if wrong:
        parser.error(f"{wrong[0]} is no invariant, area or module; known: {', '.join([*INVARIANTS, *AREAS, *files])}")
    of_invariants = [name for name in args.names or INVARIANTS if name in INVARIANTS]
    of_areas = [name for name in args.names if name not in INVARIANTS]
    good = not of_invariants or invariants(of_invariants, args.jobs, as_json=args.json)
    if of_areas or (args.each and not args.names):
        good &= generated.run(
            copy_tree,
            most=None if args.all else args.each,
            seed=args.seed,
            budget_s=float("inf") if args.all else args.budget,
            jobs=args.jobs,
            files=of_areas,
            say=say,
        )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
