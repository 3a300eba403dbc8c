"""Seats that have a place go to other machines, with all that they need there."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import yaml

from actors.cluster.config import deploy_files
from actors.cluster.config.schema import Deploy
from actors.cluster.runs import compose, doctor, loop
from runtime.messaging.message import Version
from runtime.system import PlacerSpec

PLACED = ("cluster.engine=ray", "desktops.place={CPU: 2, desktops: 18}", "desktops.processes=2")


def deployed(*overrides: str) -> Deploy:
    return deploy_files.load("smoke", overrides)[0]


def planned(*overrides: str) -> compose.Plan:
    return loop.training().planned(deployed(*overrides), run_dir=Path("/r/one"), incarnation="i")


def test_seats_are_placed_and_all_else_stays() -> None:
    assert planned("cluster.engine=ray").placer is None, "without places"
    plan = planned(*PLACED, "cluster.address=h:1", "cluster.wait_s=30")
    places = {host.name: host.place for host in plan.hosts}
    assert places == {"ranks/0": None} | {f"desktops/{k}": {"CPU": 2, "desktops": 18} for k in range(2)}
    assert isinstance(plan.placer, PlacerSpec)
    assert plan.placer.wait_s == 30
    resources = msgspec.json.encode({"CPU": 4.0, "desktops": 36.0}).decode()
    assert plan.placer.arguments == ("--address=h:1", f"--resources={resources}")
    assert plan.sums == ()  # what desktops may take is found out where they are
    assert plan.placer.cluster == "Ray at h:1 (cluster.address)"  # what a run that waits names


def test_samplers_are_placed_with_the_weights_that_they_load() -> None:
    plan = planned("cluster.engine=ray", "cluster.address=local", "samplers.place={engines: 1}", "samplers.count=2")
    assert {host.name: host.place for host in plan.hosts if host.place} == {
        f"samplers/{k}": {"engines": 1} for k in range(2)
    }
    specs = {spec.name: spec.host for stage in plan.stages for spec in stage}
    assert (specs["sampler/1"], specs["router"], specs["learner"]) == ("samplers/1", "main", "main")
    away = next(host for host in plan.hosts if host.name == "samplers/1")
    assert away.place == {"engines": 1}
    assert ("samplers/0", "sampler/0", "a machine with engines 1 free") in plan.host_rows()
    assert plan.placer is not None
    assert plan.placer.arguments[1] == '--resources={"engines":2.0}'
    both = planned(*PLACED, "samplers.place={CPU: 1}")
    assert both.placer is not None
    assert both.placer.arguments[1] == '--resources={"CPU":5.0,"desktops":36.0}'


def test_ranks_are_placed() -> None:
    plan = planned("cluster.engine=ray", "learner.place={GPU: 1, CPU: 4}", "desktops.place={CPU: 2}")
    assert {host.name: host.place for host in plan.hosts} == {"ranks/0": {"GPU": 1, "CPU": 4}, "desktops/0": {"CPU": 2}}
    assert {spec.host for stage in plan.stages for spec in stage if spec.name in ("learner", "replay")} == {"main"}
    assert plan.placer is not None
    assert plan.placer.arguments[1] == '--resources={"CPU":6.0,"GPU":1.0}'
    assert "GiB, on the machine that learner.place finds" in plan.memory
    two = planned("cluster.engine=ray", "learner.place={GPU: 1}", "learner.parallel.data=2")
    assert two.placer is not None
    assert two.placer.arguments[1] == '--resources={"GPU":2.0}'
    assert [(host.name, host.place) for host in two.hosts[:2]] == [(f"ranks/{k}", {"GPU": 1}) for k in range(2)]


def test_router_and_learner_are_placed() -> None:
    elsewhere = ("cluster.engine=ray", "samplers.router_place={CPU: 1}", "learner.actor_place={CPU: 2}")
    plan = planned(*elsewhere)
    hosts = {host.name: host for host in plan.hosts}
    assert {name: host.place for name, host in hosts.items()} == {
        "ranks/0": None, "learner": {"CPU": 2}, "router": {"CPU": 1}, "desktops/0": None
    }  # fmt: skip
    specs = {spec.name: spec for stage in plan.stages for spec in stage}
    at = {name: specs[name].host for name in ("learner", "router", "entropulse", "rank/0", "sampler/0")}
    assert at == dict.fromkeys(("entropulse", "sampler/0"), "main") | {
        "learner": "learner", "router": "router", "rank/0": "ranks/0"
    }  # fmt: skip
    assert ("router", "router", "a machine with CPU 1 free") in plan.host_rows()
    assert ("learner", "learner", "a machine with CPU 2 free") in plan.host_rows()
    assert plan.placer is not None
    assert plan.placer.arguments[1] == '--resources={"CPU":3.0}'
    assert specs["learner"].config.groups is None  # type: ignore[attr-defined]
    zero = Version(lineage=0, step=0)
    round_alone = loop.evaluation(zero).planned(deployed(*elsewhere), run_dir=Path("/r/one"), incarnation="i")
    assert [host.name for host in round_alone.hosts] == ["router", "desktops/0"]
    # The rank sends weights by a collective; its learner elsewhere only brings engines and rank together.
    both = planned(*elsewhere, "samplers.engine.type=sglang", "weight_sync.transport=collective")
    (learner,) = (spec for stage in both.stages for spec in stage if spec.name == "learner")
    assert learner.config.groups is not None  # type: ignore[attr-defined]


def test_a_key_for_an_endpoint_reaches_the_desktops_alone() -> None:
    member = "demos.demonstrators=[{type: endpoint, name: e, url: 'http://h/v1', model: m, key_env: KEY_OF_E}]"
    deploy = deployed(member)
    hosts = compose.placed(deploy)["desktops.place"]
    assert [host.passes for host in hosts] == [("KEY_OF_E",)]
    sandboxes = "desktops.provider={type: e2b, template: t, desktops: 40, key_env: KEY_OF_SANDBOXES}"
    (host,) = compose.placed(deployed(sandboxes))["desktops.place"]
    assert host.passes == ("KEY_OF_SANDBOXES",)


def test_a_machine_whose_desktops_are_elsewhere_needs_none_of_what_they_need() -> None:
    named = {check.name for check in doctor.examine(doctor.needs_of(deployed(*PLACED)))}
    assert "ray" in named
    assert not named & {"sandbox", "cgroups", "all memory"}
    assert "ray" not in {check.name for check in doctor.examine(doctor.needs_of(deployed()))}


def test_kuberay_has_room_for_the_desktops_of_the_cluster_file() -> None:
    folder = deploy_files.locate("cluster").parent
    made = yaml.safe_load((folder / "kubernetes" / "kuberay.yaml").read_text())
    assert made["kind"] == "RayCluster"
    assert f"ray=={made['spec']['rayVersion']} " in (folder / "requirements" / "ray.txt").read_text()
    (workers,) = made["spec"]["workerGroupSpecs"]
    room = json.loads(json.loads(workers["rayStartParams"]["resources"].strip("'")))
    placed = deploy_files.load("cluster")[0].desktops
    assert placed.place is not None
    wanted = placed.place["desktops"]
    assert room["desktops"] // wanted * workers["replicas"] >= placed.processes
