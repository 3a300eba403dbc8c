"""What a deploy file asks for that can't come true together. Pure.

Invariant: each function returns, or raises a ConfigError that names the keys.
"""

from __future__ import annotations

from actors.cluster.config.lanes import Lanes
from actors.cluster.config.schema import Deploy
from runtime.errors import ConfigError
from runtime.program import program


def idle_phases(deploy: Deploy, lanes: Lanes) -> None:
    """Raise ConfigError where a phase that is to run has no tasks to play."""
    if not lanes.demo and deploy.demos.count and not deploy.demos.source:
        raise ConfigError(f"tasks.demo is empty, but demos.count asks for {deploy.demos.count}")
    if not lanes.train and deploy.entropulse.total_rl_steps:
        raise ConfigError("tasks.train is empty, but entropulse.total_rl_steps is not 0")
    if not lanes.eval and deploy.evaluation.enabled:
        raise ConfigError("tasks.eval is empty, but evaluation.enabled is true")
    again, cloning = deploy.replay.pulse_demos, deploy.entropulse.bc_steps
    if cloning and not deploy.demos.count:
        nothing = "but demos.count is 0: it says how many demonstrations are recorded, or taken from demos.source"
        raise ConfigError(f"entropulse.bc_steps is {cloning}, {nothing}")
    if again and deploy.entropulse.pulses and not deploy.demos.count:
        nothing = "but demos.count is 0: a pulse has no demonstration to learn (replay.pulse_demos=0 asks for none)"
        raise ConfigError(f"replay.pulse_demos is {again}, {nothing}")


def elsewhere(deploy: Deploy) -> None:
    """Raise ConfigError where the model that is to be trained lies behind an endpoint."""
    if deploy.model.endpoint is not None:
        raise ConfigError(
            f"model.endpoint names a model elsewhere, which can't be trained: evaluate it with  {program()} eval URL"
        )


def out_of_reach(deploy: Deploy) -> None:
    """Raise ConfigError where more steps are required than the phases have."""
    require, phases, demos = deploy.run.require, deploy.entropulse, deploy.demos
    again = demos.resample_rounds * (demos.resample_bc_steps or phases.bc_steps)
    cloning = phases.bc_steps and phases.bc_steps + again
    for name, wanted, most in (
        ("bc_steps", require.bc_steps, cloning),
        ("rl_steps", require.rl_steps, phases.rl_steps_in_all),
    ):
        if wanted > most:
            raise ConfigError(f"run.require.{name} is {wanted}: the phases of entropulse have {most} such steps")


def beyond_context(deploy: Deploy, context: int) -> None:
    """Raise ConfigError where an answer may fill the model's `context` (tokens), so that no question has room."""
    longest = deploy.sampling.max_new_tokens
    if longest >= context:
        raise ConfigError(
            f"sampling.max_new_tokens is {longest}: it counts from 1 to {context - 1}, for the model of model.path"
            f" takes {context} tokens, prompt and answer together"
        )


def shared_round(deploy: Deploy) -> None:
    """Raise ConfigError where a round is to get a share of RL's episodes from engines that hold one version."""
    if deploy.samplers.single_version and deploy.evaluation.rollout_share:
        raise ConfigError(
            f"evaluation.rollout_share is {deploy.evaluation.rollout_share}, and SGLang holds one version: its rounds"
            " are played while RL draws nothing; set evaluation.rollout_share to 0"
        )
