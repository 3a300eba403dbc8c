"""Generated mutants of the modules in `areas`, each run against its module's tests alone.

Invariant: a seed and a number draw the same mutants of a source each time. Each is caught, or it stands with a reason
in `accepted.txt`, and no reason stands there for one that is caught: else the verdict is bad. Of all mutants of an
area at least `CAUGHT_LEAST` are caught.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.mutants.areas import AREAS, PRELOADED
from tests.mutants.mutate import Mutant, mutants

ROOT = Path(__file__).resolve().parents[2]
ACCEPTED = Path(__file__).resolve().parent / "accepted.txt"
SERVER = Path(__file__).resolve().parent / "server.py"
CAUGHT_LEAST = 0.9
LIMIT_LEAST_S = 20.0  # of one mutant; else five times what its tests take
CLEAN_S = 120.0
FIRST = 2  # test files that are run before a module's others
ENV = {"CI": "true", "OMP_NUM_THREADS": "1"}  # property tests look at the same examples each time
CAUGHT, SURVIVED, UNREACHED = "caught", "survived", "not reached"


@dataclass(frozen=True)
class Place:
    """What names a mutant: a file, a function, its line and what becomes of it."""

    file: str
    function: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.file} {self.function}\n- {self.before}\n+ {self.after}"


@dataclass(frozen=True)
class Found:
    """What became of one mutant."""

    area: str
    place: Place
    outcome: str
    seconds: float


def read_accepted(text: str) -> dict[Place, str]:
    """Reasons by place. Raises ValueError for what is not four lines with a reason."""
    found: dict[Place, str] = {}
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for where, before, after, why in zip(*(iter(lines),) * 4, strict=True):
        file, _, function = where.partition(" ")
        if not (before[:1], after[:1], why[:2]) == ("-", "+", "= ") or not why[2:].strip():
            raise ValueError(f"accepted.txt: after {where!r} come lines that begin with -, + and =, the last a reason")
        found[Place(file, function, before[2:], after[2:])] = why[2:]
    return found


def place_of(file: str, one: Mutant) -> Place:
    """The name of a mutant of `file`."""
    return Place(file, one.function, one.before, one.after)


def drawn(file: str, found: list[Mutant], most: int | None, seed: int) -> list[Mutant]:
    """`most` of a module's mutants, in order; all without `most`."""
    if most is None or most >= len(found):
        return found
    return sorted(Random(f"{seed} {file}").sample(found, most))


class Server:
    """One `server.py` in a copy of the tree."""

    def __init__(self, tree: Path, area: str) -> None:
        self._tree = tree
        env = {**os.environ, **ENV, "PYTHONPATH": str(tree)}
        self._process = subprocess.Popen(
            [sys.executable, str(SERVER), *PRELOADED.get(area, [])],
            cwd=tree, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def run(self, tests: list[str], limit_s: float, file: str = "", source: bytes = b"") -> dict[str, Any]:
        """The answer to a job."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        job: dict[str, Any] = {"tests": tests, "limit_s": limit_s}
        if file:
            job |= {"file": str(self._tree / file), "source": source.decode()}
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.communicate()


def run_area(
    area: str,
    chosen: dict[str, list[Mutant]],
    trees: list[Path],
    until: float,
    explained: Collection[Place],
    say: Callable[[str], None],
) -> list[Found]:
    """Run mutants of one area, by file, a server in each tree; survivors that are not `explained` are said at once.

    Raises RuntimeError where clean tests fail.
    """
    work: queue.SimpleQueue[tuple[str, Mutant | None]] = queue.SimpleQueue()
    jobs = [(file, one) for file, of_file in chosen.items() for one in of_file]
    limits: dict[str, float] = {}
    for job in jobs:
        work.put(job)

    def serve(tree: Path) -> list[Found]:
        found: list[Found] = []
        server = Server(tree, area)
        try:
            while time.monotonic() < until:
                try:
                    file, one = work.get_nowait()
                except queue.Empty:
                    break
                assert one is not None
                tests, place, began = AREAS[area][file], place_of(file, one), time.monotonic()
                source, survived = one.of((tree / file).read_bytes()), True
                for stage in filter(None, (tests[:FIRST], tests[FIRST:])):  # most are caught before the rest is loaded
                    key = " ".join(stage)
                    if key not in limits:
                        clean = server.run(stage, CLEAN_S)
                        if clean["code"] != 0:
                            raise RuntimeError(f"the tests of {file} do not pass without a mutant:\n{clean['tail']}")
                        limits[key] = max(LIMIT_LEAST_S, 5 * clean["seconds"])
                    survived = survived and server.run(stage, limits[key], file, source)["code"] == 0
                outcome = SURVIVED if survived else CAUGHT
                found.append(Found(area, place, outcome, time.monotonic() - began))
                if survived and place not in explained:
                    say(f"no test notices, and no reason is given:\n{place}")
        finally:
            server.close()
        return found

    with ThreadPoolExecutor(len(trees)) as pool:
        results = [one for part in pool.map(serve, trees) for one in part]
    done = Counter(one.place for one in results)
    for file, one in jobs:
        if done[place_of(file, one)] > 0:
            done[place_of(file, one)] -= 1
        else:
            results.append(Found(area, place_of(file, one), UNREACHED, 0.0))
    return results


def judge(results: Iterable[Found], accepted: dict[Place, str], known: set[Place], *, complete: bool) -> list[str]:
    """What is wrong; nothing where all is as it should be. `known` are all mutants that there are."""
    wrong: list[str] = []
    results = list(results)
    survivors = {one.place for one in results if one.outcome == SURVIVED}
    if unexplained := len(survivors - accepted.keys()):
        wrong.append(f"{unexplained} mutants survive without a reason in accepted.txt")
    wrong += [f"accepted.txt names what is no mutant any more:\n{place}" for place in accepted.keys() - known]
    if complete:
        wrong += [
            f"accepted.txt gives a reason for what is caught:\n{place}"
            for place in accepted.keys() & {one.place for one in results if one.outcome == CAUGHT} - survivors
        ]
    if results and all(one.outcome == UNREACHED for one in results):
        wrong.append("the time was over before a mutant had been run")
    for area in {one.area for one in results}:
        counts = Counter(one.outcome for one in results if one.area == area)
        judged = counts[CAUGHT] + counts[SURVIVED]
        if complete and judged and counts[CAUGHT] < CAUGHT_LEAST * judged:
            wrong.append(f"{area}: {counts[CAUGHT]} of {judged} are caught, less than {CAUGHT_LEAST:.0%}")
    return wrong


def run(
    trees: list[Path],
    *,
    most: int | None,
    seed: int,
    budget_s: float,
    files: list[str],
    say: Callable[[str], None],
) -> bool:
    """Run `most` mutants of each module (all without), of `files` alone if any, in copies of the tree; is all well?"""
    began = time.monotonic()
    accepted = read_accepted(ACCEPTED.read_text())
    known: set[Place] = set()
    results: list[Found] = []
    wrong: list[str] = []
    for area, modules in AREAS.items():
        chosen: dict[str, list[Mutant]] = {}
        for file in modules:
            found = mutants((ROOT / file).read_bytes())
            known |= {place_of(file, one) for one in found}
            if not files or file in files or area in files:
                chosen[file] = drawn(file, found, most, seed)
        if any(chosen.values()):
            try:
                of_area = run_area(area, chosen, trees, began + budget_s, accepted, say)
            except RuntimeError as error:
                wrong.append(str(error))
                continue
            results += of_area
            counts = Counter(one.outcome for one in of_area)
            told = ", ".join(f"{counts[outcome]} {outcome}" for outcome in (CAUGHT, SURVIVED, UNREACHED))
            say(f"{area}: {told}; {sum(one.seconds for one in of_area):.0f} s of tests")
    wrong += judge(results, accepted, known, complete=most is None and not files)
    for line in wrong:
        say(line)
    total = Counter(one.outcome for one in results)
    say(
        f"{total[CAUGHT]} of {total[CAUGHT] + total[SURVIVED]} generated mutants caught, "
        f"{total[SURVIVED]} survive ({len(accepted)} explained), in {time.monotonic() - began:.0f} s"
    )
    return not wrong
