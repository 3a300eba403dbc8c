"""What commands and reports ask of a ledger. Nothing here writes."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator
from typing import Annotated

import msgspec

from actors.replay.messages import KEPT, ROLLED_BACK, TRIAL, Phase, StepRef
from actors.replay.statistics import RoundEpisode

Database = sqlite3.Connection  # with rows by name, of `ledger_file.reading`
Row = sqlite3.Row


def damage(db: Database) -> str:
    """What is wrong with the file itself; "" where it is sound."""
    answer = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
    return "" if answer == "ok" else answer


def at_one_moment(db: Database) -> bool:
    """Let all further queries see one moment; False while the tables are still being made."""
    if not db.execute("PRAGMA user_version").fetchone()[0]:
        return False
    db.execute("BEGIN")
    return True


def meta(db: Database) -> dict[str, str]:
    """What the ledger keeps of itself and its run."""
    return dict(map(tuple, db.execute("SELECT key, value FROM meta")))


# -- phases


def phases(db: Database) -> list[Row]:
    """The segments in phases that led to the newest weights, in order, without what a resume undid.

    Columns: idx, root, phase, start (a version), cause, evidence (JSON), and the rest of the table's.
    """
    segments: list[Row] = []
    for row in db.execute("SELECT * FROM stays ORDER BY idx DESC"):
        if not segments or row["idx"] < segments[-1]["root"]:  # what lies from its root on was undone
            segments.append(row)
    return segments[::-1]


def trials(db: Database) -> list[Row]:
    """The segments in which a pulse was tried, kept or rolled back, in order, undone ones too; columns likewise."""
    sql = "SELECT * FROM stays WHERE idx = root AND cause IN (?, ?, ?) ORDER BY idx"
    return db.execute(sql, (TRIAL, KEPT, ROLLED_BACK)).fetchall()


def made_in_trials(db: Database) -> set[str]:
    """The versions that were made while a pulse was tried."""
    sql = "SELECT made FROM leases l JOIN stays s ON s.idx = l.stay JOIN stays r ON r.idx = s.root WHERE r.cause = ?"
    return {row["made"] for row in db.execute(sql, (TRIAL,)) if row["made"] is not None}


def segment(db: Database) -> Row | None:
    """The newest segment: columns as `phases` has them, and trained, its optimizer steps; None before the first."""
    row: Row | None = db.execute(
        "SELECT s.*, coalesce(c.trained, 0) AS trained FROM stays s LEFT JOIN stay_steps c ON c.stay = s.idx"
        " ORDER BY s.idx DESC LIMIT 1"
    ).fetchone()
    return row


def has_cloned(db: Database) -> bool:
    """Whether the run has begun to clone, or is past it."""
    return bool(db.execute("SELECT EXISTS (SELECT 1 FROM stays WHERE phase != 'demo')").fetchone()[0])


def evaluates_last(db: Database) -> bool:
    """Whether the run has begun its last evaluation, or is over."""
    final = "SELECT EXISTS (SELECT 1 FROM rounds WHERE name = 'final' AND abandoned = 0)"
    newest = segment(db)
    return (newest is not None and newest["phase"] == "done") or bool(db.execute(final).fetchone()[0])


def lineages(db: Database) -> int:
    """How many times a learner began again."""
    return int(db.execute("SELECT COUNT(*) FROM lineages").fetchone()[0])


# -- optimizer steps


def steps(db: Database, *, after: int = 0, most: int = -1) -> list[Row]:
    """The optimizer steps that stand after lease `after`, in order; the last `most` of them.

    Columns: id, made (a version), wall (seconds since the epoch), stay (phase segment), success, entropy, figures and
    body (its evidence, both JSON), phase.
    """
    return db.execute(
        "SELECT l.id, l.made, l.wall, l.stay, l.success, l.entropy, l.figures, s.phase, e.body FROM leases l"
        " JOIN stays s ON s.idx = l.stay LEFT JOIN evidence e ON e.lease = l.id"
        " WHERE l.state = 'trained' AND l.id > ? ORDER BY l.id DESC LIMIT ?",
        (after, most),
    ).fetchall()[::-1]


_NOT_FIGURES = frozenset(("lease", "version", "stay", "rl_step", "stay_step", "success"))


def figures_of(step: Row) -> dict[str, float]:
    """All figures of a row of `steps`: the learner's and its evidence's, `NAME/KEY` where a name has several.

    `success` is of the training episodes of a step of RL.
    """
    figures = dict[str, float]()
    for name, value in (json.loads(step["figures"] or "{}") | json.loads(step["body"] or "{}")).items():
        parts = {f"{name}/{key}": part for key, part in value.items()} if isinstance(value, dict) else {name: value}
        if name not in _NOT_FIGURES:
            figures |= {name: float(part) for name, part in parts.items() if isinstance(part, int | float)}
    if step["phase"] == Phase.RL and step["success"] is not None:  # cloning and pulses play no training episodes
        figures["success"] = float(step["success"])
    return figures


def payload_files(db: Database) -> list[str]:
    """The files of stored steps that something in the ledger refers to."""
    return [name for (name,) in map(tuple, db.execute("SELECT DISTINCT segment FROM blobs WHERE refs > 0"))]


def steps_by_phase(db: Database) -> dict[str, int]:
    """Optimizer steps of each phase, all segments together."""
    return dict(
        map(
            tuple,
            db.execute("SELECT s.phase, sum(c.trained) FROM stay_steps c JOIN stays s ON s.idx = c.stay GROUP BY 1"),
        )
    )


# -- evaluation rounds


def round_remembered(db: Database, round_id: int) -> float:
    """The share of a round's steps that a memo gave; 0 of none."""
    rows = db.execute(
        "SELECT s.ref FROM episodes e JOIN steps s ON s.token = e.token WHERE e.round_id = ?", (round_id,)
    )
    given = [msgspec.msgpack.decode(row[0], type=StepRef).remembered for row in rows]
    return sum(given) / len(given) if given else 0.0


def rounds_so_far(db: Database) -> list[Row]:
    """The same rounds: id, name, version, temperature, played, planned and successes (episodes), closed."""
    return db.execute(
        "SELECT r.id, r.name, r.version, r.temperature, r.closed, count(e.seq) AS played,"
        " coalesce(sum(e.success), 0) AS successes,"
        " (SELECT count(*) FROM round_tasks t WHERE t.round_id = r.id) AS planned"
        " FROM rounds r LEFT JOIN episodes e ON e.round_id = r.id"
        " WHERE r.abandoned = 0 AND r.name NOT GLOB 'trial[0-9]*' GROUP BY r.id ORDER BY r.id"
    ).fetchall()


def round_tallies(db: Database, round_id: int) -> list[tuple[int, int]]:
    """Successes and episodes of each instance of a round."""
    rows = db.execute("SELECT sum(success), count(*) FROM episodes WHERE round_id = ? GROUP BY task", (round_id,))
    return [*map(tuple, rows)]


def rounds(db: Database) -> list[Row]:
    """The rounds of held-out tasks that count, in the order of opening; none of a trial."""
    sql = "SELECT * FROM rounds WHERE abandoned = 0 AND name NOT GLOB 'trial[0-9]*' ORDER BY id"
    return db.execute(sql).fetchall()


def round_episodes(db: Database, round_id: int) -> list[RoundEpisode]:
    """What a round was made of: its episodes as they ended, then what it lost to faults."""
    played = db.execute("SELECT * FROM episodes WHERE round_id = ? ORDER BY seq", (round_id,))
    lost = db.execute("SELECT task FROM round_tasks WHERE round_id = ? AND state = 'fault' ORDER BY n", (round_id,))
    ended = [
        RoundEpisode(
            task=row["task"],
            success=bool(row["success"]),
            feasible=bool(row["feasible"]),
            reason=row["reason"],
            score=row["score"],
            token=row["token"],
        )
        for row in played
    ]
    return [*ended, *(RoundEpisode(task=row["task"], fault=True) for row in lost)]


def families_played(db: Database) -> list[str]:
    """The families, or task sets, of all episodes that were handed out."""
    rows = db.execute(
        "SELECT DISTINCT substr(task, 1, instr(task || '/', '/') - 1) AS name FROM reservations ORDER BY 1"
    )
    return [row["name"] for row in rows]


def trained_families(db: Database) -> set[str]:
    """The families that the run has demonstrated, or played to learn from."""
    rows = db.execute("SELECT task FROM shown UNION SELECT task FROM groups")
    return {row["task"].partition("/")[0] for row in rows}


# -- groups, episodes and their steps


def group_endings(db: Database) -> dict[str, int]:
    """Groups by how they ended, or by state where they have not."""
    return dict(map(tuple, db.execute("SELECT coalesce(ending, state), count(*) FROM groups GROUP BY 1")))


def counters(db: Database) -> dict[str, int]:
    """What the ledger counts along the way, by name."""
    return dict(map(tuple, db.execute("SELECT name, value FROM counters")))


def groups_alive(db: Database) -> dict[str, int]:
    """Groups that have not ended, by state."""
    return dict(map(tuple, db.execute("SELECT state, count(*) FROM groups WHERE state != 'ended' GROUP BY state")))


def samplers(db: Database) -> list[Row]:
    """The samplers that were heard: name, version."""
    return db.execute("SELECT name, version FROM samplers ORDER BY name").fetchall()


def reservations_out(db: Database) -> list[Row]:
    """The episodes that are being played: token, seat, lane, task, group_id, slot, round (a name)."""
    return db.execute(
        "SELECT v.token, v.seat, v.lane, v.task, v.group_id, v.slot, r.name AS round FROM reservations v"
        " LEFT JOIN rounds r ON r.id = v.round_id WHERE v.state = 'out'"
    ).fetchall()


def newest_episode(db: Database) -> int:
    """The number of the newest episode; 0 before the first."""
    return int(db.execute("SELECT coalesce(max(seq), 0) FROM episodes").fetchone()[0])


def episodes_since(db: Database, seq: int) -> Iterator[Row]:
    """The episodes that seats played after number `seq`, in order: seq, token, seat, success. No imported ones."""
    yield from db.execute(
        "SELECT e.seq, e.token, e.success, v.seat FROM episodes e JOIN reservations v ON v.token = e.token"
        " WHERE e.seq > ? AND v.seat != 'import' ORDER BY e.seq",
        (seq,),
    )


def episodes_by_lane(db: Database) -> dict[str, int]:
    """Episodes with an outcome."""
    return dict(map(tuple, db.execute("SELECT lane, count(*) FROM episodes GROUP BY 1")))


def episodes_played(db: Database, one_in: int, most: int) -> Iterator[Row]:
    """The newest stored episodes of the policy: token, task, lane, success, reason, whereto (a round or a phase).

    Evaluation comes first, then tokens that are multiples of `one_in`.
    """
    yield from db.execute(
        "SELECT e.token, e.task, e.lane, e.success, e.reason, coalesce(r.name, s.phase) AS whereto FROM episodes e"
        " LEFT JOIN rounds r ON r.id = e.round_id LEFT JOIN stays s ON s.idx = e.stay"
        " WHERE e.live = 1 AND e.lane != 'demo'"
        " ORDER BY e.lane = 'eval' DESC, e.token % ? = 0 DESC, e.seq DESC LIMIT ?",
        (one_in, most),
    )


def episodes(db: Database) -> Iterator[Row]:
    """Every attempt at an episode that has ended, newest first, demonstrations and faults included.

    Columns: token, lane, task, group_id, slot, round (a name), phase and whereto (one of both), as they were handed
    out; success, reason, steps and wall_s, all NULL for a fault; stored (whether its steps are still kept).
    """
    yield from db.execute(
        "SELECT v.token, v.lane, v.task, v.group_id, v.slot, r.name AS round, s.phase,"
        " coalesce(r.name, s.phase) AS whereto, e.success, e.reason, e.wall_s,"
        " coalesce(e.live, 0) AS stored, CASE WHEN e.token IS NOT NULL THEN"
        " (SELECT count(*) FROM steps WHERE steps.token = e.token) END AS steps"
        " FROM reservations v LEFT JOIN episodes e ON e.token = v.token LEFT JOIN rounds r ON r.id = v.round_id"
        " LEFT JOIN stays s ON s.idx = v.stay WHERE v.state != 'out'"
        " ORDER BY v.token DESC"
    )


def steps_of(db: Database, token: int) -> list[StepRef]:
    """Where the steps of an episode are stored, in order. Raises msgspec.DecodeError."""
    rows = db.execute("SELECT ref FROM steps WHERE token = ? ORDER BY n", (token,))
    return [msgspec.msgpack.decode(row["ref"], type=StepRef) for row in rows]


# -- demonstrations


def demos(db: Database) -> int:
    """Successful demonstrations, as the ledger counts them."""
    row = db.execute("SELECT value FROM counters WHERE name = 'demos'").fetchone()
    return int(row[0]) if row else 0


def demo_episodes(db: Database, most: int) -> list[Row]:
    """The first successful demonstrations: token, task, reason, wall_s, busy_s, reply (a `Reservation`, or empty)."""
    return db.execute(
        "SELECT e.token, e.task, e.reason, e.wall_s, e.busy_s, r.reply FROM episodes e"
        " JOIN reservations r ON r.token = e.token WHERE e.lane = 'demo' AND e.success = 1 ORDER BY e.seq LIMIT ?",
        (most,),
    ).fetchall()


def demo_tasks_tried(db: Database) -> list[Row]:
    """Tasks with a first attempt: task, and the tries and wins of first and of mixed attempts."""
    return db.execute(
        "SELECT task, first_tries, first_wins, mixed_tries, mixed_wins FROM shown WHERE first_tries > 0 ORDER BY n"
    ).fetchall()


# -- which versions of the observation were shown

Observations = Annotated[tuple[Annotated[int, msgspec.Meta(ge=1)], ...], msgspec.Meta(min_length=1, max_length=64)]
FIRST_OBSERVATION = (1,)  # of a ledger or a recording of a build that did not number observations
OBSERVED, OBSERVED_IN_IMPORTS = "observations", "observations:taken in"  # keys of the ledger's `meta`


def parsed_versions(text: str | None) -> tuple[int, ...]:
    """Versions as `meta` holds them."""
    return tuple(int(word) for word in (text or "").split())


def observations_of_episodes(db: Database) -> tuple[int, ...]:
    """Versions that desktops of this run showed, smallest first."""
    return parsed_versions(meta(db).get(OBSERVED)) or FIRST_OBSERVATION


def observations_of_demos(db: Database) -> tuple[int, ...]:
    """Versions that the ledger's demonstrations show, smallest first; where it has none, those of its desktops."""
    versions = set(parsed_versions(meta(db).get(OBSERVED_IN_IMPORTS)))
    taken_in = int(db.execute("SELECT COUNT(*) FROM imports").fetchone()[0])
    if demos(db) > taken_in or not taken_in:
        versions |= set(observations_of_episodes(db))
    return tuple(sorted(versions))


def versions_text(versions: Collection[int]) -> str:
    """`1` or `1, 2`."""
    return ", ".join(map(str, versions))
