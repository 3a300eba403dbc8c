"""Proof that a ledger adds up and that its payloads can be read.

Invariant: an audit changes nothing, goes by rows alone, and names everything it finds wrong. It shares no code with
what writes the rows, so that a mistake there does not excuse itself.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from actors.replay.messages import StepRef
from actors.replay.rules.admission import Lineages
from actors.replay.rules.groups import GroupEnding
from runtime.errors import StoreError
from runtime.messaging.message import BlobRef, Version
from runtime.segments import read_blob

MOST_NAMED = 20  # problems of one check
BOUND = "staleness_bound"  # in `meta`: the greatest `replay.max_staleness` that the run ever had


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """One check: what was looked at, how many of it, and what is wrong with it."""

    name: str
    looked_at: int
    wrong: list[str]


def audit(ledger: sqlite3.Connection, segments: Path) -> list[Checked]:
    """Every check of `ledger`, rows by name, and of the payloads in `segments`. Raises sqlite3.Error."""
    checks = (_groups, _episodes, _counters, _phases, _versions, _staleness, _references)
    ledger.execute("BEGIN")  # all of them see one moment, even beside a writer
    try:
        checked = [_checked(check.__name__.strip("_"), *check(ledger)) for check in checks]
        blobs = ledger.execute("SELECT * FROM blobs WHERE refs > 0").fetchall()
    finally:
        ledger.rollback()
    return [*checked, _checked("payloads", len(blobs), _payloads(ledger, blobs, segments))]


def refuse_unsound(ledger: sqlite3.Connection, *, strata: bool) -> None:
    """Raise StoreError naming the first counter or slot that its rows do not bear out.

    With `strata`, attempts at demonstration tasks count, too.
    """
    for check in (_counters, _slots, *([_attempts] if strata else [])):
        _, wrong = check(ledger)
        if (first := next(wrong, None)) is not None:
            raise StoreError(f"the ledger does not add up: {first}")


def _checked(name: str, looked_at: int, wrong: Iterator[str]) -> Checked:
    named = list(wrong)
    more = [f"and {len(named) - MOST_NAMED} more like these"] if len(named) > MOST_NAMED else []
    return Checked(name=name, looked_at=looked_at, wrong=named[:MOST_NAMED] + more)


def _number(ledger: sqlite3.Connection, sql: str) -> int:
    return int(ledger.execute(sql).fetchone()[0] or 0)


def _groups(ledger: sqlite3.Connection) -> tuple[int, Iterator[str]]:
    lineages, trained = _lineages(ledger)
    # A checkpoint made these steps final before a resume from an older one undid them: their groups stay trained.
    final = ledger.execute("SELECT id, made FROM leases WHERE state = 'returned' AND final AND made IS NOT NULL")
    undone = {row["id"] for row in final if lineages.abandoned(trained, Version.parse(row["made"]))}

    def wrong() -> Iterator[str]:
        endings = ", ".join(f"'{ending}'" for ending in GroupEnding)
        for row in ledger.execute(
            "SELECT g.*, l.state AS lease_state, l.final AS lease_final FROM groups g LEFT JOIN leases l "  # noqa: S608
            f"ON l.id = g.lease WHERE (g.state = 'ended') != (g.ending IS NOT NULL) OR g.ending NOT IN ({endings}) "
            "OR g.state NOT IN ('open', 'ready', 'leased', 'ended') OR (g.state != 'ended' AND g.final) "
            "OR (g.state = 'ended' AND g.ending != 'trained' AND NOT g.final) "
            "OR (g.ending = 'trained' AND (l.state IS NOT 'trained' OR l.final != g.final)) "
            "OR (g.state = 'leased' AND l.state IS NOT 'out')"
        ):
            if row["lease"] in undone and (row["state"], row["ending"], row["final"]) == ("ended", "trained", 1):
                continue
            yield (
                f"group {row['id']} is {row['state']} ({row['ending']}, {'final' if row['final'] else 'not final'})"
                f" with a lease that is {row['lease_state']}"
            )
        yield from _slots(ledger)[1]

    return _number(ledger, "SELECT COUNT(*) FROM groups"), wrong()


def _slots(ledger: sqlite3.Connection) -> tuple[int, Iterator[str]]:
    rows = ledger.execute(
        "SELECT s.group_id, s.slot FROM slots s JOIN groups g ON g.id = s.group_id WHERE s.state = 'out' "
        "AND g.state = 'open' AND NOT EXISTS (SELECT 1 FROM reservations r WHERE r.state = 'out' "
        "AND r.group_id = s.group_id AND r.slot = s.slot)"
    ).fetchall()
    return len(rows), (f"slot {row['slot']} of group {row['group_id']} is out without a reservation" for row in rows)


def _episodes(ledger: sqlite3.Connection) -> tuple[int, Iterator[str]]:
    def wrong() -> Iterator[str]:
        for row in ledger.execute(
            "SELECT e.token, r.state FROM episodes e LEFT JOIN reservations r ON r.token = e.token "
            "WHERE r.state IS NOT 'committed'"
        ):
            yield f"episode {row['token']} is kept, its reservation is {row['state']}"
        for row in ledger.execute(
            "SELECT r.token FROM reservations r LEFT JOIN episodes e ON e.token = r.token "
            "WHERE r.state = 'committed' AND e.token IS NULL"
        ):
            yield f"token {row['token']} was committed, and there is no episode"
        for row in ledger.execute(
            "SELECT group_id, slot, COUNT(*) AS n FROM reservations WHERE group_id IS NOT NULL AND state = 'committed' "
            "GROUP BY group_id, slot HAVING n > 1"
        ):
            yield f"slot {row['slot']} of group {row['group_id']} has {row['n']} episodes"

    return _number(ledger, "SELECT COUNT(*) FROM episodes"), wrong()


def _attempts(ledger: sqlite3.Connection) -> tuple[int, Iterator[str]]:
    noted = _number(ledger, "SELECT SUM(first_out + mixed_out + policy_out) FROM shown")
    out = _number(ledger, "SELECT COUNT(*) FROM reservations WHERE state = 'out' AND lane = 'demo'")
    wrong = [f"{noted} attempts at demonstrations are noted as out, seats have {out}"] if noted != out else []
    return out, iter(wrong)


def _counters(ledger: sqlite3.Connection) -> tuple[int, Iterator[str]]:
    counted = {row["name"]: row["value"] for row in ledger.execute("SELECT name, value FROM counters")}
    rows = {"opened": _number(ledger, "SELECT COUNT(*) FROM groups")}
    rows["demos"] = _number(ledger, "SELECT COUNT(*) FROM episodes WHERE lane = 'demo' AND success = 1")
    for column, table in (("ending", "groups WHERE state = 'ended'"), ("lane", "episodes")):
        name = "episodes" if column == "lane" else column
        for row in ledger.execute(f"SELECT {column}, COUNT(*) FROM {table} GROUP BY {column}"):  # noqa: S608
            rows[f"{name}:{row[0]}"] = row[1]
    ages: Counter[str] = Counter()
    for row in ledger.execute("SELECT body FROM evidence e JOIN leases l ON l.id = e.lease WHERE l.state = 'trained'"):
        ages.update(msgspec.json.decode(row["body"])["staleness"])
    rows |= {f"staleness:{age}": trajectories for age, trajectories in ages.items()}
    prefixes = ("ending:", "episodes:", "staleness:")
    names = sorted(rows.keys() | {name for name in counted if name.startswith(prefixes)})
    wrong = (
        f"{name}: {counted.get(name, 0)} counted, {rows.get(name, 0)} in rows"
        for name in names
        if counted.get(name, 0) != rows.get(name, 0)
    )
    return len(names), wrong


def _phases(ledger: sqlite3.Connection) -> tuple[int, Iterator[str]]:
    segments = ledger.execute("SELECT * FROM stays ORDER BY idx").fetchall()

    def wrong() -> Iterator[str]:
        for n, segment in enumerate(segments):
            name = f"segment {segment['idx']} ({segment['phase']})"
            if segment["idx"] != n:
                yield f"{name} comes where segment {n} is due"
                return
            root = segments[segment["root"]] if 0 <= segment["root"] <= n else None
            if root is None or root["root"] != root["idx"] or root["phase"] != segment["phase"]:
                yield f"{name} goes on with segment {segment['root']}, which it can't"
            if n and segment["seq_bound"] < segments[n - 1]["seq_bound"]:
                yield f"{name} begins at episode {segment['seq_bound']}, before the segment that it follows"
        sql = "SELECT l.id, l.stay FROM leases l LEFT JOIN stays s ON s.idx = l.stay WHERE s.idx IS NULL"
        for row in ledger.execute(sql):
            yield f"lease {row['id']} is of segment {row['stay']}, which there is not"
        for row in ledger.execute(
            "SELECT r.idx, r.phase, r.step_limit, COUNT(*) AS n FROM leases l JOIN stays s ON s.idx = l.stay "
            "JOIN stays r ON r.idx = s.root WHERE l.state = 'trained' GROUP BY r.idx HAVING n > r.step_limit"
        ):
            yield f"segment {row['idx']} ({row['phase']}) has {row['n']} steps, {row['step_limit']} is its most"
        for row in ledger.execute(
            "SELECT s.idx, coalesce(n.trained, 0) AS counted, (SELECT COUNT(*) FROM leases l WHERE l.stay = s.idx "
            "AND l.state = 'trained') AS made FROM stays s LEFT JOIN stay_steps n ON n.stay = s.idx "
            "WHERE counted != made"
        ):
            yield f"segment {row['idx']} counts {row['counted']} steps, its leases are {row['made']}"
        for row in ledger.execute(
            "SELECT g.id, g.stay, l.stay AS taken FROM groups g JOIN leases l ON l.id = g.lease "
            "WHERE g.ending = 'trained' AND g.stay != l.stay"
        ):
            yield f"group {row['id']} of segment {row['stay']} was trained in segment {row['taken']}"

    return len(segments), wrong()


def _lineages(ledger: sqlite3.Connection) -> tuple[Lineages, Version]:
    """The tree of lineages, and what the learner is at."""
    trained = ledger.execute("SELECT value FROM meta WHERE key = 'trained'").fetchone()
    rows = ledger.execute("SELECT lineage, parent FROM lineages")
    tree = {row["lineage"]: Version.parse(row["parent"]) if row["parent"] else None for row in rows}
    return Lineages(tree), Version.parse(trained[0] if trained else "0.0")


def _versions(ledger: sqlite3.Connection) -> tuple[int, Iterator[str]]:
    lineages, trained = _lineages(ledger)
    made = [
        (row["id"], Version.parse(row["made"]))
        for row in ledger.execute("SELECT id, made FROM leases WHERE state = 'trained' ORDER BY id")
    ]

    def wrong() -> Iterator[str]:
        for lease, version in made:
            if lineages.abandoned(trained, version):
                yield f"lease {lease} made {version}, which {trained} does not descend from"
        for step, ((_, before), (lease, version)) in enumerate(itertools.pairwise(made), 2):
            if version.step != before.step + 1 or version.lineage < before.lineage:
                yield f"lease {lease} made {version} as step {step}, after {before}"
        if made and made[-1][1].step != trained.step:
            yield f"the newest step is {made[-1][1]}, the learner is said to be at {trained}"
        saved = ledger.execute("SELECT value FROM meta WHERE key = 'checkpointed'").fetchone()
        if saved and lineages.abandoned(max(trained, Version.parse(saved[0])), Version.parse(saved[0])):
            yield f"the checkpoint of {saved[0]} is of weights that {trained} does not descend from"
        for row in ledger.execute("SELECT lineage, parent FROM lineages WHERE lineage > 0"):
            if row["parent"] is None or Version.parse(row["parent"]).lineage >= row["lineage"]:
                yield f"lineage {row['lineage']} begins at {row['parent']}"

    return len(made), wrong()


def _staleness(ledger: sqlite3.Connection) -> tuple[int, Iterator[str]]:
    bound = ledger.execute("SELECT value FROM meta WHERE key = ?", (BOUND,)).fetchone()
    most = int(bound[0]) if bound else 0
    lineages, _ = _lineages(ledger)
    rows = ledger.execute(
        "SELECT g.id, g.oldest, g.newest, l.made FROM groups g JOIN leases l ON l.id = g.lease "
        "WHERE g.ending = 'trained' AND g.oldest IS NOT NULL"
    ).fetchall()

    def wrong() -> Iterator[str]:
        for row in rows:
            made = Version.parse(row["made"])
            drawn = [Version.parse(row["oldest"]), Version.parse(row["newest"])]
            before = max([Version(lineage=made.lineage, step=made.step - 1), *drawn])
            behind = lineages.oldest_staleness(before, drawn)
            if behind is None:
                yield f"group {row['id']}, trained into {made}, was drawn from abandoned weights"
            elif behind > most:
                yield f"group {row['id']} was {behind} steps stale when it was trained into {made}, {most} is the most"

    return len(rows), wrong()


def _references(ledger: sqlite3.Connection) -> tuple[int, Iterator[str]]:
    """That every payload an episode still needs is counted once for each of its steps."""
    owed: Counter[tuple[str, int, str]] = Counter()
    for row in ledger.execute("SELECT s.ref FROM episodes e JOIN steps s ON s.token = e.token WHERE e.live = 1"):
        step = msgspec.msgpack.decode(row["ref"], type=StepRef)
        owed.update((blob.segment, blob.offset, blob.digest) for blob in step.blobs)
    counted = {
        (row["segment"], row["at"], row["digest"]): row["refs"]
        for row in ledger.execute("SELECT * FROM blobs WHERE refs > 0")
    }
    wrong = (
        f"{key[0]} at {key[1]}: {owed.get(key, 0)} steps need it, {counted.get(key, 0)} are counted"
        for key in sorted(owed.keys() | counted.keys())
        if owed.get(key, 0) != counted.get(key, 0)
    )
    return len(counted), wrong


def _payloads(ledger: sqlite3.Connection, blobs: list[sqlite3.Row], segments: Path) -> Iterator[str]:
    for row in blobs:
        blob = BlobRef(segment=row["segment"], offset=row["at"], size=row["size"], digest=row["digest"])
        try:
            read_blob(segments, blob)
        except StoreError as error:
            # Of a run that goes on, it may have been given up since.
            key = (blob.segment, blob.offset, blob.digest)
            sql = "SELECT 1 FROM blobs WHERE segment = ? AND at = ? AND digest = ? AND refs > 0"
            if ledger.execute(sql, key).fetchone() is not None:
                yield str(error)
