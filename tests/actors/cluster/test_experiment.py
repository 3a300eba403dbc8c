"""One deploy file that stands for several runs: what it becomes, what it refuses, how it is carried out."""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import runtime.system
from actors.cluster import cli
from actors.cluster.config import deploy_files, models, typed_yaml
from actors.cluster.config.schema import Deploy
from actors.cluster.report import gather, show
from actors.cluster.runs import comparable, compose, execute, experiment, resume, run_folder
from actors.cluster.runs import run as runcommand
from actors.replay.database.schema import connect
from runtime.errors import ConfigError
from runtime.program import program

FILE = """
arms:
  near: {replay.max_staleness: 0}
  far: {replay.max_staleness: 4, learner.rl.lr: 0.001}
seeds: [3, 5]
tasks:
  train: [file_manager/train/1000]
  demo: [file_manager/train/1]
demos: {count: 1}
evaluation: {enabled: false}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "exp.yaml"
    path.write_text(FILE)
    return str(path)


def test_arms_and_seeds_become_runs_that_differ_in_nothing_else(file: str) -> None:
    runs = experiment.expand(file, ["learner.sft.lr=0.5"])
    assert [one.name("e") for one in runs] == ["e-near-3", "e-far-3", "e-near-5", "e-far-5"]
    assert [one.deploy.replay.max_staleness for one in runs] == [0, 4, 0, 4]
    assert [one.deploy.run.seed for one in runs] == [3, 3, 5, 5]
    assert {one.deploy.learner.sft.lr for one in runs} == {0.5}
    far = runs[1].deploy
    same = msgspec.structs.replace(
        far,
        replay=msgspec.structs.replace(far.replay, max_staleness=0),
        learner=msgspec.structs.replace(far.learner, rl=runs[0].deploy.learner.rl),
    )
    assert same == runs[0].deploy


def test_some_of_them_can_be_chosen(file: str) -> None:
    assert [one.name("e") for one in experiment.expand(file, arms=["far"], seeds=[5])] == ["e-far-5"]
    assert [one.name("l") for one in experiment.expand("local", seeds=[0, 1, 2])] == ["l-0", "l-1", "l-2"]
    assert experiment.is_one(file)
    assert not experiment.is_one("local")


@settings(max_examples=15)
@given(st.lists(st.integers(0, 99), min_size=1, max_size=4, unique=True), st.integers(1, 3))
def test_every_arm_meets_every_seed_once(seeds: list[int], arms: int) -> None:
    found = experiment.expand("ablation-async", arms=["no_overlap", "one_step", "full"][:arms], seeds=[0, 2])
    assert len({(one.arm, one.seed) for one in found}) == len(found) == 2 * arms
    assert [one.seed for one in experiment.expand("smoke", seeds=seeds)] == seeds


@pytest.mark.parametrize(
    ("change", "overrides", "chosen", "expected"),
    [
        (("max_staleness", "max_stalenes"), [], {}, "arms.near: unknown key replay.max_stalenes; did you mean"),
        (("near: {", "near: {run.seed: 1, "), [], {}, "arms.near: run.seed is what seeds are for"),
        (("near: {", "none:\n  near: {"), [], {}, "arms.none: an arm gives values to keys"),
        (("near:", "ne-ar:"), [], {}, "letters, digits and underscores"),
        (("near:", "cloning:"), [], {}, "arms.cloning: a run of this name is what arms begin from"),
        (("[3, 5]", "[3, 3]"), [], {}, "names one twice"),
        (("[3, 5]", "[a]"), [], {}, "seeds.0: expected int"),
        (("arms:", "armes:"), [], {}, "unknown key armes; did you mean arms"),
        (("0.001", "fast"), [], {}, "arms.far: learner.rl.lr: expected float"),
        (("learner.rl.lr", "learner.rl.advantage_std"), [], {}, "expected bool"),
        (("learner.rl.lr: 0.001", "learner.epochs: 2"), [], {}, "did you mean learner.rl.epochs"),
        (("", ""), ["replay.max_staleness=1"], {}, "arm near of .* sets replay.max_staleness"),
        (("", ""), ["replay={}"], {}, "arm near of .* sets replay.max_staleness"),
        (("", ""), ["run.seed=1"], {}, "chosen with --seed"),
        (("", ""), ["seeds=[1]"], {}, "--arm and --seed"),
        (("", ""), [], {"arms": ["nar"]}, "no such arm; did you mean near"),
        (("", ""), [], {"seeds": [4]}, "has seeds 3, 5"),
    ],
)  # fmt: skip
def test_what_would_make_it_meaningless_is_refused(
    file: str, change: tuple[str, str], overrides: list[str], chosen: dict[str, Any], expected: str
) -> None:
    Path(file).write_text(FILE.replace(*change))
    with pytest.raises(ConfigError, match=expected):
        experiment.expand(file, overrides, **chosen)


@pytest.mark.slow
def test_a_dry_run_shows_every_run(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["run", file, "--dry-run", "--runs", str(tmp_path)]
    assert cli.main([*at, "--name", "mine"]) == 0
    shown = capsys.readouterr().out
    assert "mine-far-5" in shown
    assert "recorded once for all" in shown
    assert cli.main([*at, "--json", "--seed", "5", "--seed", "3", "--arm", "far", "--arm", "near"]) == 0
    assert len(json.loads(capsys.readouterr().out)["runs"]) == 4, "a flag said twice drops nothing"
    (tmp_path / "mine-far-5").mkdir()
    (tmp_path / "mine-far-5" / "run.json").write_text("{}")
    for words, said in (
        (["--name", "mine"], "run mine-far-5 exists already"),
        (["--name", "a/b"], "letters, digits"),
        (["--resume"], "nothing to resume"),
        (["--runs", "/dev/null"], "/dev/null is no folder"),
    ):
        assert cli.main([*at, *words]) == 2
        assert said in capsys.readouterr().err
    assert cli.main([*at, "--json", "--arm", "near", "--name", "exp"]) == 0
    told = json.loads(capsys.readouterr().out)["runs"]
    assert [(one["name"], one["changes"]) for one in told] == [
        ("exp-near-3", {"replay.max_staleness": 0}),
        ("exp-near-5", {"replay.max_staleness": 0}),
    ]
    assert cli.main(["run", "local", "--arm", "x", "--dry-run"]) == 2
    assert "local has no such arm" in capsys.readouterr().err


OWN = {  # what an ablation may say otherwise than the main job
    "run", "entropulse", "evaluation", "tasks.eval", "replay.max_staleness", "learner.rl.advantage",
    "demos.resample_rounds", "demos.resample_attempts", "demos.resample_bc_steps", "demos.source",
}  # fmt: skip
# Calc's families cost four times as much, and a pool's members would not make as many demonstrations for each arm.
# Its few steps of RL are plain GRPO, without pulses: half of what they learn from is what an action space does wrong.
OF_ACTIONS = {
    "tasks.train", "tasks.demo", "demos", "prompt.action_space", "replay.groups_per_step", "replay.pulse_demos",
    "learner.rl.lr", "learner.rl.warmup_steps", "learner.rl.epochs", "learner.rl.negative_scale",
}  # fmt: skip


def leaves(document: dict[str, Any], at: str = "") -> Iterator[tuple[str, object]]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{at}{key}.")
        else:
            yield f"{at}{key}", value


@pytest.mark.parametrize("name", ["ablation-async", "ablation-entropulse", "ablation-advantage", "ablation-actions"])
def test_an_ablation_is_the_main_job_but_for_what_it_compares(name: str) -> None:
    main, _ = deploy_files.load("local")
    annealing = {"learner.rl.lr_schedule", "learner.rl.lr_cycle_steps"}
    own = OWN | {
        "ablation-entropulse": annealing,
        "ablation-actions": OF_ACTIONS,
        "ablation-advantage": {"learner.rl.negative_scale"},
    }.get(name, set())
    for one in experiment.expand(name):
        ours, theirs = (dict(leaves(msgspec.to_builtins(each))) for each in (one.deploy, main))
        other = {key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)}
        assert [key for key in other if not any(f"{key}.".startswith(f"{each}.") for each in own)] == []


def test_arms_may_begin_where_the_main_job_had_cloned_and_are_comparable() -> None:
    main, _ = deploy_files.load("local")
    runs = experiment.expand("ablation-entropulse")
    assert all(experiment.cloning_of(one.deploy) == experiment.cloning_of(main) for one in runs)
    assert comparable.problems({one.arm: one.deploy for one in runs}) == []
    rounds = {one.arm: comparable.annealed(one.deploy) for one in runs}
    assert all(set(found or ()) >= {f"rl{18 * n}" for n in range(1, 6)} for found in rounds.values())
    assert set(rounds["full"] or ()) >= {f"after_pulse{n}" for n in range(1, 5)}
    at_floor = main.learner.lr_floor
    assert all(share == pytest.approx(at_floor) for found in rounds.values() for share in (found or {}).values())


@pytest.mark.slow
def test_arms_that_anneal_or_rehearse_otherwise_are_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    once = {"learner.rl.lr_cycle_steps": 0}
    for changes, said in (
        (once, "full and none have annealed otherwise before round rl18: to 0.10 and"),
        ({"learner.rehearsal": 0}, ""),
        ({"evaluation.interval": 20}, "full has no round between RL step 18 and its pulse"),
    ):
        words = [f"{key}={value}" for key, value in changes.items()]
        runs = experiment.expand("ablation-entropulse", words, arms=["full", "none"])
        found = comparable.problems({one.arm: one.deploy for one in runs})
        assert any(said in line for line in found) if said else not found
    full, none = (one.deploy for one in experiment.expand("ablation-entropulse", arms=["full", "none"], seeds=[0]))
    less = msgspec.structs.replace(none, learner=msgspec.structs.replace(none.learner, rehearsal=2))
    assert comparable.problems({"a": full, "b": less}) == ["a and b rehearse otherwise: learner.rehearsal is 8 and 2"]
    by_curves = msgspec.structs.replace(full, entropulse=msgspec.structs.replace(full.entropulse, rl_steps_per_phase=0))
    assert comparable.annealed(by_curves) is None, "no plan says when such a stay ends"
    at = ["run", "ablation-entropulse", "--dry-run", "--runs", str(tmp_path), "--set", "learner.rl.lr_cycle_steps=0"]
    assert cli.main(at) == 0
    assert "not comparable: full and none have annealed otherwise" in capsys.readouterr().out


class SimulatedRuns:
    """Stands in for what runs do: opens a ledger and ends with the verdict it was told."""

    def __init__(self, runs: Path, monkeypatch: pytest.MonkeyPatch, verdicts: dict[str, str] | None = None) -> None:
        self.runs, self.verdicts = runs, verdicts or {}
        self.started: list[tuple[str, bool]] = []
        self.deploys: dict[str, Deploy] = {}
        monkeypatch.setattr(runcommand, "_unfit", lambda *_: "")
        for name in ("plan", "recording"):
            monkeypatch.setattr(compose, name, lambda *_, **__: SimpleNamespace(caution=str))  # says nothing
        monkeypatch.setattr(execute, "execute", lambda _plan, record, _job: record)
        monkeypatch.setattr(runtime.system, "run", self)
        monkeypatch.setattr(show, "show", lambda *_, **__: 0)

    def __call__(self, record: run_folder.RunRecord) -> tuple[str, str | None]:
        folder = self.runs / record.name
        self.started.append((record.name, bool(record.resumed)))
        self.deploys[record.name] = typed_yaml.read(folder / "deploy.yaml", Deploy)
        connect(folder / "ledger.sqlite")[0].close()
        (folder / "logs").mkdir(exist_ok=True)
        if record.arm == run_folder.CLONING:
            shutil.copytree(models.bundled(), folder / "weights" / "0.7")
        return self.verdicts.get(record.name, "ok"), None


def arguments(file: str, runs: Path, **given: Any) -> argparse.Namespace:
    found = {"arm": [], "seed": [], "overrides": [], "name": None, "resume": False, "json": False, "cloned": None,
             "web": None}  # fmt: skip
    return argparse.Namespace(file=file, runs=str(runs), **{**found, **given})


@pytest.mark.slow
def test_runs_share_a_recording_and_a_resume_passes_by_what_has_ended(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = tmp_path / "runs"
    simulated = SimulatedRuns(runs, monkeypatch, {"e-far-3": "stopped"})
    reported: list[list[str]] = []

    def report(paths: list[Path], out: Path, *, as_json: bool) -> int:
        reported.append([path.name for path in paths])
        return 0

    monkeypatch.setattr(show, "show", report)
    assert runcommand.start(arguments(file, runs, name="e")) == 130
    assert simulated.started == [
        ("e-demos", False), ("e-cloning-3", False), ("e-near-3", False), ("e-far-3", False)
    ]  # fmt: skip
    assert simulated.deploys["e-cloning-3"].demos.source == str((runs / "e-demos").resolve())
    assert not reported
    simulated.verdicts = {"e-near-5": "failed"}
    simulated.started = []
    assert runcommand.start(arguments(file, runs, resume=True)) == 1
    assert simulated.started == [
        ("e-far-3", True), ("e-cloning-5", False), ("e-near-5", False), ("e-far-5", False)
    ]  # fmt: skip
    assert reported == [["e-near-3", "e-far-3", "e-near-5", "e-far-5"]]
    assert [path.name for path in run_folder.of_experiment(runs, "e")][:2] == ["e-near-3", "e-far-3"]
    assert run_folder.to_continue(run_folder.read_record(runs / "e-far-3"), runs / "e-far-3").startswith(
        f"{program()} run {file} --resume --name e"
    )
    with pytest.raises(ConfigError, match="nothing to resume"):
        run_folder.newest_of(runs, "exp", file)
    with pytest.raises(ConfigError, match="exists already"):
        runcommand.start(arguments(file, runs, name="e"))
    with pytest.raises(ConfigError, match="no such experiment"):
        runcommand.start(arguments(file, runs, name="f", resume=True))
    simulated.started = []
    other = str(
        Path(file).parent / "." / ".." / Path(file).parent.name / Path(file).name
    )  # the same file otherwise said
    assert runcommand.start(arguments(other, runs, resume=True)) == 1
    assert not simulated.started


def test_arms_that_differ_after_cloning_begin_from_weights_cloned_once_per_seed(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path(file).write_text(
        FILE + "run: {limit_s: 60, require: {bc_steps: 1, rl_steps: 1}}\nentropulse: {bc_steps: 9, pulses: 2}\n"
    )
    runs = tmp_path / "runs"
    simulated = SimulatedRuns(runs, monkeypatch)
    assert runcommand.start(arguments(file, runs, name="e", arm=["far"])) == 0
    assert [name for name, _ in simulated.started] == ["e-demos", "e-cloning-3", "e-far-3", "e-cloning-5", "e-far-5"]
    alone, arm = simulated.deploys["e-cloning-5"], simulated.deploys["e-far-5"]
    phases = alone.entropulse
    assert (alone.run.seed, phases.bc_steps, phases.total_rl_steps, phases.pulses) == (5, 9, 0, 0)
    assert (alone.run.require.bc_steps, alone.run.require.rl_steps, alone.evaluation.enabled) == (9, 0, False)
    assert (alone.run.limit_s, arm.run.limit_s) == (None, 60.0), "the limit is for arms, and all cloning is wanted"
    assert arm.model.path == str((runs / "e-cloning-5" / "weights" / "0.7").resolve())
    assert (arm.demos.count, arm.demos.source, arm.entropulse.bc_steps, arm.entropulse.pulses) == (0, "", 0, 2)
    assert (arm.run.require.bc_steps, arm.run.require.rl_steps, arm.replay.max_staleness) == (0, 1, 4)
    keys = [gather.key_of(path, gather.deploy_of(path)) for path in (runs / "e-far-3", runs / "e-far-5")]
    assert keys[0] == keys[1], "a report takes the seeds of an arm together"
    elsewhere = gather.deploy_of(runs / "e-far-5")
    elsewhere["model"]["path"] = "/models/e-cloning-3/weights"
    assert gather.key_of(runs / "e-far-5", elsewhere) != keys[0], "weights of another seed, or from elsewhere"


@pytest.mark.parametrize(("pulse", "kept"), [("full", True), ("restart", False), ("none", False)])
def test_pulses_that_learn_demonstrations_find_those_of_the_run_that_cloned(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pulse: str, kept: bool
) -> None:
    more = f"entropulse: {{bc_steps: 9, pulses: 2, pulse: {pulse}}}\nreplay: {{pulse_demos: 8}}\n"
    Path(file).write_text(FILE.replace("count: 1", "count: 30") + more)
    runs = tmp_path / "runs"
    simulated = SimulatedRuns(runs, monkeypatch)
    found = {str((runs / f"e-cloning-{seed}").resolve()): 30 + seed for seed in (3, 5)}  # with the policy's own
    monkeypatch.setattr(resume, "demonstrations", found.__getitem__)
    assert runcommand.start(arguments(file, runs, name="e", arm=["far"])) == 0
    arm = simulated.deploys["e-far-5"]
    where = str((runs / "e-cloning-5").resolve())
    assert (arm.demos.source, arm.demos.count, arm.replay.pulse_demos) == ((where, 35, 8) if kept else ("", 0, 0))
    assert arm.entropulse.bc_steps == 0
    keys = [gather.key_of(path, gather.deploy_of(path)) for path in (runs / "e-far-3", runs / "e-far-5")]
    assert keys[0] == keys[1], "a report takes the seeds of an arm together"


@pytest.mark.parametrize(
    ("far", "shared"),
    [("learner.rl.kl_coef: 0.1", True), ("learner.sft.lr: 0.1", False), ("entropulse.bc_steps: 3", False),
     ("replay.sft_batch_size: 8", False), ("demos.noise: 0.1", False), ("entropulse.rl_steps_per_phase: 3", True),
     ("sampling.max_new_tokens: 40", False), ("sampling.temperature: 0.9", True)],
)  # fmt: skip
def test_arms_share_cloning_unless_they_clone_otherwise(file: str, far: str, shared: bool) -> None:
    Path(file).write_text(FILE.replace("replay.max_staleness: 4, learner.rl.lr: 0.001", far))
    assert experiment.share_cloning(experiment.expand(file)) == shared
    assert not experiment.share_cloning(experiment.expand("smoke", seeds=[0, 1]))


def test_arms_with_other_actions_begin_from_recordings_of_their_own(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arms = (
        "  near: {prompt.action_space: gui}\n  far: {prompt.action_space: gui, demos.resample_rounds: 0}\n  all: {}\n"
    )
    head, tail = FILE.split("arms:\n", maxsplit=1)[0], FILE[FILE.index("seeds:") :]
    Path(file).write_text(f"{head}arms:\n{arms}{tail}")
    runs = tmp_path / "runs"
    simulated = SimulatedRuns(runs, monkeypatch)
    assert runcommand.start(arguments(file, runs, name="e", arm=["far"], seed=[5])) == 0
    assert [name for name, _ in simulated.started] == ["e-near-demos", "e-far-5"]
    assert runcommand.start(arguments(file, runs, name="e", resume=True)) == 0
    assert len(simulated.started) == 2, "what it was begun with has ended"
    more = arguments(file, runs, name="e", resume=True, arm=["near", "far", "all"], seed=[3, 5])
    assert runcommand.start(more) == 0
    assert sorted(name for name, _ in simulated.started) == sorted(
        ["e-near-demos", "e-all-demos", *(f"e-{arm}-{seed}" for arm in ("near", "far", "all") for seed in (3, 5))]
    )
    begun = {name: Path(deploy.demos.source).name for name, deploy in simulated.deploys.items() if deploy.demos.source}
    assert begun == {
        f"e-{arm}-{seed}": f"e-{'all' if arm == 'all' else 'near'}-demos"
        for arm in ("near", "far", "all")
        for seed in (3, 5)
    }
    assert "e-all-demos" not in [path.name for path in run_folder.of_experiment(runs, "e")]


def test_a_recording_that_failed_ends_it_every_time(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    simulated = SimulatedRuns(tmp_path / "runs", monkeypatch, {"e-demos": "failed"})
    for again in (False, True):
        assert runcommand.start(arguments(file, tmp_path / "runs", name="e", resume=again)) == 1
    assert simulated.started == [("e-demos", False)]
    assert "e-demos: failed already" in capsys.readouterr().out
