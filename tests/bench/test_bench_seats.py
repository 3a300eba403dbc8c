"""Real controllers on simulated desktops are counted, and what does not add up is refused."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec
import pytest

from apis.actions.grammar import RefusedAnswer, parse
from apis.observation import MAX_ELEMENTS, Frame, from_guest
from apis.prompts.compact import element_names, window_names
from tests import simulated_desktops
from tests.bench.seats import seats, standins


@pytest.mark.proof
def test_seats_play_whole_episodes_and_each_figure_is_there() -> None:
    options = ["--seats", "3", "--seconds", "3", "--period", "0.01", "--servers", "1", "--screen", "text"]
    command = [sys.executable, "-m", "tests.bench", "capacity", "seats", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)
    assert done.returncode in (0, 1), done.stderr
    found = json.loads(done.stdout)
    assert found["faults"] == {}
    assert found["steps"] > seats.TURNS
    assert found["episodes"] > 0
    figures = ("controller_ms", "main_ms", "reference_ms", "prompt_tokens")
    assert all(found[name] > 0 for name in figures)
    met = {target["name"].partition(",")[0]: target for target in found["targets"]}
    assert met["faults"]["measured"] == 0
    fed = seats.FED_PERIOD_S * 1e3 / (found["controller_ms"] * standins.REFERENCE_MS / found["reference_ms"])
    assert met["seats a core feeds at a step per 2 s"]["measured"] == pytest.approx(fed)


@pytest.mark.parametrize("screen", simulated_desktops.SCREENS)
@pytest.mark.parametrize("form", ["compact", "published"])
def test_simulated_desktops_show_what_real_ones_may_and_the_answers_are_actions(screen: str, form: str) -> None:
    frame = msgspec.convert(simulated_desktops.observation(screen, 1), Frame)
    assert len(frame.elements) == (30 if screen == "text" else MAX_ELEMENTS)
    seen = from_guest(frame)
    for answer in seats.ANSWERS[form]:
        action = parse(answer, seen.app, element_names(seen), window_names(seen), form)
        assert not isinstance(action, RefusedAnswer)
