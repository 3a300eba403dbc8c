"""What deploy files, --set and --seed may say at most and at least, and how a refusal names the key."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cluster import cli
from actors.cluster.config import deploy_files, typed_yaml
from actors.cluster.config.schema import DESKTOPS_MOST, PROCESSES_MOST, SEED_MOST, Deploy, SeatsConfig
from actors.cluster.runs import compose, loop
from actors.learner.config import EPOCHS_MOST
from actors.sampler.config import COUNT_MOST
from actors.settings import NEW_TOKENS_MOST
from runtime.errors import ConfigError


def huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 20 << 30)


@pytest.mark.parametrize("text", ["[" * 5000, "{a: " * 3000, "- " * 3000])
@pytest.mark.parametrize("command", [["run", "--dry-run"], ["tasks", "list"]])
def test_a_file_that_is_nested_too_deeply_is_refused_in_one_line(
    text: str, command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "deep.yaml"
    file.write_text(text)
    assert cli.main([*command, str(file)]) == 2
    assert capsys.readouterr().err.endswith(f": {file}: nested too deeply\n")


BOMBS = {
    "200,000 keys": "\n".join(f"{n:x}: 1" for n in range(200_000)),
    "30,000 keys": "\n".join(f"k{n:x}: 1" for n in range(30_000)),
    "a long list": "tasks: [" + "1," * 60_000 + "]",
    "aliases": "\n".join(f"k{n}: &a{n} [{', '.join([f'*a{n - 1}' if n else '1'] * 9)}]" for n in range(9)),
    "an alias of itself": "x: &a [*a]",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_file_of_too_many_values_or_with_aliases_is_refused_in_one_line(
    bomb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bomb.yaml"
    file.write_text(BOMBS[bomb])
    assert cli.main(["run", "--dry-run", str(file)]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert re.search(r"more than 50000 values|more than 1048576 bytes|is an alias: write it out", said), said


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
        ("desktops.processes", [1], [0, PROCESSES_MOST + 1], "from 1 to 1024"),
        ("desktops.warm_pool", [0, DESKTOPS_MOST], [-1, DESKTOPS_MOST + 1], "from 0 to 65536"),
        ("desktops.boots_at_once", [1, DESKTOPS_MOST], [0, DESKTOPS_MOST + 1], "from 1 to 65536"),
        ("desktops.settle_ms", [0], [-1], "from 0"),
        ("desktops.provider.memory_mib", [128, 1500], [-1, 0, 127, 2**40], "from 128 to 1048576"),
        ("samplers.count", [1, COUNT_MOST], [0, COUNT_MOST + 1], "from 1"),
        ("learner.rl.epochs", [1, EPOCHS_MOST], [0, EPOCHS_MOST + 1], "from 1 to 1024"),
        ("replay.pulse_demos", [0, 240], [-1, 10**9], "from 0 to 1000000"),
        ("sampling.max_new_tokens", [1, NEW_TOKENS_MOST], [0, NEW_TOKENS_MOST + 1], "from 1 to 131072"),
        ("replay.group_size", [4, 64], [0, -8], "from 1"),
        ("replay.group_size", [4], [3], r"at least replay\.min_group_size \(4\)"),
        ("replay.min_group_size", [1, 8], [0], "from 1"),
        ("replay.min_group_size", [8], [9], r"from 1 to group_size \(8\)"),
        ("replay.max_staleness", [0], [-1], "from 0"),
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


def planned(*overrides: str) -> compose.Plan:
    return loop.training().planned(deploy_files.load("local", overrides)[0], run_dir=Path("run"), incarnation="i")


def test_an_answer_leaves_room_for_its_question() -> None:
    assert planned("sampling.max_new_tokens=4095")
    with pytest.raises(
        ConfigError, match=r"^sampling\.max_new_tokens is 4096: it counts from 1 to 4095, .* model\.path"
    ):
        planned("sampling.max_new_tokens=4096")


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
