"""No picture of a report is empty axes."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from actors.cluster.report.gather import Group, gather
from actors.cluster.report.pictures import pictures
from tests.actors.cluster.test_report_page import Fabricated


@pytest.mark.proof
def test_no_picture_of_a_run_of_one_step_is_empty(tmp_path: Path) -> None:
    run = Fabricated(tmp_path / "one")
    run.learn(steps=1)
    drawn = [*pictures([Group("one", [gather(run.done())])])]
    names = [one.name for one in drawn]
    assert {"loss", "token-entropy", "kl", "diversity"} <= set(names)
    for one in drawn:
        with Image.open(BytesIO(one.content.png)) as picture:
            pixels = picture.convert("RGB").getcolors(1 << 24)
        drawn_in = (n for n, rgb in pixels if max(rgb) - min(rgb) > 90 or rgb == (0x8A, 0x8A, 0x8A))
        assert sum(drawn_in) > 20, one.name
