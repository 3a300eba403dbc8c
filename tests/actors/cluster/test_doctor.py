"""Which versions of torch, NCCL, driver, compilers and SGLang go together."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from actors.cluster import cli
from actors.cluster.config import deploy_files
from actors.cluster.config.schema import Deploy, SeatsConfig
from actors.cluster.runs import doctor, refusals, versions
from actors.cluster.runs.versions import Packages, Versions, misfits
from actors.desktop.config import MachineConfig, QemuConfig, SandboxConfig, SshConfig
from actors.desktop.providers import home_template
from actors.sampler.config import SamplersConfig
from runtime.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
# As pip resolves them: torch 2.13.0 and SGLang 0.5.23, which asks for torch 2.14.1.
OLD = Packages(torch="2.13.0", nccl="2.29.7", cuda=13)
SAME = Packages(torch="2.14.1", nccl="2.30.7", cuda=13)
ENGINE = Packages(
    torch="2.14.1", nccl="2.30.7", cuda=13, sglang="0.5.23", flashinfer="0.7.2", ready_kernels="0.7.2+cu130"
)
FITS = Versions(learner=SAME, engine=ENGINE, driver="13.0")


def changed(have: Versions = FITS, **fields: object) -> list[versions.Check]:
    collective = bool(fields.pop("collective", False))
    return list(misfits(msgspec.structs.replace(have, **fields), collective=collective))


def engine(**fields: object) -> Packages:
    return msgspec.structs.replace(ENGINE, **fields)


def test_what_fits_is_left_alone() -> None:
    assert not changed(collective=True)
    assert not changed(driver="")  # no GPU here to ask
    assert not changed(learner=Packages(torch="2.13.0+cpu"))
    assert not changed(Versions(learner=OLD, driver="13.1"), collective=True)  # no engine of its own


@pytest.mark.parametrize("collective", [False, True])
def test_two_versions_of_nccl_matter_to_a_collective_alone(collective: bool) -> None:
    (wrong,) = changed(learner=OLD, collective=collective)
    assert (wrong.name, wrong.fatal) == ("nccl", collective)
    assert "torch 2.13.0 brings NCCL 2.29.7, SGLang's torch 2.14.1 brings 2.30.7" in wrong.found
    assert "make sglang-gpu" in wrong.mend


def test_kernels_are_ready_or_can_be_compiled() -> None:
    bare = engine(ready_kernels="")
    (wrong,) = changed(engine=bare)
    assert wrong.fatal
    assert "nvcc and g++" in wrong.found
    (wrong,) = changed(engine=bare, nvcc="13.0")
    assert "and g++ is missing" in wrong.found
    assert not changed(engine=bare, nvcc="13.0", gxx=True)
    assert not changed(engine=engine(ready_kernels="", nvcc="13.5.37"), gxx=True)
    (wrong,) = changed(engine=bare, nvcc="12.4", gxx=True)
    assert not wrong.fatal
    assert "CUDA 12.4" in wrong.found
    (wrong,) = changed(engine=engine(ready_kernels="0.7.1+cu130"))  # of another version
    assert wrong.name == "kernels"
    assert not list(misfits(msgspec.structs.replace(FITS, engine=bare), compiles=False))


def test_pinned_files_for_gpus_have_one_torch_and_one_nccl() -> None:
    def pinned(name: str) -> dict[str, str]:
        text = (ROOT / "deploy/requirements" / name).read_text("utf-8")
        return dict(line.split(" ")[0].split("==") for line in text.splitlines() if "==" in line)

    both, alone = pinned("sglang-gpu.txt"), pinned("torch-gpu.txt")
    assert alone.items() <= both.items()
    assert list(misfits(Versions(learner=versions.packages(alone), engine=versions.packages(both), gxx=True))) == []
    assert versions.packages(alone).nccl == "2.30.7"


def test_a_collective_that_nccl_refuses_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    apart = ["weight_sync.transport=collective", 'samplers.gpus=["1"]']
    with pytest.raises(ConfigError, match=r"collective, and NCCL has no two ranks on one GPU: .*samplers\.gpus"):
        deploy_files.load("sglang-gpu", apart[:1])
    shared, _ = deploy_files.load("sglang-gpu", ["weight_sync.transport=collective", 'samplers.gpus=["0"]'])
    with pytest.raises(ConfigError, match=r"samplers\.gpus holds '0'"):
        refusals._collective(shared, None)  # type: ignore[arg-type]
    deploy, _ = deploy_files.load("sglang-gpu", apart)
    monkeypatch.setattr(versions, "here", lambda _: Versions(learner=OLD, engine=ENGINE))
    with pytest.raises(ConfigError, match=r"2\.29\.7.*2\.30\.7.*make sglang-gpu"):
        refusals._collective(deploy, None)  # type: ignore[arg-type]
    monkeypatch.setattr(versions, "here", lambda _: FITS)
    refusals._collective(deploy, None)  # type: ignore[arg-type]


def test_an_update_between_the_parts_of_a_forward_pass_is_refused() -> None:
    spread = ["weight_sync.transport=collective", 'samplers.gpus=["1,2"]', "samplers.engine.options={tp-size: 2}"]
    with pytest.raises(ConfigError, match=r"weight_sync\.in_flight is in_place, and .*tp-size is 2"):
        deploy_files.load("sglang-gpu", spread)
    deploy_files.load("sglang-gpu", [*spread, "weight_sync.in_flight=retract"])


def test_doctor_names_what_must_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "here", lambda _: Versions(learner=OLD, engine=ENGINE, driver="12.8"))
    looked = {check.name: check for check in doctor.examine(doctor.needs_of(deploy_files.load("sglang-gpu", [])[0]))}
    assert looked["driver"].fatal
    assert "needs 13" in looked["driver"].found
    assert not looked["nccl"].ok
    assert not looked["nccl"].fatal


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


def test_applications_of_the_files_tasks_are_needed_and_what_judges_wherever_the_desktops_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    light, all_of_them = checks(monkeypatch, "local"), checks(monkeypatch, "sglang-gpu")
    for name, package in (("chromium", "chromium"), ("vlc", "vlc-plugin-qt"), ("soffice", "libreoffice-calc")):
        assert name not in light
        assert all_of_them[name].fatal
        assert package in (all_of_them[name].mend or "")
    monkeypatch.setattr(doctor.office, "PROGRAM", tmp_path / "missing")
    machine = "{host: a, user: b, client_key: c, host_key: d}"
    few = ("desktops.count=1", "desktops.processes=1", "desktops.warm_pool=0")
    elsewhere = (f"desktops.provider={{type: ssh, machines: [{machine}]}}", *few)
    assert checks(monkeypatch, "sglang-gpu", *elsewhere)["judge"].fatal
    assert "judge" not in light


@pytest.mark.parametrize(
    ("provider", "line"),
    [(SandboxConfig(), "desktops of sandbox have none"), (QemuConfig(client_password="plum"), "of qemu have one")],
)
def test_a_task_that_becomes_root_needs_desktops_with_a_password(
    provider: SandboxConfig | QemuConfig, line: str
) -> None:
    deploy = Deploy(desktops=SeatsConfig(provider=provider))
    found = list(doctor.check_desktops(doctor.RunNeeds(deploy=deploy, apps=("text_editor", doctor.BY_ROOT))))
    (root,) = (check for check in found if check.name == "root" and "password" in check.found)
    assert (root.ok, line in root.found, "plum" in str(found)) == (isinstance(provider, QemuConfig), True, False)


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


def test_all_that_was_looked_at_is_said_with_what_mends_it(capsys: pytest.CaptureFixture[str]) -> None:
    status = cli.main(["doctor", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert status == (0 if report["ok"] else 1)
    assert {"python", "packages", "torch", "sandbox", "base model", "disk"} <= {c["name"] for c in report["checks"]}
    assert all(check["mend"] for check in report["checks"] if not check["ok"])


async def test_a_machine_is_checked_within_an_event_loop_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    office = tmp_path / "soffice"
    office.touch()
    monkeypatch.setattr(doctor.office, "PROGRAM", office)
    machines = [MachineConfig(host="nowhere.invalid", user="u", client_key="/k", host_key="ssh-ed25519 AAAA")]
    deploy = Deploy(desktops=SeatsConfig(count=1, warm_pool=0, provider=SshConfig(machines=machines)))
    needs = doctor.RunNeeds(deploy=deploy, apps=("libreoffice_calc",))
    assert next(check for check in doctor.examine(needs) if check.name == "judge").ok
