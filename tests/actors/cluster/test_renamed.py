"""Old names of keys: refused where a user writes them, read as today's where a run has stored them."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from actors.cluster.config import deploy_files, renamed, typed_yaml
from actors.cluster.config.schema import Deploy, DeployFile
from actors.cluster.report import bands, gather
from actors.cluster.runs import experiment, resume, run_folder
from actors.desktop.config import SshConfig
from actors.replay.demos import format as demo_format
from runtime.errors import ConfigError

STORED = Path(__file__).resolve().parents[2] / "data" / "deploy_before_renames.yaml"  # written by the build before
RESULTS = deploy_files.bundled()["local"].parent / "results"
NOW = {path for new in renamed.KEYS.values() for path in new.split()}


def test_each_name_leads_to_keys_that_there_are_and_is_none_itself() -> None:
    settable = set(typed_yaml.paths(DeployFile))
    plain = {path for path in NOW if "[]" not in path}
    assert plain - settable == {"samplers.engine.type"}, "which engine it is"
    assert not settable & set(renamed.KEYS)
    assert not settable & set(renamed.GONE)


@pytest.mark.parametrize("old", [old for old in renamed.KEYS if "[]" not in old])
def test_an_old_name_is_refused_by_the_new_one(old: str) -> None:
    with pytest.raises(ConfigError) as caught:
        deploy_files.load("smoke", [f"{old}=1"])
    said = str(caught.value)
    assert said.startswith(f"--set {old}=1: unknown key {old}; it is ")
    assert all(new in said for new in renamed.KEYS[old].split())
    assert "\n" not in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("run: {expert: true}", "unknown key run.expert; it is gone: every key may be set without it"),
        ("learner: {policy: direct}", "unknown key learner.policy; it is learner.rl.importance_ratio now"),
        ("arms: {a: {learner.epochs: 2}}", "arms.a: unknown key learner.epochs; it is learner.rl.epochs now"),
        (
            "demos: {demonstrators: [{type: oracle, name: a}, {type: endpoint, name: b, form: compact}]}",
            "unknown key demos.demonstrators.1.form; it is demos.demonstrators.1.format now",
        ),
        ("prompt: {format: paper}", "expected one of compact, published, got paper; it is published now"),
        ("desktops: {provider: {type: hosts}}", "expected one of sandbox, ssh, got hosts; it is ssh now"),
    ],
)
def test_an_old_name_in_a_file_is_refused_where_it_stands(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "old.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        experiment.expand(str(file))
    assert said in str(caught.value)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's folder as the build before wrote it, begun with old names after --set."""
    folder = tmp_path / "runs" / "x-near-3"
    folder.mkdir(parents=True)
    shutil.copy(STORED, folder / deploy_files.STORED)
    overrides = ["learner.rl_lr=0.001", "learner.warmup_steps=3", "evaluation.one_in=8", "run.require={rl_steps: 2}"]
    record = run_folder.RunRecord(
        name="x-near-3", file="local", seed=3, build="b", versions={}, started="", started_s=0.0, experiment="x",
        arm="near", settings="0123456789abcdef", asked=run_folder.Asked(overrides=overrides),
    )  # fmt: skip
    (folder / "run.json").write_bytes(msgspec.json.encode(record))
    return folder


def test_what_a_run_stored_is_read_under_todays_names(run: Path) -> None:
    found = deploy_files.stored(run)
    assert (found.model.path, found.tasks.max_turns, found.prompt.format) == ("", 8, "compact")
    assert (found.desktops.count, found.desktops.processes, found.desktops.warm_pool) == (8, 1, 2)
    assert isinstance(found.desktops.provider, SshConfig)
    assert found.desktops.provider.desktops == 20
    assert (found.weight_sync.transport, found.weight_sync.join_s, found.weight_sync.in_flight) == (
        "collective", 7.0, "drain"
    )  # fmt: skip
    assert [one.name for one in found.demos.demonstrators] == ["far", "gui"]
    learner = found.learner
    assert (learner.sft.warmup_steps, learner.rl.warmup_steps) == (7, 4), "RL had its own"
    assert (learner.sft.lr_schedule, learner.rl.lr_schedule) == ("cosine", "constant")
    assert (learner.rl.importance_ratio, learner.rl.tis_cap, learner.rl.lr) == ("decoupled", 3.0, 2e-4)
    assert found.sampling.eval_temperature == 0.5
    changed = resume.settings(run, ["learner.rl.lr=0.5"])
    assert changed.learner.rl.lr == 0.5
    with pytest.raises(ConfigError, match=r"unknown key learner\.rl_lr; it is learner\.rl\.lr now"):
        resume.settings(run, ["learner.rl_lr=0.5"])


def test_a_resume_says_what_the_run_was_begun_with_under_todays_names(run: Path) -> None:
    asked = run_folder.read_record(run).asked
    assert asked is not None
    assert asked.overrides == [
        "learner.rl.lr=0.001",
        "learner.sft.warmup_steps=3",
        "learner.rl.warmup_steps=3",
        "evaluation.rollout_share=0.125",
        "run.require={rl_steps: 2}",
    ]
    deploy_files.load("local", asked.overrides)


def test_a_recording_of_before_is_of_todays_format() -> None:
    header = {"format": demo_format.FORMAT, "tokenizer": "t", "form": "paper", "demos": 0}
    assert msgspec.json.decode(msgspec.json.encode(header), type=demo_format.RecordingHeader).form == "published"


def plain(name: str) -> dict[str, Any]:
    return dict(msgspec.to_builtins(deploy_files.load(name)[0]))


@pytest.mark.parametrize("name", sorted(deploy_files.bundled()))
def test_there_and_back_is_the_same(name: str) -> None:
    now = plain(name)
    assert msgspec.convert(renamed.translated(now), Deploy) == msgspec.convert(now, Deploy), "new names stay"
    again = renamed.translated(renamed.before(now))
    assert msgspec.convert(again, Deploy) == msgspec.convert(now, Deploy)


def test_what_seeds_share_is_told_as_before(run: Path) -> None:
    assert gather.key_of(run, gather.deploy_of(run)) == "b87666ecdc1bd93a", "as the build before told it"
    for figures, name in (("local-0", "local"), ("bc-alone-0", "bc-alone"), ("plateau", "plateau")):
        kept = json.loads(gzip.decompress((RESULTS / f"{figures}.figures.gz").read_bytes()))
        assert bands.key(plain(name)) == kept["run"]["key"], f"{name}: a run of today is a seed beside {figures}"
    for one in experiment.expand("ablation-actions", seeds=[0]):
        kept = json.loads(gzip.decompress((RESULTS / f"actions-{one.arm}-0.figures.gz").read_bytes()))
        assert bands.key(msgspec.to_builtins(one.deploy)) == kept["run"]["key"]


def test_a_file_of_before_counts_as_changed_only_where_it_says_something_else(run: Path, tmp_path: Path) -> None:
    document = renamed.translated(yaml.safe_load(STORED.read_text()))
    document["run"]["seed"] = 0
    file = tmp_path / "x.yaml"
    file.write_text(yaml.safe_dump(document | {"arms": {"near": {}}, "seeds": [3]}))
    record = msgspec.structs.replace(run_folder.read_record(run), asked=None)
    resume.refuse_changed(str(file), run.parent, [record])
    document["learner"]["rl"]["lr"] = 0.5
    file.write_text(yaml.safe_dump(document | {"arms": {"near": {}}, "seeds": [3]}))
    with pytest.raises(ConfigError, match="it has changed since x-near-3 was begun"):
        resume.refuse_changed(str(file), run.parent, [record])
