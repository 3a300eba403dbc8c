"""Show that every invariant's test can fail.

For each tests/mutants/<invariant>.patch: tests/invariants/test_<invariant>.py passes on a clean copy of the tree, and
a test in it fails on a copy with the patch applied. A patch that no longer applies, an import error or an unnoticed
mutant is a failure. Usage: python tests/mutants/run.py [INVARIANT ...] [--json] [--jobs N]
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


def main() -> int:
    """0 when every mutant is caught."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("invariants", nargs="*", metavar="INVARIANT", help="only these (default: all)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--jobs", type=int, default=2, help="at once (default: 2)")
    args = parser.parse_args()
    wrong = [name for name in args.invariants if name not in INVARIANTS]
    if wrong:
        parser.error(f"{wrong[0]} is no invariant; known: {', '.join(INVARIANTS)}")
    names = args.invariants or list(INVARIANTS)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch, ThreadPoolExecutor(args.jobs) as pool:
        verdicts = []
        for found in pool.map(lambda name: judge(name, Path(scratch)), names):
            verdicts.append(found)
            if not args.json:
                mark = "caught" if found.ok else "NOT CAUGHT" if found.why.startswith("not caught") else "BROKEN"
                detail = ", ".join(found.failed) if found.ok else found.why
                sys.stdout.write(f"{found.invariant:<28} {mark:<10} {found.seconds:6.1f} s  {detail}\n")
                sys.stdout.flush()
    caught = sum(found.ok for found in verdicts)
    if args.json:
        sys.stdout.write(json.dumps([asdict(found) for found in verdicts], indent=2) + "\n")
    else:
        sys.stdout.write(f"{caught} of {len(verdicts)} mutants caught in {time.monotonic() - start:.0f} s\n")
    return 0 if caught == len(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
