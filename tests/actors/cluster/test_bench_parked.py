"""An episode's cost is measured with and without seats that wait, and nonsense is refused."""

from __future__ import annotations

import json

import pytest

from actors.cluster import cli
from actors.cluster.bench import parked


def test_both_numbers_of_seats_are_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"PLAY_S": (0.0, 0.1), "WARM": 8, "EPISODES": 24}.items():
        monkeypatch.setattr(parked, name, value)
    assert cli.main(["bench", "parked", "--seats", "40", "--json"]) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    assert [one["parked"] for one in found["figures"]] == [0, 40]
    assert all(one["episode_ms"] > 0 for one in found["figures"])
    assert found["targets"][0]["measured"] == found["figures"][1]["episode_ms"] / found["figures"][0]["episode_ms"]


def test_nonsense_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "parked", "--seats", "0"]) == 2
    assert "--seats is 0: from 1 to 3500" in capsys.readouterr().err
