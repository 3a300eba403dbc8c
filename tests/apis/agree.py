"""Compares the metrics here with the published ones on the twins: `make agree`.

Invariant: both are given the same. The published ones run without network and rights, in a sandbox that sees their
environment alone. A difference is explained by what the metric declares as `instead`; else the command fails.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from actors.cluster import output
from apis.tasks.metrics.metric import Score, scored
from apis.tasks.metrics.registry import METRICS
from apis.tasks.verify.verify import FileView
from tests.apis.metric_twins import Twin, as_read
from tests.apis.test_metric_twins import GARBAGE, TWINS

ROOT = Path(__file__).parents[2]
HOME, CODE = ROOT / ".venv-osworld", Path(__file__).with_name("published.py")
SAME = 0.001  # of a score; ratios are rounded differently
WHOLE_S = 600
# Marks in the first bytes of an archive, by which a file gets the suffix that published metrics want.
MARKS = (("xlsx", b"xl/"), ("docx", b"word/"), ("pptx", b"ppt/"), ("odt", b"opendocument.text"))
FILED = {"check_list"}  # published: what a command said, as a file


class Case(NamedTuple):
    """A twin's result, and which of it: right, wrong, garbage, or elsewhere (a file under another name)."""

    twin: Twin
    result: Any
    kind: str


def cases(twins: Sequence[Twin]) -> Iterator[Case]:
    """Each twin's results; for a file also some garbage, another for each twin, and no file at all."""
    for number, twin in enumerate(twins):
        yield Case(twin, twin.right, "right")
        yield from (Case(twin, result, "wrong") for result in twin.wrong)
        if isinstance(twin.right, FileView):
            yield Case(twin, FileView("file", data=GARBAGE[number % len(GARBAGE)]), "garbage")
            yield Case(twin, FileView("missing"), "elsewhere")


def suffix(value: Any) -> str:
    """What the name of such a file ends in."""
    packed = isinstance(value, FileView) and value.data[:2] == b"PK"
    return next((f".{kind}" for kind, mark in MARKS if packed and mark in value.data), "")


def sent(value: Any, called: str) -> Any:
    """An argument as JSON. A file that is missing is none, as the published getters have it."""
    if isinstance(value, list):
        return [sent(one, called) for one in value]
    if not isinstance(value, FileView):
        return value
    if value.kind == "missing":
        return None
    name = value.name or called
    views = {name: value, **value.beside}
    return {"name": name, "files": {key: base64.b64encode(one.data).decode() for key, one in views.items()}}


def order(case: Case) -> str:
    twin = case.twin
    told = twin.name in FILED and isinstance(case.result, str)
    result = FileView("file", data=case.result.encode()) if told else case.result
    arguments = [sent(result, "mine" + suffix(twin.right))]
    arguments += [] if twin.expected is None else [sent(twin.expected, "gold" + suffix(twin.expected))]
    return json.dumps({"metric": twin.name, "arguments": arguments, "options": twin.options})


def published(orders: Sequence[str]) -> list[dict[str, Any]]:
    """What the published metrics answer. Raises CalledProcessError and TimeoutExpired."""
    python = (HOME / "bin/python").resolve()
    base = python.parents[1]  # /usr, or where another interpreter lies
    bound = () if base == Path("/usr") else ("--ro-bind", str(base), str(base))
    command = [
        "bwrap", "--unshare-all", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL", "--die-with-parent",
        "--new-session", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib",
        "--symlink", "usr/lib64", "/lib64", *bound, "--ro-bind", str(HOME), str(HOME),
        "--ro-bind", str(CODE), "/judge.py", "--proc", "/proc", "--dev", "/dev", "--size", str(1 << 30),
        "--tmpfs", "/tmp", "--chdir", "/tmp", "--clearenv", "--setenv", "HOME", "/tmp",
        "--setenv", "LANG", "C.UTF-8", "--setenv", "OPENBLAS_NUM_THREADS", "1",
        str(HOME / "bin/python"), "-I", "/judge.py",
    ]  # fmt: skip
    said = subprocess.run(command, input="\n".join(orders), stdout=-1, text=True, check=True, timeout=WHOLE_S).stdout
    return [json.loads(line) for line in said.splitlines()]


def agrees(ours: Score, theirs: dict[str, Any]) -> bool:
    """Whether the scores are the same; what raises solves nothing."""
    return abs(ours.value - theirs.get("score", 0.0)) <= SAME


def main() -> int:
    """Print a line per metric and per difference. Fails where a difference is not explained."""
    if not (HOME / ".computerrl").exists():
        output.line("the published metrics are not here:  make osworld-judge")
        return 1
    asked = list(cases(TWINS))
    counts: dict[str, Counter[str]] = {name: Counter() for name in METRICS}
    kinds: Counter[tuple[str, bool]] = Counter()
    lines, missing, unexplained = [], {}, 0
    for case, theirs in zip(asked, published([order(case) for case in asked]), strict=True):
        name = case.twin.name
        if "missing" in theirs:
            missing[name] = theirs["missing"]
            counts[name]["not compared"] += 1
            continue
        values = (as_read(value, METRICS[name].reads) for value in (case.result, case.twin.expected))
        ours = scored(METRICS[name], *values, case.twin.options)
        same = agrees(ours, theirs)
        counts[name].update(twins=1, agree=same, differ=not same, raised="raised" in theirs)
        kinds[case.kind, same] += 1
        if not same:
            why = METRICS[name].instead
            unexplained += not why
            told = theirs.get("raised", theirs.get("score"))
            found = f"{name} ({case.kind}; {ours.reason[:60]}): here {ours.value:g}, published {told}"
            lines.append(f"{found}: {why or 'NOT EXPLAINED'}")
    columns = ("twins", "agree", "differ", "raised", "not compared")
    output.line(f"{'metric':44}" + "".join(f"{column:>13}" for column in columns))
    for name, count in sorted(counts.items()):
        output.line(f"{name:44}" + "".join(f"{count[column]:13}" for column in columns))
    whole = sum(counts.values(), Counter())
    for line in [*lines, *(f"{name}: not compared: {why}" for name, why in missing.items())]:
        output.line(line)
    share = whole["agree"] / whole["twins"]
    for kind in dict.fromkeys(kind for kind, _ in kinds):
        output.line(f"{kind}: {kinds[kind, True]} of {kinds[kind, True] + kinds[kind, False]} agree")
    output.line(f"{whole['agree']} of {whole['twins']} agree: {share:.1%}; published raised on {whole['raised']}")
    return int(unexplained > 0)


if __name__ == "__main__":
    sys.exit(main())
