"""Plain words for the codes of the ledger, for tables and pages that people read. JSON and logs keep the codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

N = TypeVar("N", int, float)

_PLAIN = {
    # phases
    "demo": "demonstrations", "bc": "cloning", "rl": "RL",
    # why an episode ended as it did
    "not_verified": "the check says no", "out_of_steps": "no turn left",
    "agent_broke_desktop": "broke its desktop", "agent_gave_up": "gave up",
    # how a group ended
    "trained": "trained on", "stale": "too old", "zero_variance": "rewards all equal", "lost": "lost to faults",
    "phase_closed": "its phase had ended", "orphaned": "undone by a resume",
    # why a phase began
    "begin": "start", "counted": "steps done", "plateau": "success levelled off", "finished": "all done",
    "demos_complete": "demonstrations done", "demos_exhausted": "no more demonstrations", "bc_complete": "cloning done",
    "pulse_complete": "pulse done", "no_signal": "all rewards equal", "no_success": "no success",
}  # fmt: skip


def plain(code: str) -> str:
    """`code` in plain words; of one that has none here, its own words."""
    return _PLAIN.get(code, code.replace("_", " "))


def plainly(counts: Mapping[str, N]) -> dict[str, N]:
    """The same counts under plain words."""
    return {plain(code): count for code, count in counts.items()}
