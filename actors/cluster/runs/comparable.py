"""Whether arms of an experiment can be compared round by round: what has annealed before each, and what is rehearsed.

Invariant: pure. What this module does not mention about a round that several arms play is the same in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping

from actors.cluster.config.schema import Deploy
from actors.cluster.config.summary import pulses
from actors.entropulse.decide import AFTER_BC, FINAL
from actors.learner.schedule import learning_rate
from actors.replay.messages import Phase

_REHEARSED = ("rehearsal", "rehearsal_coef")
_ALIKE = 1e-6  # shares of a rate that are the same


def annealed(deploy: Deploy) -> dict[str, float] | None:
    """Round -> the share of its phase's learning rate that the last optimizer step before it has.

    Rounds are those of RL and of its pulses; a round named after an RL step is played within the segment that made it.
    None where segments end by their curves, for then no plan says when.
    """
    phases, every = deploy.entropulse, deploy.evaluation.interval
    fewest, most = pulses(phases)
    if fewest != most or not deploy.evaluation.enabled:
        return None
    total, config = phases.rl_steps_in_all, deploy.learner
    found: dict[str, float] = {}
    begun = segment = 0
    for done in range(1, total + 1):
        counted = segment < most
        limit = phases.rl_steps_per_phase if counted else total - begun
        share = learning_rate(config, Phase.RL, done - begun - 1, limit) / config.rl.lr
        if every and done % every == 0:
            found[f"rl{done}"] = share
        if done == total:
            found[FINAL] = share
        elif counted and done - begun == limit:
            begun, segment = done, segment + 1
            if phases.pulse == "full" and every:
                last = learning_rate(config, Phase.PULSE, phases.pulse_steps - 1, phases.pulse_steps)
                found[f"after_pulse{segment}"] = last / config.sft.pulse_lr
    return found


def problems(arms: Mapping[str, Deploy]) -> list[str]:
    """One line for each thing beside what they compare that differs between rounds of `arms`; none of a single arm."""
    found = []
    names = list(arms)
    for number, name in enumerate(names[1:], 1):
        for other in names[:number]:
            found += _apart(other, arms[other], name, arms[name])
    if len(names) > 1:
        found += [line for name in names if (line := _unseen(name, arms[name]))]
    return found


def _apart(one: str, first: Deploy, two: str, second: Deploy) -> list[str]:
    said = []
    for key in _REHEARSED:
        ours, theirs = getattr(first.learner, key), getattr(second.learner, key)
        if ours != theirs:
            said.append(f"{one} and {two} rehearse otherwise: learner.{key} is {ours} and {theirs}")
    rates, others = annealed(first), annealed(second)
    if rates is None or others is None:
        return said
    shared = [name for name in rates if name in others and name != AFTER_BC]
    if not shared:
        said.append(f"{one} and {two} share no round of RL: set evaluation.interval")
    for name in shared:
        if abs(rates[name] - others[name]) > _ALIKE:
            said.append(
                f"{one} and {two} have annealed otherwise before round {name}: to {rates[name]:.2f} and"
                f" {others[name]:.2f} of RL's rate; learner.rl.lr_cycle_steps with lr_schedule anneals all alike"
            )
            break
    return said


def _unseen(name: str, deploy: Deploy) -> str:
    """What is said of an arm whose pulses begin without a round right before them."""
    rounds, phases = annealed(deploy), deploy.entropulse
    if rounds is None or phases.pulse != "full" or not (most := pulses(phases)[1]):
        return ""
    segments = [number * phases.rl_steps_per_phase for number in range(1, most + 1)]
    missing = next((step for step in segments if f"rl{step}" not in rounds), None)
    if missing is None:
        return ""
    return (
        f"{name} has no round between RL step {missing} and its pulse, so what the pulse alone is worth is not"
        f" measured: evaluation.interval {phases.rl_steps_per_phase} has one before each"
    )
