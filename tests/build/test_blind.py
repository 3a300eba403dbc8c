"""Ten of Calc's functions, written blind: at least eight pass Calc's own cases."""

from __future__ import annotations

import pytest

from tests.build.blind import HIDDEN, checked


@pytest.mark.desktop
@pytest.mark.proof
@pytest.mark.timeout(600)
async def test_what_was_written_blind_passes_the_original_cases(state_dir: str) -> None:
    problems = await checked(None, [f"desktops.provider.state_dir={state_dir}"])
    assert set(problems) == set(HIDDEN)
    wrong = {name: problem for name, problem in problems.items() if problem}
    assert len(wrong) <= 2, wrong
