"""Real controllers on simulated desktops are counted, and what does not add up is refused."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys

import msgspec
import pytest

from apis.actions.grammar import RefusedAnswer, parse
from apis.observation import MAX_ELEMENTS, from_guest, neat
from apis.prompts.names import element_names, window_names
from tests import simulated_desktops
from tests.bench.__main__ import main
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
    frame = neat(msgspec.msgpack.encode(simulated_desktops.observation(screen, 1)))
    assert frame is not None
    assert len(frame.elements) == (30 if screen == "text" else MAX_ELEMENTS)
    seen = from_guest(frame)
    for answer in seats.ANSWERS[form]:
        action = parse(answer, seen.app, element_names(seen), window_names(seen), form)
        assert not isinstance(action, RefusedAnswer)


@pytest.mark.parametrize("screen", simulated_desktops.SCREENS)
def test_each_desktop_shows_a_document_of_its_own_and_changes_a_share_of_it(screen: str) -> None:
    words = simulated_desktops.vocabulary()
    one, other = (simulated_desktops.Document(screen, words, 0.15, seed) for seed in ("one", "other"))
    looks = [[tuple(map(str, row)) for row in document.look()["elements"]] for document in (one, one, one, other)]
    changed = [sum(a != b for a, b in zip(*pair, strict=True)) / len(looks[0]) for pair in itertools.pairwise(looks)]
    assert all(0.08 < share <= 0.151 for share in changed[:2])
    assert changed[2] > 0.7
    frame = neat(msgspec.msgpack.encode(one.look()))
    assert frame is not None
    assert len(frame.elements) == (30 if screen == "text" else MAX_ELEMENTS)


def test_a_reference_round_takes_processor_time() -> None:
    assert standins.reference_round() > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seats", "1"], "--seats is 1: at least 2"),
        (["--period", "-1"], "--period is -1: at least 0"),
        (["--screen", "sheets"], "--screen sheets: .*sheet"),
        (["--changed", "1.5"], "--changed is 1.5: a share, from 0 to 1"),
        (["--format", "short"], "--format short"),
        (["--model", "/none"], "/none/tokenizer.json is missing"),
    ],
)
def test_what_can_not_be_measured_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capacity", "seats", *words]) == 2
    line = capsys.readouterr().err.strip()
    assert re.search(said, line)
    assert "\n" not in line
