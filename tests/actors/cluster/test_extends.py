"""Deploy files that are laid over others, and the whole of one printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.cluster import cli
from actors.cluster.config import deploy_files
from actors.desktop.config import SandboxConfig
from runtime.errors import ConfigError

BASE = """
tasks: {train: [a/train/1, a/train/2], max_turns: 5}
learner: {rl: {lr: 0.5, epochs: 2}}
desktops: {count: 6, provider: {memory_mib: 2000}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "base.yaml").write_text(BASE)
    return tmp_path


def written(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_keys_are_laid_over_one_by_one_and_lists_as_a_whole(folder: Path) -> None:
    over = "extends: base.yaml\ntasks: {train: [b/train/7]}\nlearner: {rl: {lr: 0.25}}\n"
    found = deploy_files.load(written(folder, "over.yaml", over))[0]
    assert (found.tasks.train, found.tasks.max_turns) == (["b/train/7"], 5)
    assert (found.learner.rl.lr, found.learner.rl.epochs, found.desktops.count) == (0.25, 2, 6)
    third = written(folder, "third.yaml", "extends: over.yaml\nlearner: {rl: {lr: 0.125}}\n")
    assert deploy_files.load(third)[0].learner.rl.lr == 0.125


def test_a_mapping_of_another_type_takes_the_place_of_what_was_there(folder: Path) -> None:
    machine = "{host: h, user: u, client_key: k, host_key: k, desktops: 9}"
    over = f"extends: base.yaml\ndesktops: {{provider: {{type: ssh, machines: [{machine}]}}}}\n"
    assert not isinstance(
        deploy_files.load(written(folder, "ssh.yaml", over))[0].desktops.provider, SandboxConfig
    )  # fmt: skip
    same = "extends: base.yaml\ndesktops: {provider: {type: sandbox, disk_mib: 99}}\n"
    provider = deploy_files.load(written(folder, "same.yaml", same))[0].desktops.provider
    assert provider == SandboxConfig(memory_mib=2000, disk_mib=99)


def test_a_bundled_file_is_extended_from_anywhere(tmp_path: Path) -> None:
    found = deploy_files.load(written(tmp_path, "mine.yaml", "extends: local\nrun: {seed: 4}\n"))[0]
    assert found == deploy_files.load("local", ["run.seed=4"])[0]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        ({"a": "extends: a.yaml"}, "extends goes in a circle: a.yaml -> a.yaml"),
        ({"a": "extends: b.yaml", "b": "extends: a.yaml"}, "extends goes in a circle: a.yaml -> b.yaml -> a.yaml"),
        (
            {"a": "extends: b.yaml", "b": "extends: c.yaml", "c": "extends: b.yaml"},
            "c.yaml: extends goes in a circle: b.yaml -> c.yaml -> b.yaml",
        ),
        ({"a": "extends: bass.yaml"}, "a.yaml: extends: bass.yaml: no such deploy file in"),
        ({"a": "extends: bass.yaml"}, "did you mean base.yaml?"),
        ({"a": "extends: [b]"}, "a.yaml: extends: expected a deploy file's path or name, got ['b']"),
        ({"a": "extends: b.yaml", "b": "replay: {group_sise: 3}"}, "b.yaml: unknown key replay.group_sise"),
        ({"a": "extends: base.yaml\nreplay: {group_sise: 3}"}, "a.yaml: unknown key replay.group_sise"),
    ],
)
def test_what_can_not_be_laid_over_is_refused_in_one_line(folder: Path, texts: dict[str, str], said: str) -> None:
    for name, text in texts.items():
        written(folder, f"{name}.yaml", text)
    with pytest.raises(ConfigError) as caught:
        deploy_files.load(str(folder / "a.yaml"))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["smoke", "local-sglang", "ablation-entropulse"])
def test_what_is_printed_runs_alike(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", name, "--print", "--set", "learner.clip_grad=0.5"]) == 0
    printed = written(tmp_path, "whole.yaml", capsys.readouterr().out)
    assert "extends" not in deploy_files.parsed(printed)[0]
    assert deploy_files.load(printed)[0] == deploy_files.load(name, ["learner.clip_grad=0.5"])[0]
    assert cli.main(["run", printed, "--print"]) == 0
    assert capsys.readouterr().out == Path(printed).read_text()
