"""The comparison of action spaces: what its arms share, what each demonstrates, and what a deploy file is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.cluster import cli
from actors.cluster.checks.tasks.live import requests_for
from actors.cluster.config import demonstrators, suites
from actors.cluster.config.schema import DemonstrationsConfig, Deploy
from actors.cluster.config.typed_yaml import build
from actors.cluster.demos import record
from actors.cluster.runs import compose, experiment, recordings
from actors.desktop.actor import DesktopSeat
from actors.replay.config import LedgerSettings
from actors.replay.demos import demo_files
from actors.replay.demos import format as demo_format
from actors.replay.rules import strata
from apis.actions.spaces import SPACES
from apis.tasks import registry as tasks
from apis.tasks.words import HELD_OUT, TRAIN
from runtime.errors import ConfigError

FILE = "ablation-actions"
FAMILIES = {"calc_cell", "calc_lookup", "calc_sum", "calc_sheet", "sheet_from_note"}
ROUTES = {"gui": ["gui"], "api": ["api"], "both": ["api", "gui", "mixed"]}


def planned(deploy: Deploy) -> tuple[LedgerSettings, DesktopSeat]:
    stages = compose.plan(deploy, run_dir=Path("runs/x"), incarnation="i").stages
    seat = next(spec.config for spec in stages[1] if spec.name == "desktop/0")
    ledger = stages[0][0].config
    assert isinstance(ledger, LedgerSettings)
    assert isinstance(seat, DesktopSeat)
    return ledger, seat


def test_the_arms_differ_in_their_actions_alone_and_three_seeds_meet_each() -> None:
    runs = experiment.expand(FILE)
    assert {(one.arm, one.seed) for one in runs} == {(arm, seed) for arm in SPACES for seed in (0, 1, 2)}
    for one in runs:
        assert one.deploy.prompt.action_space == one.arm
        prompt = msgspec.structs.replace(one.deploy.prompt, action_space="gui")
        run = msgspec.structs.replace(one.deploy.run, seed=0)
        assert msgspec.structs.replace(one.deploy, prompt=prompt, run=run) == runs[0].deploy


@pytest.mark.slow
def test_each_arm_demonstrates_within_its_actions_and_as_often_as_the_others() -> None:
    counts = set()
    for one in experiment.expand(FILE, seeds=[0]):
        ledger, seat = planned(one.deploy)
        assert ledger.action_space == seat.seat.action_space == one.arm
        assert ledger.demo_routes == dict.fromkeys(FAMILIES, ROUTES[one.arm])
        kinds = strata.strata(ledger.demo_tasks, ledger.demo_routes)
        assert ledger.demos.count % len(kinds) == 0  # each family and route as often
        counts.add(ledger.demos.count)
        assert {task.split("/")[0] for task in ledger.train_tasks} == FAMILIES
    assert len(counts) == 1
    assert experiment.footings(experiment.expand(FILE)) == {arm: arm for arm in SPACES}
    assert set(experiment.footings(experiment.expand("ablation-async")).values()) == {""}


def test_held_out_instances_are_held_out() -> None:
    deploy = experiment.expand(FILE)[0].deploy
    split_of = {
        name: {entry.split for entry in getattr(deploy.tasks, name) if not isinstance(entry, str)}
        for name in ("train", "demo", "eval")
    }
    assert split_of == {"train": {TRAIN}, "demo": {TRAIN}, "eval": {HELD_OUT}}


@pytest.mark.slow
def test_a_dry_run_shows_each_arms_actions_and_demonstrators(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", FILE, "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["runs"]
    assert [(one["arm"], one["demonstrators"]) for one in told[:3]] == list(ROUTES.items())
    assert cli.main(["run", FILE, "--dry-run", "--arm", "api"]) == 0
    shown = capsys.readouterr().out
    assert "api: the functions of applications, no mouse and no keyboard" in shown
    assert cli.main(["run", FILE, "--dry-run"]) == 0
    assert "each arm's own, recorded once for its seeds (gui, api, both)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"tasks": {"train": ["text_editor/train/1"]}}, "tasks.train: text_editor goes by gui only, .* is api"),
        ({"tasks": {"demo": ["text_editor/train/1"]}}, "tasks.demo: text_editor goes by gui only"),
        ({"demos": {"routes": ["gui"]}}, "demos.routes: gui needs more actions than prompt.action_space .api. has"),
        ({"demos": {"routes": ["mixed"]}}, "demos.routes: mixed needs more actions"),
        (
            {"demos": {"attempts_per_task": 1, "demonstrators": [{"type": "oracle", "name": "o", "route": "gui"}]}},
            "demos.demonstrators: o: route gui needs more actions",
        ),
        ({"prompt": {"action_space": "mouse"}}, "prompt.action_space"),
    ],
)
def test_what_can_not_be_done_with_the_actions_is_refused(changes: dict[str, Any], expected: str) -> None:
    data: dict[str, Any] = {
        "tasks": {"train": ["calc_cell/train/2"], "demo": ["calc_cell/train/1"]},
        "prompt": {"action_space": "api"},
        "evaluation": {"enabled": False},
    }
    for section, keys in changes.items():
        data[section] = {**data.get(section, {}), **keys}
    with pytest.raises(ConfigError, match=expected):
        planned(build(data, Deploy, source="x"))


def test_a_pool_of_sound_oracles_is_one_of_each_route_within_the_actions() -> None:
    config = DemonstrationsConfig(attempts_per_task=1)
    names = {space: [one.name for one in demonstrators.pool_of(config, space)] for space in SPACES}
    assert names == {"both": ["api", "gui", "by-turns"], "gui": ["gui"], "api": ["api"]}
    pool = demonstrators.pool_of(config)
    assert demonstrators.members_of(["calc_cell/train/1"], pool, "gui") == {"calc_cell": ["gui"]}


def test_oracles_are_checked_by_the_routes_of_the_actions() -> None:
    ids = {"calc_cell": ["calc_cell/train/1"], "text_editor": ["text_editor/train/1"]}
    assert {(wish.task.split("/")[0], wish.route) for wish in requests_for(ids, (), "api")} == {("calc_cell", "api")}
    assert {wish.route for wish in requests_for(ids, ())} == {"gui", "api", "mixed"}
    assert requests_for(ids, ("gui",), "api") == []
    assert tasks.FAMILIES["text_editor"].routes.keys() == {"gui"}


def test_a_suite_is_recorded_by_the_families_and_routes_of_the_actions() -> None:
    def recorded(*words: str) -> Deploy:
        return record.deploy_of(cli.build_parser().parse_args(["demos", "record", "desktop", *words]))

    deploy = recorded("--actions", "api")
    families = {entry.family for entry in deploy.tasks.demo if not isinstance(entry, str)}
    every = (tasks.FAMILIES[name] for name in suites.load("desktop").trained)
    assert families == {one.name for one in every if "api" in one.routes}
    assert deploy.prompt.action_space == "api"
    assert recorded("--routes", "mixed").demos.routes == ["mixed"]
    with pytest.raises(ConfigError, match="desktop: no family with a route mixed for actions gui"):
        recorded("--actions", "gui", "--routes", "mixed")


def test_a_recording_of_other_actions_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "demos.jsonl"
    for actions, fits in (("gui", True), ("", True), ("both", False)):
        header = demo_format.RecordingHeader(format=demo_format.FORMAT, tokenizer="", form="", actions=actions, demos=0)
        demo_files.write(path, header, [])
        data = {"prompt": {"action_space": "gui"}, "tasks": {"demo": ["text_editor/train/1"]}}
        deploy = build(data, Deploy, source="x")
        if fits:
            recordings.refuse_unfit(deploy, path, "t")
            continue
        with pytest.raises(
            ConfigError, match=r"was recorded with actions both, prompt\.action_space is gui: record anew"
        ):
            recordings.refuse_unfit(deploy, path, "t")
