"""What a soak hears of its run: lines that follow one another, of one part."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.soak.heard import Heard
from tests.soak.kinds import AGAIN, LOST_DESKTOPS

FOLLOWS = ((LOST_DESKTOPS, 2.0), (AGAIN[0], 2.0))


def heard(run: Path, lines: list[dict[str, Any]]) -> Heard:
    (run / "logs").mkdir()
    said = [{"level": "info", "actor": "host/main", "trace": None, "ts": "", **line} for line in lines]
    (run / "logs" / "main.jsonl").write_text("".join(json.dumps(line) + "\n" for line in said))
    return Heard(run)


@pytest.mark.parametrize(
    ("first", "then", "missing"),
    [
        (("host_lost", "desktops/1"), ("host_started", "desktops/1"), False),
        (("host_lost", "desktops/1"), ("host_started", "desktops/0"), True),  # another one, which was to begin anyway
        (("host_started", "desktops/1"), ("host_lost", "desktops/1"), True),  # before it was lost
        (("host_lost", "samplers/0"), ("host_started", "samplers/0"), True),
    ],
)
async def test_a_lost_process_is_back_once_it_has_started_after_that(
    tmp_path: Path, first: tuple[str, str], then: tuple[str, str], missing: bool
):
    at = time.monotonic() - 10.0
    lines = [{"t": at + 1 + k, "event": event, "name": name} for k, (event, name) in enumerate((first, then))]
    found = heard(tmp_path, lines)
    times, lacks = await found.followed(FOLLOWS, at)
    found.close()
    assert bool(lacks) is missing
    assert missing or times == pytest.approx([1.0, 2.0])


def test_lines_are_counted_once(tmp_path: Path):
    lines = [
        {"t": 1.0, "event": "learner_step", "phase": "rl"},
        {"t": 2.0, "event": "episode_ended", "reason": "done", "level": "warning"},
        {"t": 3.0, "event": "desktop_booted", "desktop": "a"},
    ]
    found = heard(tmp_path, lines)
    for _ in range(2):
        found.read()
    found.close()
    assert (found.rl_steps, found.in_rl, found.booted) == (1, False, {"a"})
    assert (found.counts, found.warnings) == ({"ended: done": 1}, {"episode_ended": 1})
