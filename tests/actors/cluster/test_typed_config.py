from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cluster.config import deploy_files, typed_yaml
from actors.cluster.config.schema import Deploy
from actors.cluster.config.suggest import hint, nearest
from runtime.errors import ConfigError


def refusal(data: object, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        typed_yaml.build(data, Deploy, overrides, source="here.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"replay": {"group_sise": 3}}, "here.yaml: unknown key replay.group_sise; did you mean replay.group_size?"),
        (
            {"learner": {"rate": 3}},
            "here.yaml: unknown key learner.rate; known: rl, sft, lr_floor, betas, weight_decay, clip_grad,"
            " token_budget, loss_aggregation, rehearsal, rehearsal_every, rehearsal_coef, checkpoint_every, dtype,"
            " recompute, device_gib, lora, parallel, place, actor_place",
        ),
        ({"learner": {"threds": 3}}, "here.yaml: unknown key learner.threds; did you mean learner.rl.threads?"),
        ({"learner": {"seed": 3}}, "here.yaml: unknown key learner.seed; did you mean run.seed?"),
        ({"desktops": {"nois": 3}}, "here.yaml: unknown key desktops.nois; did you mean demos.noise?"),
        ({"group_size": 3}, "here.yaml: unknown key group_size; did you mean replay.group_size?"),
        ({"runn": {}}, "here.yaml: unknown key runn; did you mean run?"),
        ({"run": {"seed": "x"}}, "here.yaml: run.seed: expected int, got str"),
        (
            {"run": {"require": {"gain_above": "much"}}},
            "here.yaml: run.require.gain_above: expected float or null, got str",
        ),
        (
            {"tasks": {"train": [{"family": "f", "split": "s", "count": "x"}]}},
            "here.yaml: tasks.train.0.count: expected int, got str",
        ),
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
        ("run.seed.deep=1", "--set run.seed.deep=1: run.seed holds no keys of its own"),
        ("tasks.train.4.count=1", "--set tasks.train.4.count=1: tasks.train.4 holds no keys of its own"),
    ],
)
def test_a_wrong_override_is_blamed_on_itself(override: str, expected: str) -> None:
    assert refusal({"run": {"seed": 1}, "tasks": {"train": ["a"]}}, override) == expected


def test_a_key_of_the_usual_kind_needs_no_word_of_its_kind() -> None:
    deploy = typed_yaml.build({}, Deploy, ["desktops.provider.memory_mib=3000"], source="here.yaml")
    assert deploy.desktops.provider.memory_mib == 3000  # type: ignore[union-attr]


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
    assert typed_yaml.parse_yaml("{a: 2026-02-30, b: 2026-11-23}", "f.yaml") == {"a": "2026-02-30", "b": "2026-11-23"}


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_written_any_way_is_a_float(value: float) -> None:
    for text in (f"{value:e}", f"{value:g}", repr(value)):
        parsed = typed_yaml.parse_yaml(f"x: {text}", "f")["x"]
        assert isinstance(parsed, int | float)
        assert parsed == float(text)


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


@pytest.mark.parametrize("name", ["local", "local.yaml", "deploy/local.yaml", "./deploy/local.yaml"])
def test_bundled_files_are_found_from_anywhere(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert deploy_files.locate(name).name == "local.yaml"


@given(st.text(max_size=12), st.lists(st.text(max_size=12), max_size=6))
def test_a_suggestion_is_one_of_the_options(word: str, options: list[str]) -> None:
    best = nearest(word, options)
    assert best is None or best in options
    assert hint(word, options)
