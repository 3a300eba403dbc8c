"""What doctor says of applications that are not installed."""

from pathlib import Path

import pytest

from actors.cluster import cli
from actors.cluster.config import deploy_files
from actors.cluster.config.schema import Deploy, SeatsConfig
from actors.cluster.runs import doctor
from actors.desktop.config import MachineConfig, SshConfig
from actors.desktop.providers import home_template
from actors.sampler.config import SamplersConfig


def of_packages(monkeypatch: pytest.MonkeyPatch, gone: str, apps: tuple[str, ...] = ()) -> dict[str, doctor.Check]:
    """The checks of Debian's packages where `gone` is not installed."""
    monkeypatch.setattr(doctor, "absent", lambda names: [name for name in names if name == gone])
    return {check.name: check for check in doctor.check_packages(apps)}


def test_missing_applications_are_a_warning_that_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    check = of_packages(monkeypatch, "chromium")["applications"]
    assert (check.ok, check.fatal, check.found) == (False, False, "missing for chromium (chromium)")
    assert "make setup" in (check.mend or "")
    whole = of_packages(monkeypatch, "")["applications"]
    assert (whole.ok, whole.found) == (True, "chromium, office, vlc")
    task_files = of_packages(monkeypatch, "gimp")["task files"]
    assert (task_files.ok, task_files.fatal, task_files.found) == (False, False, "missing: gimp")


def checks(monkeypatch: pytest.MonkeyPatch, file: str, *overrides: str) -> dict[str, doctor.Check]:
    """Those of a machine on which no program is installed."""
    monkeypatch.setattr(doctor, "answer", lambda command: (False, ""))
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    return {check.name: check for check in doctor.examine(doctor.needs_of(deploy_files.load(file, overrides)[0]))}


def test_applications_of_the_files_tasks_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    light, all_of_them = checks(monkeypatch, "local"), checks(monkeypatch, "sglang-gpu")
    for name, package in (("chromium", "chromium"), ("vlc", "vlc-plugin-qt"), ("soffice", "libreoffice-calc")):
        assert name not in light
        assert all_of_them[name].fatal
        assert package in (all_of_them[name].mend or "")


def test_what_judges_documents_is_needed_here_wherever_the_desktops_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor.office, "PROGRAM", tmp_path / "missing")
    machine = "{host: a, user: b, client_key: c, host_key: d}"
    few = ("desktops.count=1", "desktops.processes=1", "desktops.warm_pool=0")
    elsewhere = (f"desktops.provider={{type: ssh, machines: [{machine}]}}", *few)
    assert checks(monkeypatch, "sglang-gpu", *elsewhere)["judge"].fatal
    assert "judge" not in checks(monkeypatch, "local")


def test_engines_on_a_gpu_need_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "gpu" not in checks(monkeypatch, "local")
    assert checks(monkeypatch, "sglang-gpu")["gpu"].fatal
    assert "gpu" not in checks(monkeypatch, "sglang-gpu", "samplers.attach=[http://a:1]")
    monkeypatch.setattr(doctor, "answer", lambda command: (True, "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n"))
    need = doctor.RunNeeds(deploy=Deploy(samplers=SamplersConfig(device="cuda")), apps=(), place=Path())
    gpu = next(doctor.check_engines(need))
    assert gpu.ok


def test_an_office_profile_of_another_version_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    profile = tmp_path / "profile"
    registry = home_template.registry_of(profile)
    registry.parent.mkdir(parents=True)
    monkeypatch.setattr(doctor.home, "office_profile", lambda: profile)
    registry.write_text(f"<oor:items>{home_template.settings_lines()}</oor:items>")
    assert doctor.check_profile().ok
    monkeypatch.setitem(home_template.SETTINGS, "/org.openoffice.Office.Common/New", {"Setting": "true"})
    check = doctor.check_profile()
    assert (check.ok, check.fatal) == (False, False)
    assert "is of another version of this program" in check.found
    assert (check.mend or "").startswith("make setup")


def test_a_run_that_is_refused_names_the_doctor_that_tells_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking = [
        doctor.Check(name=name, ok=False, found="missing", mend=f"get {name}") for name in ("one", "two", "three")
    ]
    monkeypatch.setattr(doctor, "examine", lambda *_, **__: lacking)
    assert cli.main(["run", "smoke", "--set", "desktops.count=3", "--runs", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "one: missing; mend it with: get one; and two, three: " in said
    words = said.strip().rpartition(" doctor ")[2].split()
    assert cli.main(["doctor", *words]) == 1
    assert "two: get two" in capsys.readouterr().out
    assert cli.main(["doctor", *words[:-1], "run.sed=1"]) == 2
    assert "did you mean run.seed?" in capsys.readouterr().err


async def test_a_machine_is_checked_within_an_event_loop_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    office = tmp_path / "soffice"
    office.touch()
    monkeypatch.setattr(doctor.office, "PROGRAM", office)
    machines = [MachineConfig(host="nowhere.invalid", user="u", client_key="/k", host_key="ssh-ed25519 AAAA")]
    deploy = Deploy(desktops=SeatsConfig(count=1, warm_pool=0, provider=SshConfig(machines=machines)))
    needs = doctor.RunNeeds(deploy=deploy, apps=("libreoffice_calc",))
    assert next(check for check in doctor.examine(needs) if check.name == "judge").ok
