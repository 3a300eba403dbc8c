"""What many actors in one host cost is measured, and nonsense is refused."""

from __future__ import annotations

import json

import pytest

from actors.cluster import cli


def test_each_number_of_actors_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "hosts", "--actors", "10,40", "--json"]) in (0, 1)
    found = json.loads(capsys.readouterr().out)
    assert [one["actors"] for one in found["hosts"]] == [10, 40]
    assert all(one[figure] > 0 for one in found["hosts"] for figure in ("start_ms", "status_ms", "look_ms", "stop_ms"))
    more = found["hosts"][1]["descriptors"] - found["hosts"][0]["descriptors"]
    assert more < 30, "not each of 30 more actors opens a file"
    assert [target["name"] for target in found["targets"]] == ["status per actor, 40 actors to 10"]


@pytest.mark.parametrize("text", ["", "10", "10,10", "10,many"])
def test_nonsense_is_refused(capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert cli.main(["bench", "hosts", "--actors", text]) == 2
    assert "--actors" in capsys.readouterr().err
