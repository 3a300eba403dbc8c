"""What every measurement says beside its figures: one document or lines, and an exit status that its targets give."""

from __future__ import annotations

import json

import pytest

from actors.cluster import output
from actors.cluster.bench.report import Measured, Target, show


class Found(Measured, frozen=True, kw_only=True):
    figure: float


def measured(bound: float, **more: dict[str, str]) -> Found:
    target = Target(name="figure", measured=2.0, bound=bound, unit="s")
    return Found(cores=2, load_at_start=0.25, figure=2.0, targets=[target], **more)


@pytest.mark.parametrize(("bound", "status"), [(2.0, 0), (1.0, 1)])
def test_a_missed_target_is_the_exit_status_told_either_way(
    bound: float, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    found = measured(bound, left_out={"sglang": "it is not there"})
    assert show(found, lambda one: output.line(f"figure {one.figure}"), as_json=False, note=", idle") == status
    told = capsys.readouterr().out.splitlines()
    assert told[:3] == ["2 cores, load 0.2 at the start, idle", "figure 2.0", "sglang left out: it is not there"]
    assert told[-1].endswith("MISSED") == bool(status)
    assert show(found, lambda _: pytest.fail("the document is all"), as_json=True) == status
    document = json.loads(capsys.readouterr().out)
    assert (document["met"], document["figure"], document["left_out"]) == (not status, 2.0, found.left_out)
    assert document["targets"][0]["bound"] == bound


def test_without_targets_none_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(Found(load_at_start=0.0, figure=1.0, targets=[]), lambda _: None, as_json=False) == 0
    assert "TARGET" not in capsys.readouterr().out
