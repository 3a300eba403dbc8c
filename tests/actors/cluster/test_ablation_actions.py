"""The comparison of action spaces: what each arm demonstrates, and what a deploy file is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from actors.cluster import cli
from actors.cluster.config import deploy_files, suites
from actors.cluster.config.schema import Deploy
from actors.cluster.config.typed_yaml import build
from actors.cluster.demos import record
from actors.cluster.runs import loop
from actors.desktop.actor import DesktopSeat
from actors.replay.config import LedgerSettings
from actors.replay.rules import cold_start
from apis.actions.spaces import SPACES
from apis.tasks import registry as tasks
from runtime.errors import ConfigError

FILE = "ablation-actions"
FAMILIES = {"calc_cell", "calc_lookup", "calc_sum", "calc_sheet", "sheet_from_note"}
ROUTES = {"gui": ["gui"], "api": ["api"], "both": ["api", "gui", "mixed"]}


def planned(deploy: Deploy) -> tuple[LedgerSettings, DesktopSeat]:
    stages = loop.training().planned(deploy, run_dir=Path("runs/x"), incarnation="i").stages
    seat = next(spec.config for spec in stages[1] if spec.name == "desktop/0")
    ledger = stages[0][0].config
    assert isinstance(ledger, LedgerSettings)
    assert isinstance(seat, DesktopSeat)
    return ledger, seat


@pytest.mark.slow
def test_each_arm_demonstrates_within_its_actions_and_as_often_as_the_others() -> None:
    counts = set()
    for space in SPACES:
        ledger, seat = planned(deploy_files.load(FILE, [f"prompt.action_space={space}"])[0])
        assert ledger.action_space == seat.seat.action_space == space
        assert ledger.demo_routes == dict.fromkeys(FAMILIES, ROUTES[space])
        kinds = cold_start.strata(ledger.demo_tasks, ledger.demo_routes)
        assert ledger.demos.count % len(kinds) == 0  # each family and route as often
        counts.add(ledger.demos.count)
        assert {task.split("/")[0] for task in ledger.train_tasks} == FAMILIES
    assert len(counts) == 1


@pytest.mark.parametrize(
    ("sections", "expected"),
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
def test_what_can_not_be_done_with_the_actions_is_refused(sections: dict[str, Any], expected: str) -> None:
    data: dict[str, Any] = {
        "tasks": {"train": ["calc_cell/train/2"], "demo": ["calc_cell/train/1"]},
        "prompt": {"action_space": "api"},
        "evaluation": {"enabled": False},
    }
    for section, keys in sections.items():
        data[section] = {**data.get(section, {}), **keys}
    with pytest.raises(ConfigError, match=expected):
        planned(build(data, Deploy, source="x"))


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
