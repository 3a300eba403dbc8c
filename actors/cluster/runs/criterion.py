"""Whether a run did what its deploy file asked of it.

Invariant: pure; a run that trained nothing it was asked to train never counts as good.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from actors.cluster.config.schema import RequireConfig
from actors.cluster.runs.evaluation_rounds import Compared, gains, read_rounds
from actors.replay.messages import Figures, Phase
from actors.replay.statistics import Gain

if TYPE_CHECKING:
    from actors.cluster.runs.compose import Plan

Verdict = tuple[str, str | None]  # "ok", "failed", "crashed" or "stopped", and the reason
ROUND = "eval"  # the one round of a run that `eval` made
FAULTS_MOST = 0.02  # share of a round's episodes beyond which its numbers are not to be trusted


def judge_training(plan: Plan, figures: Figures) -> Verdict:
    """Whether the run did what its file requires."""
    compared = gains(read_rounds(plan.run_dir))
    missing = unmet(plan.deploy.run.require, figures, compared)
    return "failed" if missing else "ok", "; ".join([*missing, *map(gain_line, compared[:1])]) or None


def judge_recording(plan: Plan, figures: Figures) -> Verdict:
    """Whether as many demonstrations were recorded as were wanted."""
    wanted, attempts = plan.deploy.demos.count, f"demonstrations in {figures.demo_attempts} attempts"
    if figures.demos >= wanted:
        return "ok", f"{figures.demos} {attempts}"
    return "failed", f"{figures.demos} of {wanted} {attempts}"


def judge_round(_: Plan, figures: Figures) -> Verdict:
    """Whether the round of `eval` was played, and its faults are few enough to trust its numbers."""
    played = next((one for one in figures.evals if one.round == ROUND), None)
    if played is None:
        return "failed", "the round was never opened"
    if not played.closed:
        return "failed", f"{played.played} of {played.planned} episodes"
    if played.faults > FAULTS_MOST * played.planned:
        return "failed", f"{played.faults} of {played.planned} episodes were lost to faults, {FAULTS_MOST:.0%} may be"
    return "ok", None


def recorded(figures: Figures) -> str:
    """Demonstrations by family and route: `text_editor/gui 12, ...`, and on another line tasks by how often solved."""
    counts = [("", figures.demo_strata), ("tasks: ", figures.demo_tasks)]
    lines = [head + ", ".join(f"{name} {n}" for name, n in sorted(some.items())) for head, some in counts if some]
    return "\n".join(lines)


def unmet(require: RequireConfig, figures: Figures, compared: Sequence[Compared] = ()) -> list[str]:
    """What is missing, in words; empty when all is there. `compared`: the gains between its rounds."""
    missing: list[str] = []
    for phase, wanted in ((Phase.BC, require.bc_steps), (Phase.RL, require.rl_steps)):
        done = figures.steps.get(phase.value, 0)
        if done < wanted:
            missing.append(f"{done} of {wanted} {phase.value} steps")
    if require.rl_steps and not figures.endings.get("trained", 0):
        missing.append("no group with differing rewards was trained")
    if require.gain_above is not None:
        if not compared:
            missing.append("no two evaluation rounds to compare, a paired gain needs them")
        elif (low := headline(compared[0]).low) <= require.gain_above:
            missing.append(
                f"the paired gain's interval begins at {low:+.3f}, above {require.gain_above:+.3f} was asked"
            )
    return missing


def headline(compared: Compared) -> Gain:
    """The gain that a run is judged by: over the families that may be trained on, where it has any."""
    return compared.trained or compared.whole


def instances(found: Gain) -> str:
    """Over how many instances, and how many faults have left out."""
    counted = f"{found.instances} instance{'s' * (found.instances != 1)}"
    return counted + (f", {found.left_out} left out for faults" if found.left_out else "")


def spread(found: Gain, called: str = "seeds") -> str:
    """What its interval is made of, "" of one run: standard errors in points. `called`: what several runs are."""
    if found.spread is None:
        return ""
    of = found.spread
    said = ", ".join(f"{name} {100 * part:.1f}" for name, part in (
        (called, of.seeds), ("instances", of.instances), ("both at once", of.rest)
    ))  # fmt: skip
    return f"{said} (t of {of.freedom:.1f} degrees of freedom)"


def gain_line(compared: Compared) -> str:
    """The gain with its numbers in one line."""
    found = headline(compared)
    kind = "trained families, " if compared.trained and compared.untrained else ""
    if not found.instances:
        lost = f"all {found.left_out} instances lost to faults in one of them"
        return f"no held-out gain from {compared.before} to {compared.after}: {lost}"
    return (
        f"held-out success {found.before.value:.3f} -> {found.after.value:.3f} from {compared.before} to"
        f" {compared.after}: {found.value:+.3f} (95 % {found.low:+.3f} to {found.high:+.3f}; {kind}"
        f"{instances(found)}, {compared.decoding}, task set {compared.task_set[:12]})"
    )
