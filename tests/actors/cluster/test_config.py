"""What deploy files and --set may say, how a refusal names the key, and files that are laid over others."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cluster import cli
from actors.cluster.config import deploy_files, typed_yaml
from actors.cluster.config.schema import DESKTOPS_MOST, SEED_MOST, Deploy, SeatsConfig
from actors.desktop.config import SandboxConfig
from runtime.errors import ConfigError
from tests.actors.cluster.unplayed import planned


def refusal(data: object, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        typed_yaml.build(data, Deploy, overrides, source="here.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"replay": {"group_sise": 3}}, "here.yaml: unknown key replay.group_sise; did you mean replay.group_size?"),
        ({"learner": {"threds": 3}}, "here.yaml: unknown key learner.threds; did you mean learner.rl.threads?"),
        ({"group_size": 3}, "here.yaml: unknown key group_size; did you mean replay.group_size?"),
        ({"runn": {}}, "here.yaml: unknown key runn; did you mean run?"),
        ({"run": {"seed": "x"}}, "here.yaml: run.seed: expected int, got str"),
        (
            {"tasks": {"train": [{"familly": "f"}]}},
            "here.yaml: unknown key tasks.train.0.familly; did you mean tasks.train.0.family?",
        ),
        ([1], "here.yaml: expected keys and values at the top, got list"),
    ],
)
def test_an_error_is_one_line_with_source_path_and_nearest_key(data: object, expected: str) -> None:
    assert refusal(data) == expected


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("run.sead=1", "--set run.sead=1: unknown key run.sead; did you mean run.seed?"),
        ("run.seed=x", "--set run.seed=x: run.seed: expected int, got str"),
        ("evaluation.enabled=on", "--set evaluation.enabled=on: evaluation.enabled: expected true or false, got str"),
        ("run.seed", "--set run.seed: expected path=value, for example run.seed=7"),
        ("=1", "--set =1: expected path=value, for example run.seed=7"),
        (
            "samplers.engine.python=x",
            "--set samplers.engine.python=x: unknown key samplers.engine.python; type embedded has none, type"
            " sglang has it",
        ),
        (
            "desktops.provider=contaner",
            "--set desktops.provider=contaner: desktops.provider: got contaner; its kind is set by"
            " desktops.provider.type; did you mean container?",
        ),
        ("run.seed.deep=1", "--set run.seed.deep=1: run.seed holds no keys of its own"),
        ("tasks.train.4.count=1", "--set tasks.train.4.count=1: tasks.train.4 holds no keys of its own"),
    ],
)
def test_a_wrong_override_is_blamed_on_itself(override: str, expected: str) -> None:
    assert refusal({"run": {"seed": 1}, "tasks": {"train": ["a"]}}, override) == expected


def test_overrides_are_yaml_and_the_last_one_wins() -> None:
    overrides = ["run.seed=1", "run.seed=2", "sampling.temperature=5e-1", "run.limit_s=", "tasks.eval=[a/b/1]"]
    before = {"run": {"limit_s": 5}, "model": {"path": "models/x"}}
    deploy = typed_yaml.build(before, Deploy, [*overrides, "model.path="], source="x")
    assert deploy.model.path == ""
    assert (deploy.run.seed, deploy.sampling.temperature, deploy.run.limit_s) == (2, 0.5, None)
    assert deploy.tasks.eval == ["a/b/1"]


def test_yaml_errors_name_the_line() -> None:
    with pytest.raises(ConfigError, match=r"^f\.yaml: line 2: "):
        typed_yaml.parse_yaml("a: 1\n  b: [", "f.yaml")
    with pytest.raises(ConfigError, match=r"^f\.yaml: line 3: key a is written twice"):
        typed_yaml.parse_yaml("a: 1\nb: 2\na: 3\n", "f.yaml")
    with pytest.raises(ConfigError, match=r"^f\.yaml: line 2: key 1 is no text but a int: put it in quotes"):
        typed_yaml.parse_yaml("arms:\n  1: {}\n", "f.yaml")
    with pytest.raises(ConfigError, match=r"^f\.yaml: line 1: 9{20}\.\.\. "):
        typed_yaml.parse_yaml("a: " + "9" * 5000, "f.yaml")
    for text in ("a: !!float x", "a: !!int ''", "a: !!bool x", "a: !!timestamp x", "a: \udcff"):
        with pytest.raises(ConfigError, match=r"^f\.yaml: a value is no text, or not of its tag: "):
            typed_yaml.parse_yaml(text, "f.yaml")
    assert typed_yaml.parse_yaml("{a: 2026-02-30, b: 2026-11-23}", "f.yaml") == {"a": "2026-02-30", "b": "2026-11-23"}


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=6),
        lambda x: (
            st.dictionaries(st.sampled_from(["run", "seed", "replay", "tasks", "x"]), x, max_size=3)
            | st.lists(x, max_size=2)
        ),
        max_leaves=6,
    )
)
def test_any_data_is_typed_or_refused_in_one_line(data: object) -> None:
    refused = ""
    try:
        typed_yaml.build(data, Deploy, source="f")
    except ConfigError as error:
        refused = str(error)
    assert "\n" not in refused


def test_the_schema_loads_no_tensor_library_no_database_and_no_task_family() -> None:
    code = "import sys, actors.cluster.config.schema; print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    heavy = ("torch", "numpy", "megatron", "sqlite3", "apis.tasks", "aiohttp", "asyncssh")
    assert [name for name in loaded if name in heavy or name.startswith(tuple(f"{each}." for each in heavy))] == []


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 20 << 30)


BOMBS = {
    "200,000 keys": "\n".join(f"{n:x}: 1" for n in range(200_000)),
    "a long list": "tasks: [" + "1," * 60_000 + "]",
    "aliases": "\n".join(f"k{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else '1'] * 9)}]" for n in range(9)),
    "merges": "k0: &a0 {a: 1}\n"
    + "\n".join(f"k{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 9)),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_file_of_too_many_values_is_refused_in_one_line(
    bomb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bomb.yaml"
    file.write_text(BOMBS[bomb])
    assert cli.main(["run", "--dry-run", str(file)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert re.search(r"more than 50000 values|more than 1048576 bytes|aliases are not read", said), said


@pytest.mark.parametrize(
    ("make", "said"), [(os.mkfifo, "it is no regular file"), (huge, "it has more than 1048576 bytes")]
)
def test_a_deploy_file_that_is_no_file_or_too_large_is_refused_in_one_line(
    make: Callable[[Path], None], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "x.yaml")
    (tmp_path / "y.yaml").write_text("extends: x.yaml\n")
    for name in ("x.yaml", "y.yaml"):
        assert cli.main(["run", "--dry-run", str(tmp_path / name)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(ConfigError, match=said):
        typed_yaml.plain(tmp_path / "x.yaml", "x")


def test_what_is_nested_no_deeper_than_may_be_is_read() -> None:
    text = "[" * typed_yaml.DEEPEST + "1" + "]" * typed_yaml.DEEPEST
    assert json.dumps(typed_yaml.parse_yaml(text, "f")) == text
    with pytest.raises(ConfigError, match=r"^f: nested too deeply$"):
        typed_yaml.parse_yaml(f"[{text}]", "f")


@given(st.text(alphabet="[]{}&*a:,- \n", max_size=40))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    refused = "f: "
    try:
        typed_yaml.parse_yaml(text, "f")
    except ConfigError as error:
        refused = str(error)
    assert refused.startswith("f: ")
    assert "\n" not in refused


def test_a_message_repeats_the_beginning_of_a_long_override() -> None:
    with pytest.raises(ConfigError, match=r"^--set x=\[+\.\.\.: nested too deeply$") as caught:
        typed_yaml.build({}, Deploy, ["x=" + "[" * 3000], source="f")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("key", "good", "bad", "limits"),
    [
        ("desktops.count", [1, DESKTOPS_MOST], [0, -1, DESKTOPS_MOST + 1, 10**30], "from 1 to 65536"),
        ("desktops.provider.memory_mib", [128, 1500], [-1, 0, 127, 2**40], "from 128 to 1048576"),
        ("replay.group_size", [4, 64], [0, -8], "from 1"),
        ("replay.group_size", [4], [3], r"at least replay\.min_group_size \(4\)"),
        ("replay.min_group_size", [8], [9], r"from 1 to group_size \(8\)"),
        ("entropulse.entropy_share", [0.01, 1], [0.0, -0.5, 1.5], "above 0 and up to 1"),
        ("entropulse.plateau_gain", [0, 0.5], [-0.1], "at least 0"),
        ("entropulse.plateau_gain", [1], [".nan", ".inf"], "a finite number"),
        ("run.seed", [0, SEED_MOST], [-1, SEED_MOST + 1], f"from 0 to {SEED_MOST}"),
    ],
)
def test_a_number_out_of_bounds_is_refused_with_its_key_and_its_range(
    key: str, good: list[float], bad: list[Any], limits: str
) -> None:
    for value in good:
        typed_yaml.build({}, Deploy, [f"{key}={value}"], source="f")
    for value in bad:
        said = f"{key}={value}"
        with pytest.raises(ConfigError, match=rf"^--set {said}: {key} is {str(value).lstrip('.')}: .*{limits}"):
            typed_yaml.build({}, Deploy, [said], source="f")


@given(st.integers(1, 40), st.integers(1, 40))
def test_processes_share_seats_as_their_number_says(seats: int, hosts: int) -> None:
    machine = {"host": "h", "user": "u", "client_key": "k", "host_key": "k", "desktops": seats * hosts}
    data = {
        "count": seats,
        "processes": min(seats, hosts),
        "warm_pool": 0,
        "provider": {"type": "ssh", "machines": [machine]},
    }
    config = typed_yaml.build({"desktops": data}, Deploy, source="f").desktops
    assert isinstance(config, SeatsConfig)
    places = [config.host_of(seat) for seat in range(seats)]
    assert [places.count(index) for index in range(config.processes)] == [
        config.seats_of(index) for index in range(config.processes)
    ]


def test_an_answer_leaves_room_for_its_question() -> None:
    assert planned("local", "sampling.max_new_tokens=4095")
    with pytest.raises(
        ConfigError, match=r"^sampling\.max_new_tokens is 4096: it counts from 1 to 4095, .* model\.path"
    ):
        planned("local", "sampling.max_new_tokens=4096")


@pytest.mark.parametrize(
    ("count", "said", "tasks"),
    [
        (2330, "2330 are wanted: the other 1530 are demonstrated", "5320 demonstrated"),
        (800, "800 are wanted: none is demonstrated", "0 demonstrated"),
    ],
)
def test_a_dry_run_says_what_a_recording_holds_and_what_is_wanted(
    count: int, said: str, tasks: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = deploy_files.bundled()["local"].parent / "demos" / "local.parquet"
    words = ["--json", "--set", f"demos.source={source}", "--set", f"demos.count={count}"]
    assert cli.main(["run", "bc-alone", "--dry-run", "--runs", str(tmp_path), *words]) == 0
    shown = dict(json.loads(capsys.readouterr().out)["summary"])
    assert shown["recording"] == f"{source} holds 800 demonstrations, {said}"
    assert shown["tasks"].endswith(f"held out, {tasks}")


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


@pytest.mark.parametrize("name", ["smoke", "local-sglang", "ablation-actions"])
def test_what_is_printed_runs_alike(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", name, "--print", "--set", "learner.clip_grad=0.5"]) == 0
    printed = written(tmp_path, "whole.yaml", capsys.readouterr().out)
    assert "extends" not in deploy_files.parsed(printed)[0]
    assert deploy_files.load(printed)[0] == deploy_files.load(name, ["learner.clip_grad=0.5"])[0]
    assert cli.main(["run", printed, "--print"]) == 0
    assert capsys.readouterr().out == Path(printed).read_text()
