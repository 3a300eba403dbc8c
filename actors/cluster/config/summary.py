"""What a deploy file comes to, in a few lines for people. Pure.

Invariant: a phase that the numbers leave no room for is not announced, and what depends on how training goes is said
to be a bound.
"""

from __future__ import annotations

from actors.cluster.config.lanes import Lanes
from actors.cluster.config.schema import Deploy
from actors.entropulse.config import EntropulseConfig
from actors.sampler.config import SglangConfig
from apis.actions.spaces import MEANING


def summary(deploy: Deploy, lanes: Lanes) -> list[tuple[str, str]]:
    """Label and value: tasks, engine, phases and evaluation."""
    desktops, prompt, rules = deploy.desktops, deploy.prompt, deploy.replay
    groups = f"{count(rules.groups_per_step, 'group')} of {count(rules.group_size, 'episode')}"
    left = f" ({lanes.unsolvable} more can't be solved without a network)" if lanes.unsolvable else ""
    rows = [
        ("actions", f"{prompt.action_space}: {MEANING[prompt.action_space]}"),
        ("tasks", f"{len(lanes.train)} train{left}, {len(lanes.eval)} held out, {len(lanes.demo)} demonstrated"),
        ("engine", _engine(deploy)),
        ("batches", f"{groups} per RL step, staleness at most {rules.max_staleness}"),
        ("phases", _phases(deploy)),
        ("rehearsal", f"{count(deploy.learner.rehearsal, 'exercise')} of the base model's in every optimizer step"),
        ("evaluation", _evaluation(deploy, lanes)),
        ("seats", f"{desktops.count} in {count(desktops.processes, 'process')}"),
    ]
    absent = {"batches"} if not deploy.entropulse.total_rl_steps else set()
    absent |= {"rehearsal"} if not deploy.learner.rehearsal else set()
    return [row for row in rows if row[0] not in absent]


def pulses(phases: EntropulseConfig) -> tuple[int, int]:
    """The fewest and the most pulses (or resets) that `phases` have room for, where none fails to learn."""
    total, most = phases.rl_steps_in_all, phases.pulses
    if phases.pulse == "none" or not phases.pulse_steps or not total:
        return 0, 0
    # A stay that is not counted ends by its plateau, which takes as many steps as are looked at and held.
    shortest = max(phases.min_phase_steps, phases.plateau_window) + phases.plateau_patience - 1
    if phases.max_unused_groups:
        shortest = 0  # or for want of signal, which may come at once
    counted = phases.rl_steps_per_phase
    fewest = min(most, (total - 1) // counted) if counted else 0
    shortest = min(shortest, counted) if counted else shortest
    return fewest, min(most, (total - 1) // shortest) if shortest else most


def count(number: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{number} {noun if number == 1 else noun + ('es' if noun.endswith('s') else 's')}"


def _phases(deploy: Deploy) -> str:
    phases, demos = deploy.entropulse, deploy.demos
    fewest, most = pulses(phases)
    bound = "" if fewest == most else "up to "
    parts = [count(demos.count, "demonstration")] * bool(demos.count)
    parts += [f"{count(phases.bc_steps, 'step')} of cloning"] * bool(phases.bc_steps)
    again = count(demos.resample_bc_steps or phases.bc_steps, "step")
    if demos.resample_rounds and phases.bc_steps:
        parts.append(f"{demos.resample_rounds} x resampling and {again} of cloning again")
    if phases.total_rl_steps:
        parts.append(f"{count(phases.rl_steps_in_all, 'step')} of RL in {bound}{count(most + 1, 'phase')}")
    if most and phases.pulse == "full":
        shown = deploy.replay.pulse_demos
        beside = f" with {count(shown, 'demonstration')} each" if shown else ""
        parts.append(f"{bound}{most} x {count(phases.pulse_steps, 'step')} of pulse{beside}")
    if most < phases.pulses and phases.pulse == "full" and phases.total_rl_steps and phases.pulse_steps:
        parts.append(f"no room for {count(phases.pulses - most, 'more pulse' if most else 'pulse')}")
    return ", ".join(parts) or "none"


def _engine(deploy: Deploy) -> str:
    samplers, engine = deploy.samplers, deploy.samplers.engine
    if samplers.attach:
        return f"sglang, {count(len(samplers.attach), 'attached server')}"
    kind = "sglang" if isinstance(engine, SglangConfig) else "embedded"
    return f"{kind} on {samplers.device}" + (f", {samplers.count} of them" if samplers.count > 1 else "")


def _evaluation(deploy: Deploy, lanes: Lanes) -> str:
    evaluated, phases = deploy.evaluation, deploy.entropulse
    if not evaluated.enabled or not lanes.eval:
        return "none"
    when = ["after cloning" if phases.bc_steps else "at the beginning"]
    if evaluated.interval:
        if evaluated.interval < phases.rl_steps_in_all:
            when.append(f"every {count(evaluated.interval, 'step').removeprefix('1 ')} of RL")
        when += ["after each pulse"] * (phases.pulse == "full" and pulses(phases)[1] > 0)
    rounds = f"{', '.join(when)} and at the end"
    episodes = f" x {evaluated.episodes}" if evaluated.episodes > 1 else ""
    heat = deploy.sampling.eval_temperature
    how = "greedily" if heat == 0 else f"at temperature {heat:g}"
    twin = ", and greedily" if evaluated.greedy and heat else ""
    idle = "; while RL draws nothing" if deploy.samplers.sglang else "; on seats RL leaves idle"
    share = f"; {evaluated.rollout_share:.1%} of RL's episodes meanwhile" if evaluated.rollout_share else idle
    share *= bool(phases.rl_steps_in_all)
    return f"{rounds}: {count(len(lanes.eval), 'instance')}{episodes} {how}{twin}{share}"
