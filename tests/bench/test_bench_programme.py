"""What a programme plays next, from which run, with which keys, and what its table says."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import msgspec
import pytest

from actors.cluster.config import deploy_files
from actors.cluster.report import run_data
from actors.cluster.report.run_data import SUFFIX, RunFigures, StepFigures
from actors.cluster.report.time_spent import MachineTime
from actors.cluster.runs import run_folder
from actors.cluster.runs.evaluation_rounds import EvaluationRound
from actors.learner.batches import learning_rate
from actors.learner.config import Schedule
from actors.replay.messages import Phase
from actors.replay.statistics import RoundEpisode, quantile95, spread, summarise
from runtime.errors import ConfigError
from tests.bench import programme, programme_curves, programme_results
from tests.bench.programme_results import ArmStage, ProgrammeRun, p_value

FILE = """
file: smoke
most_cpu_hours: 1
base: base
set: [entropulse.pulses=0]
trunks: {cloned: [entropulse.total_rl_steps=0], longer: [entropulse.bc_steps=90]}
arms:
  base: {}
  aa: {seed_shift: 100}
  pos: {set: [learner.rl.negative_scale=0]}
  loo: {set: [learner.rl.baseline=leave_one_out]}
  late: {trunk: longer}
stages:
  - {name: screen, seeds: [0, 1], steps: 4, every: 2, rounds: 1, arms: [base, aa, pos, loo], once: [late]}
"""


@pytest.fixture
def plan(tmp_path: Path) -> programme_results.Programme:
    (tmp_path / "p.yaml").write_text(FILE)
    return programme.load(tmp_path / "p.yaml")


def ended(runs: Path, name: str, verdict: str | None = "ok", crashes: int = 0) -> None:
    """A run as it is found later."""
    (runs / name).mkdir(parents=True)
    record = run_folder.RunRecord(
        name=name, file="smoke", seed=0, build="x", versions={}, started="2026-11-28T00:00:00Z", started_s=0.0,
        verdict=verdict, resumed=2, crashes=crashes, reason="it fell",
    )  # fmt: skip
    (runs / name / "run.json").write_bytes(msgspec.json.encode(record))


def played(name: str, solved: dict[str, list[bool]], cpu_s: float = 60.0) -> RunFigures:
    """Figures of a run whose rounds, one by key, solved the instances 0, 1, ... or not.

    Before each round but the first it made one step: of a pulse before `after_pulse_1`, else of RL.
    """
    phases = [Phase.PULSE if called.startswith("after_pulse") else Phase.RL for called in solved]
    steps = [StepFigures(step=n, phase=phase, figures={}) for n, phase in enumerate(phases) if n]
    machine = MachineTime(cores=2, span_s=1.0, cpu_s={"learner": cpu_s}, desktops=0)
    rounds = []
    for number, (called, wins) in enumerate(solved.items()):
        episodes = [RoundEpisode(task=f"calc/held-out/{n}", success=won) for n, won in enumerate(wins)]
        rounds.append(
            EvaluationRound(
                name=called, version=f"0.{number}", step=number, temperature=1.0, max_new_tokens=64, task_set="t",
                closed=True, summary=summarise(episodes), episodes=episodes,
            )
        )  # fmt: skip
    return RunFigures(
        name=name, state="ok", reason="", file="smoke", experiment="", seed=0, started="", key=name, switches=[],
        rounds=rounds, gains=[], steps=steps, endings={}, episodes={}, machine=machine,
    )  # fmt: skip


def test_the_rate_of_every_arm_of_rl_is_the_same_before_a_round() -> None:
    plan = programme.load(Path("deploy/entropulse.yaml"))
    assert {"aa", plan.base} <= plan.arms.keys()
    for stage in plan.stages:
        for arm in plan.arms:
            deploy, _ = deploy_files.load(plan.file, programme.overrides(plan, ProgrammeRun(stage.name, arm, 0)))
            learner, steps = deploy.learner, deploy.entropulse.total_rl_steps
            every = deploy.evaluation.interval
            for done in range(every, steps + 1, every) if steps else ():
                rate = learning_rate(learner, Phase.RL, done - 1, steps)
                floor = 1.0 if learner.rl.lr_schedule is Schedule.CONSTANT else learner.lr_floor
                assert rate == pytest.approx(learner.rl.lr * floor), f"{stage.name}, {arm}, step {done}"


def test_trunks_come_first_and_seeds_one_after_the_other(plan: programme_results.Programme, tmp_path: Path) -> None:
    found: dict[str, RunFigures] = {}
    order = []
    while (cell := programme.next_cell(plan, found, tmp_path)) is not None:
        order.append(cell.name)
        ended(tmp_path, cell.name)
        found[cell.name] = played(cell.name, {"final": [True]})
    arms = ["base", "aa", "pos", "loo"]
    assert order == [
        "trunk-cloned-0", *(f"screen-{arm}-0" for arm in arms), "trunk-longer-0", "screen-late-0",
        "trunk-cloned-1", *(f"screen-{arm}-1" for arm in arms),
    ]  # fmt: skip
    shutil.rmtree(tmp_path / "trunk-cloned-1")
    del found["screen-loo-1"]
    again = programme.next_cell(plan, found, tmp_path)
    assert again == ProgrammeRun("trunk", "cloned", 1), "one that is gone is played again, for what goes on from it"


def test_some_arms_are_played_with_the_first_seed_alone() -> None:
    stage = ArmStage(name="one", seeds=[3, 4], arms=["base", "aa"], once=["pos"], steps=2, every=1, rounds=1)
    assert [cell.name for cell in programme.cells(stage)] == [
        "one-base-3", "one-aa-3", "one-pos-3", "one-base-4", "one-aa-4",
    ]  # fmt: skip


def test_a_run_has_its_keys_and_its_origin_from_the_file(plan: programme_results.Programme, tmp_path: Path) -> None:
    assert programme.overrides(plan, ProgrammeRun("screen", "loo", 1)) == [
        "entropulse.pulses=0", "entropulse.total_rl_steps=4", "evaluation.interval=2", "learner.rl.lr_cycle_steps=2",
        "learner.rl.baseline=leave_one_out", "run.seed=1",
    ]  # fmt: skip
    assert programme.overrides(plan, ProgrammeRun("screen", "aa", 1))[-1] == "run.seed=101"
    begin = programme.words(plan, ProgrammeRun("screen", "pos", 0), tmp_path)
    assert begin[:8] == [
        "run", "smoke", "--name", "screen-pos-0", "--runs", str(tmp_path), "--from", "trunk-cloned-0",
    ]  # fmt: skip
    assert "--from" not in programme.words(plan, ProgrammeRun("trunk", "cloned", 0), tmp_path)
    ended(tmp_path, "screen-pos-0", None)
    assert programme.words(plan, ProgrammeRun("screen", "pos", 0), tmp_path)[2:5] == [
        "--resume", "--name", "screen-pos-0",
    ]  # fmt: skip


def test_a_run_that_crashed_three_times_is_passed_by(plan: programme_results.Programme, tmp_path: Path) -> None:
    ended(tmp_path, "trunk-cloned-0", "crashed", crashes=1)
    assert programme.next_cell(plan, {}, tmp_path) == ProgrammeRun("trunk", "cloned", 0)
    ended(tmp_path, "screen-base-0", "crashed", crashes=2)
    assert programme.left_out(tmp_path / "screen-base-0") == "it crashed 3 times: it fell"
    assert "\n- screen-base-0 is left out: it crashed 3 times: it fell\n" in programme.page(plan, {}, tmp_path)


def test_nothing_is_played_next_to_a_run_that_a_killed_programme_left(
    plan: programme_results.Programme, tmp_path: Path
) -> None:
    ended(tmp_path / "runs", "screen-pos-0", None)
    with (
        run_folder.held(tmp_path / "runs" / "screen-pos-0", "2026-11-28T00:00:00Z"),
        pytest.raises(ConfigError, match="run screen-pos-0 is in use by process"),
    ):
        programme.carry_out(tmp_path / "p.yaml", tmp_path / "runs", 1.0)
    assert not (tmp_path / "results").exists()


def test_a_table_compares_with_the_base_over_seeds_and_corrects_for_the_arms(plan: programme_results.Programme) -> None:
    """Four instances, two seeds: the base solves 2, `pos` one more in both seeds, `aa` as many."""
    base, more = [True, True, False, False], [True, True, True, False]
    found = {
        f"screen-{arm}-{seed}": played(f"screen-{arm}-{seed}", {"rl2": [False] * 4, "final": wins})
        for arm, wins in (("base", base), ("aa", base), ("pos", more), ("loo", more))
        for seed in (0, 1)
    }
    rows = {row.arm: row for row in programme_results.rows(plan, found)}
    assert rows["base"].success == 0.5, "the last round alone"
    assert rows["base"].gain is None
    assert rows["pos"].gain is not None
    assert rows["pos"].gain.value == 0.25
    assert (rows["aa"].p, rows["aa"].holm) == (1.0, None)
    assert rows["pos"].holm == pytest.approx(2 * rows["pos"].p), "two arms are tested, and the repeat is none of them"
    assert rows["pos"].cpu_s == 120.0
    text = programme_results.table(plan, found)
    assert "8 runs have ended, in 0.1 of at most 1 CPU-hours." in text
    assert "| screen | pos | 0 1 | 0.750 | +25.0 (" in text


def test_looks_at_the_probe_are_compared_with_the_base_by_seed(plan: programme_results.Programme) -> None:
    """0.2 and 0.3 nats above the base: 0.25, and Student's 12.706 standard errors of 0.05 to either side."""
    assert programme_results.probe_tables(plan, {"screen-base-0": played("screen-base-0", {"final": [True]})}) == ""
    found = {}
    for arm, seed, nats in (("base", 0, 1.0), ("base", 1, 2.0), ("pos", 0, 1.2), ("pos", 1, 2.3)):
        steps = [StepFigures(step=n, phase="rl", figures={"probe_entropy": nats} if n == 2 else {}) for n in range(3)]
        run = played(f"screen-{arm}-{seed}", {"final": [True]})
        found[run.name] = msgspec.structs.replace(run, steps=steps)
    text = programme_results.probe_tables(plan, found)
    assert "| Probe entropy, nats per token: screen | seeds | step 2 |" in text
    assert "| base | 0 1 | 1.500 |\n" in text
    assert "| pos | 0 1 | 1.750, +0.250 (-0.385 to +0.885) |\n" in text
    assert text in programme.page(plan, found, Path("none"))


def test_curves_are_means_over_seeds_at_the_steps_of_the_base(plan: programme_results.Programme) -> None:
    half, whole, none = [True, False], [True, True], [False, False]
    found = {
        "screen-base-0": played("b0", {"after_bc": none, "rl1": half, "after_pulse_1": whole, "final": whole}),
        "screen-base-1": played("b1", {"after_bc": half, "rl1": whole, "after_pulse_1": none, "final": whole}),
        "screen-loo-0": played("l0", {"after_bc": none, "rl1": half}),
        "screen-pos-0": played("p0", {"after_bc": none}),
    }
    panels = programme_curves.curves(plan, plan.stages[0], found)
    assert [*panels] == ["Held-out success"], "no run looked at its probe"
    arms = panels["Held-out success"]
    assert {arm: (band.steps, band.mean) for arm, band in arms.items()} == {
        "base": ([0, 1, 2], [0.25, 0.75, 1.0]),  # the pulse's step is none of RL
        "loo": ([0, 1], [0.0, 0.5]),
    }
    assert (arms["base"].low[0], arms["base"].high[0]) == (0.0, 0.5)
    assert programme_curves.draw(plan, panels, "screen").startswith(b"\x89PNG")


def test_p_of_student_s_t_by_hand() -> None:
    parts = spread([[0.0, 0.2], [0.2, 0.0]])
    assert p_value(parts.half, parts) == pytest.approx(0.05, abs=1e-6), "the interval's end"
    assert p_value(0.0, parts) == pytest.approx(1.0)
    one = msgspec.structs.replace(parts, freedom=1.0, half=quantile95(1.0))  # a standard error of 1
    assert p_value(1.0, one) == pytest.approx(0.5, abs=1e-6)  # Cauchy's quartile
    assert p_value(1.0, msgspec.structs.replace(one, half=0.0)) == 0.0


def test_kept_figures_are_small_and_read_as_others_are(tmp_path: Path) -> None:
    run = played("screen-base-0", {"final": [True, False]})
    figures = {"entropy": 0.123456789, "pass_at_1": 0.5, "forward_s": 1.0}
    steps = [StepFigures(step=n, phase=phase, figures=figures) for n, phase in ((1, "bc"), (2, "rl"))]
    packed = programme_results.slim(msgspec.structs.replace(run, steps=steps))
    (tmp_path / f"screen-base-0{SUFFIX}").write_bytes(packed)
    back = programme_results.results(tmp_path)["screen-base-0"]
    assert [(step.step, step.figures) for step in back.steps] == [(2, {"entropy": 0.1235, "pass_at_1": 0.5})]
    assert programme_results.judged(back, 1) == [RoundEpisode(task="calc/held-out/0", success=True),
                                     RoundEpisode(task="calc/held-out/1")]  # fmt: skip
    assert run_data.read_file(tmp_path / f"screen-base-0{SUFFIX}").name == "screen-base-0"
    many = {f"r{n}": [bool(hash((n, k)) % 2) for k in range(9000)] for n in range(6)}
    with pytest.raises(ConfigError, match="screen-base-0: its figures take"):
        programme_results.slim(played("screen-base-0", many))


def test_the_page_keeps_what_is_above_its_line(tmp_path: Path) -> None:
    page = tmp_path / "programme.md"
    page.write_text("# Plan\n\nsaid before\n\n---\nold\n")
    programme_results.write_page(page, "new\n")
    assert page.read_text() == "# Plan\n\nsaid before\n\n---\n\nnew\n"
    page.write_text("no line")
    with pytest.raises(ConfigError, match="there is none"):
        programme_results.write_page(page, "new\n")
    programme_results.write_page(tmp_path / "mine.md", "new\n")
    assert (tmp_path / "mine.md").read_text() == "# mine\n\n---\n\nnew\n", "a programme of one's own has no page yet"
    assert not [*tmp_path.glob("*.part")]


def test_a_run_is_asked_to_end_when_the_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert programme.play(["keys", "learner.rl.lr"], time.monotonic() + 60) is True
    assert programme.play(["keys"], time.monotonic()) is False
