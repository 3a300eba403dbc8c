"""What a step costs the entry point is measured on real processes, links and ledger, and counted by desktops."""

from __future__ import annotations

import pytest

from actors.cluster.bench import parked, scale


@pytest.mark.slow
def test_every_part_is_measured_and_the_target_is_their_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("STEPS", 32), ("APPENDS", 8), ("PROMPTS", (scale.SHOWN,))):
        monkeypatch.setattr(scale, name, value)
    for name, value in (("WARM", 4), ("EPISODES", 16), ("AT_ONCE", 16), ("PLAY_S", (0.01, 0.02))):
        monkeypatch.setattr(parked, name, value)
    found = scale.measure()
    assert found.near_ms.keys() == found.star_ms.keys() == {scale.SHOWN}
    assert found.reference_ms is not None
    assert found.reference_ms > 0
    assert [part.name for part in found.parts] == ["star", "router", "bulk link", "ledger"]
    assert all(part.step_ms > 0 for part in found.parts if part.name != "router")
    assert found.parts[0].cores(2_000) == pytest.approx(found.parts[0].step_ms)  # a thousand steps a second
    (target,) = found.targets
    assert target.measured == pytest.approx(found.step_ms)
