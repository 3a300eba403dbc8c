"""What the desktops of a file may take together, said and heeded before a run begins."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from actors.cluster import cli
from actors.cluster.config import deploy_files
from actors.cluster.runs import doctor
from actors.desktop.providers.sandbox import cgroups, shares
from actors.desktop.providers.sandbox.cgroups import GroupBounds
from actors.desktop.providers.sandbox.shares import Room

SMALL = Room(memory_mib=2048, processes=27_000, open_files=340_000, terminals=3072)  # one of 4 GiB


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "room", lambda: SMALL)
    monkeypatch.setattr(cgroups, "held", lambda: GroupBounds(0, 0))


def test_a_dry_run_says_each_sum_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--runs", str(tmp_path), "--set", "desktops.warm_pool=2"]
    assert cli.main(["run", "deploy/local.yaml", "--dry-run", *words]) == 0
    assert list(tmp_path.iterdir()) == []
    lines = capsys.readouterr().out.splitlines()
    assert "memory at most 204 instead of 1500 for each of 10 desktops: 2040 of this machine's 2048 MiB" in [
        " ".join(line.split()) for line in lines
    ]
    assert [line.split()[0] for line in lines[-4:]] == ["memory", "processes", "open", "terminals"]


def test_doctor_says_each_sum_and_what_mends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    deploy = deploy_files.load("local", ["desktops.warm_pool=2"])[0]
    found = {check.name: check for check in doctor.check_sums(deploy.desktops, ())}
    assert list(found) == ["all memory", "all processes", "all open files", "all terminals", "desktop memory"]
    assert [check.ok for check in found.values()] == [True, True, False, True, True]
    assert str(found["all open files"].mend).startswith("sysctl -w fs.file-max=3072000")
    assert not any(check.fatal for check in found.values())
    monkeypatch.setattr(cgroups, "held", lambda: GroupBounds(1500 << 20, 600))
    others = next(doctor.check_sums(deploy.desktops, ()))
    assert not others.ok
    assert others.found.endswith("; desktops that are there now hold 1500")
    (refused,) = doctor.check_sums(deploy_files.load("local", ["desktops.count=99"])[0].desktops, ())
    assert refused.fatal
    assert "desktops.count is 99" in refused.found


def test_a_dry_run_of_what_can_not_start_here_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", "gpu-8", "--runs", str(tmp_path)]
    for change in ("count=10", "processes=1", "warm_pool=2"):
        words += ["--set", f"desktops.{change}"]
    assert cli.main([*words, "--dry-run"]) == 2
    planned, refused = capsys.readouterr()
    assert planned.startswith("gpu-8: its keys are right, but this machine can't run it; the plan:")
    assert "would begin" not in planned
    assert "of 79.0 GiB per rank" in planned, "the plan for another machine is what it is asked for"
    assert "this machine can't run it" in refused
    assert cli.main(words) == 2
    assert "model.path: there is no model folder" in capsys.readouterr().err, "a start needs what the file names"
    words, refusals = ["run", "local", "--runs", str(tmp_path)], set[str]()
    monkeypatch.setattr(doctor, "check_root", lambda: doctor.Check("root", False, "none", "become root"))
    for dry in ([], ["--dry-run"]):
        assert cli.main([*words, *dry]) == 2
        refusals.add(capsys.readouterr().err)
    assert len(refusals) == 1, "the dry run says what the start says"


def test_a_desktop_has_room_for_the_largest_application_of_its_tasks() -> None:
    deploy = deploy_files.load("local", ["desktops.warm_pool=2"])[0]
    share = {
        app: [*doctor.check_sums(deploy.desktops, [app])][-1]
        for app in ("file_manager", "libreoffice_calc", "google_chrome")
    }
    assert [check.fatal for check in share.values()] == [False, False, True]
    assert "204 MiB for each of 10, 232 needed by google_chrome" in share["google_chrome"].found
    assert str(share["google_chrome"].mend).endswith("--set desktops.count=6")
    followed = msgspec.structs.replace(deploy.desktops, count=6)
    assert not [*doctor.check_sums(followed, ["google_chrome"])][-1].fatal, "what the hint names is not refused next"
