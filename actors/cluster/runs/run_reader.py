"""What a run does now, read from its ledger and its logs again and again.

Invariant: a look reads what is new since the look before, so it costs the same after a day as after a minute. What it
keeps is bounded. A run that can't be read for a moment is shown as it was, with the reason.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from actors.cluster.config import deploy_files
from actors.cluster.runs import ledgers, run_folder
from actors.replay.database import queries
from actors.replay.database.ledger_file import LEDGER
from actors.replay.messages import Lane, Phase, trace_of
from actors.replay.statistics import rate
from runtime.errors import ConfigError
from runtime.logs.reader import LogWatch
from runtime.messaging.message import Version

CURVE = 400  # newest optimizer steps that are shown
OLD_EPISODES = 20_000  # of those before the first look, the newest
PACE_S = 60.0  # episodes a minute are those of so many seconds
PACE_STEPS = 20  # and the time left goes by the pace of so many steps
DRAWN_S = 90.0  # a sampler of which no line came for so long draws nothing
RECENT_S = 600.0  # over which seats' time is shown
MOST_SPANS = 40_000
LOG_BYTES = 8 << 20  # of each file, for the first look
_KINDS = ("host", "task")
_IN_QUARANTINE = {f"{kind}_rests": kind for kind in _KINDS}
_LET_BACK = {f"{kind}_let_back": kind for kind in _KINDS}
_EVENTS = frozenset(
    ("seat_time", "episode_ended", "routed", "host_started", "host_lost", "host_stopping", *_IN_QUARANTINE, *_LET_BACK)
)
LOST = "lost, is to come back"
EVALUATION = "evaluation"  # the phase of a run that only plays a round


class StepNow(msgspec.Struct, frozen=True, kw_only=True):
    """One optimizer step."""

    version: str
    phase: str
    success: float | None  # of its batch's training episodes; None where none are played
    figures: dict[str, float]  # as `queries.figures_of` has them


class SeatNow(msgspec.Struct, array_like=True, frozen=True, kw_only=True):
    """One seat; an array in JSON, for there may be thousands."""

    name: str
    trace: str  # of the episode that it plays; "" between episodes
    task: str
    token: int  # of the newest episode it finished; 0 before the first
    success: bool


class RoundNow(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation round so far."""

    name: str
    version: str
    played: int
    planned: int
    successes: int
    closed: bool
    step: int  # of the weights, in optimizer steps
    temperature: float  # of its decoding; 0 is greedy
    low: float  # Wilson's 95 % interval of the success of what was played
    high: float


class SamplerNow(msgspec.Struct, frozen=True, kw_only=True):
    """One sampler and the weights it serves."""

    name: str
    version: str
    tokens: int  # that it drew, of those that the logs read here tell
    tokens_s: float | None  # per second, over the newest half minute; None where no log tells


class RunNow(msgspec.Struct, frozen=True, kw_only=True):
    """One look at a run."""

    run: str
    state: str
    reason: str
    file: str
    started_s: float  # since the epoch
    harder: bool  # whether a curriculum gives the policy harder tasks as it learns
    phase: str = ""
    done: int = 0  # of the phase's segment: optimizer steps, or demonstrations
    whole: int | None = None  # of the same as planned; None where another condition ends it
    left_s: float | None = None  # of the segment at its pace; None where none is known
    trained: str = ""  # version of the newest weights
    steps: dict[str, int] = {}  # phase -> optimizer steps
    curve: list[StepNow] = []
    rounds: list[RoundNow] = []
    samplers: list[SamplerNow] = []
    episodes: dict[str, int] = {}  # lane -> episodes with an outcome
    episodes_per_min: float | None  # over the last minute at most; None of a run that has ended
    faults: dict[str, int] = {}  # cause -> episodes
    staleness: dict[str, int] = {}  # optimizer steps -> trained trajectories
    groups: dict[str, int] = {}  # open, ready and leased: the queues between seats and learner
    endings: dict[str, int] = {}  # how groups ended
    all_right: dict[str, float] = {}  # family -> share of its newest groups whose episodes all succeeded
    all_wrong: dict[str, float] = {}
    stages_s: dict[str, float]  # where seats spent their time of late
    quarantine: dict[str, str]  # "host desktop/3" -> cause
    machines: dict[str, str]  # process -> the machine it is on, "" for this one, or LOST
    seats: list[SeatNow] = []
    trouble: str = ""  # why this look saw less than the one before


class RunReader:
    """Looks at one run. Not to be shared between threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._logs = LogWatch(path, newest_bytes=LOG_BYTES)
        self._seq = -1
        self._finished: dict[str, tuple[int, bool]] = {}  # seat -> token and success of its newest episode
        self._ended_s: deque[float] = deque(maxlen=MOST_SPANS)  # seconds since the epoch at which episodes ended
        self._deploy: dict[str, Any] = {}
        self._drawn: dict[str, tuple[int, float, float]] = {}  # sampler -> tokens, newest tokens a second, its moment
        self._spans: deque[tuple[float, dict[str, float]]] = deque(maxlen=MOST_SPANS)
        self._quarantine: dict[str, str] = {}
        self._machines: dict[str, str] = {}
        self._last: RunNow | None = None
        self._now: float | None = None  # seconds since the epoch at this look; None of a run that has ended

    def close(self) -> None:
        self._logs.close()

    def look(self) -> RunNow:
        """What the run does now. Raises ConfigError where its record can't be read and nothing was seen before."""
        record = run_folder.read_record(self.path)
        base: dict[str, Any] = {
            "run": self.path.name, "state": run_folder.state(self.path, record), "reason": record.reason or "",
            "file": record.file, "started_s": record.started_s,
        }  # fmt: skip
        self._read_logs()
        if not self._deploy and (self.path / deploy_files.STORED).is_file():
            self._deploy = deploy_files.stored_plain(self.path)
        self._now = time.time() if base["state"] == "running" else None
        base |= {
            "stages_s": self._stages(), "quarantine": dict(self._quarantine), "machines": dict(self._machines),
            "harder": self._deploy.get("replay", {}).get("curriculum", "none") != "none",
            "episodes_per_min": self._per_min(record.started_s),
        }  # fmt: skip
        try:
            ledger = self._read_ledger(record) if (self.path / LEDGER).is_file() else {}
            self._last = RunNow(**base, **ledger)
        except ConfigError as error:
            if self._last is None:
                raise
            self._last = msgspec.structs.replace(self._last, **base, trouble=str(error))
        return self._last

    def _read_ledger(self, record: run_folder.RunRecord) -> dict[str, Any]:
        with ledgers.opened(self.path) as db:
            queries.at_one_moment(db)
            counters = queries.counters(db)
            episodes = {lane: counters.get(f"episodes:{lane}", 0) for lane in Lane}
            if self._seq < 0:
                self._seq = max(self._seq, queries.newest_episode(db) - OLD_EPISODES)
            for row in queries.episodes_since(db, self._seq):
                self._seq = row["seq"]
                self._finished[row["seat"]] = row["token"], bool(row["success"])
            newest, rounds = queries.steps(db, most=CURVE), [_round(db, row) for row in queries.rounds_so_far(db)]
            return {
                **(self._evaluation(rounds, record.started_s) if record.of_eval else self._segment(db, newest)),
                "trained": queries.meta(db).get("trained", ""),
                "steps": queries.steps_by_phase(db),
                "curve": (curve := [_step(row) for row in newest]),
                "all_right": _by_family(curve, "all_right/"),
                "all_wrong": _by_family(curve, "all_wrong/"),
                "rounds": rounds,
                "samplers": [self._sampler(row["name"], row["version"]) for row in queries.samplers(db)],
                "episodes": episodes,
                "faults": _named(counters, "fault:"),
                "staleness": _named(counters, "staleness:"),
                "groups": queries.groups_alive(db),
                "endings": _named(counters, "ending:"),
                "seats": self._seats(queries.reservations_out(db)),
            }

    def _per_min(self, started_s: float) -> float | None:
        """Episodes a minute, as the seats log them; None of a run that has ended."""
        if self._now is None:
            return None
        while self._ended_s and self._ended_s[0] < self._now - PACE_S:
            self._ended_s.popleft()
        return round(len(self._ended_s) / min(PACE_S, max(1.0, self._now - started_s)) * 60, 1)

    def _segment(self, db: queries.Database, newest: list[queries.Row]) -> dict[str, Any]:
        """Phase, done, whole and left_s: of demonstrations since the phase began, of steps at the newest ones' pace."""
        if (row := queries.segment(db)) is None:
            return {"phase": "", "done": 0, "whole": None, "left_s": None}
        done, whole = row["trained"], row["step_limit"]
        rl = self._deploy.get("entropulse", {})
        if row["phase"] == Phase.RL and whole is None and rl:
            whole = rl["total_rl_steps"] - queries.steps_by_phase(db).get(Phase.RL, 0) + done
        if row["phase"] == Phase.DEMO:
            done, whole = queries.demos(db), self._deploy.get("demos", {}).get("count")
            each_s = ((self._now or 0.0) - row["wall"]) / max(1, done)
        else:
            walls = [step["wall"] for step in newest if step["stay"] == row["idx"] and step["wall"]][-PACE_STEPS:]
            each_s = (walls[-1] - walls[0]) / (len(walls) - 1) if len(walls) > 1 else 0.0
        return self._at(row["phase"], done, whole, each_s)

    def _evaluation(self, rounds: list[RoundNow], started_s: float) -> dict[str, Any]:
        """The same of a run that only plays a round."""
        done, whole = (rounds[-1].played, rounds[-1].planned) if rounds else (0, None)
        return self._at(EVALUATION, done, whole, ((self._now or 0.0) - started_s) / max(1, done))

    def _at(self, phase: str, done: int, whole: int | None, each_s: float) -> dict[str, Any]:
        known = self._now is not None and whole and each_s > 0 and done
        left_s = float(round(each_s * max(0, (whole or 0) - done))) if known else None
        return {"phase": phase, "done": done, "whole": whole, "left_s": left_s}

    def _sampler(self, name: str, version: str) -> SamplerNow:
        if name not in self._drawn:
            return SamplerNow(name=name, version=version, tokens=0, tokens_s=None)
        tokens, pace, logged_s = self._drawn[name]
        tokens_s = pace if time.time() - logged_s <= DRAWN_S else 0.0
        return SamplerNow(name=name, version=version, tokens=tokens, tokens_s=tokens_s)

    def _seats(self, out: list[queries.Row]) -> list[SeatNow]:
        playing = {row["seat"]: row for row in out}
        names = sorted({*playing, *self._finished}, key=lambda name: (name.rpartition("/")[0], _number(name)))
        seats = []
        for name in names:
            trace = task = ""
            if (row := playing.get(name)) is not None:
                trace = trace_of(Lane(row["lane"]), str(row["group_id"]), row["round"] or "", row["slot"])
                task = row["task"]
            token, success = self._finished.get(name, (0, False))
            seats.append(SeatNow(name=name, trace=trace, task=task, token=token, success=success))
        return seats

    def _read_logs(self) -> None:
        for line in self._logs.new(_EVENTS):
            event = line["event"]
            if event == "seat_time":
                self._spans.append((float(line["t1"]), dict(line["seconds"])))
            elif event == "episode_ended":
                self._ended_s.append(datetime.fromisoformat(line["ts"]).timestamp())
            elif event == "routed":
                logged_s = datetime.fromisoformat(line["ts"]).timestamp()
                if (drawn := line.get("drawn")) is not None:  # a line of an older build has none
                    for name, tokens in (dict.fromkeys(line["outstanding"], 0) | drawn).items():
                        before = self._drawn.get(name, (0, 0.0, 0.0))[0]
                        self._drawn[name] = before + tokens, round(tokens / line["span_s"], 1), logged_s
            elif event == "host_stopping":
                self._machines.pop(str(line["name"]), None)
            elif event in ("host_started", "host_lost"):
                self._machines[str(line["name"])] = str(line["machine"]) if event == "host_started" else LOST
            elif (kind := _IN_QUARANTINE.get(event)) is not None:
                self._quarantine[f"{kind} {_what(kind, line)}"] = str(line.get("cause", ""))
            else:
                kind = _LET_BACK[event]
                self._quarantine.pop(f"{kind} {_what(kind, line)}", None)

    def _stages(self) -> dict[str, float]:
        newest = self._spans[-1][0] if self._spans else 0.0
        while self._spans and self._spans[0][0] < newest - RECENT_S:
            self._spans.popleft()
        stages = Counter[str]()
        for _, seconds in self._spans:
            stages.update(seconds)
        return dict(stages)


def _round(db: queries.Database, row: queries.Row) -> RoundNow:
    low, high = rate(queries.round_tallies(db, row["id"])).interval
    plain = {name: row[name] for name in row.keys() if name != "id"}  # noqa: SIM118 - a row's own iteration is of values
    return RoundNow(**plain, step=Version.parse(row["version"]).step, low=round(low, 4), high=round(high, 4))


def _what(kind: str, line: dict[str, Any]) -> str:
    """What a line of quarantine is about: the task that it names, or the seat whose host it is."""
    return str(line.get(kind, line["actor"]))


def _named(counters: dict[str, int], prefix: str) -> dict[str, int]:
    return {name.removeprefix(prefix): count for name, count in counters.items() if count and name.startswith(prefix)}


def _by_family(curve: list[StepNow], prefix: str) -> dict[str, float]:
    return {
        name.removeprefix(prefix): value
        for step in curve
        for name, value in step.figures.items()
        if name.startswith(prefix)
    }


def _number(name: str) -> int:
    tail = name.rpartition("/")[2]
    return int(tail) if tail.isdecimal() else 0


def _step(row: queries.Row) -> StepNow:
    success = row["success"] if row["phase"] == Phase.RL else None
    return StepNow(version=row["made"], phase=row["phase"], success=success, figures=queries.figures_of(row))
