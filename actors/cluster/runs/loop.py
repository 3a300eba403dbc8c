"""The job on one page: what `computerrl run`, `demos record` and `eval` do, in the order in which it happens.

All parts work at the same time and meet in the ledger (actors/replay):

- Seats play episodes on desktops and commit them (actors/desktop/episode.py).
- The learner takes batches, makes optimizer steps and announces each version (actors/learner/actor.py).
- Samplers load the newest version and answer the seats (actors/sampler).
- The supervisor commits each change of phase, with its evidence (actors/entropulse/decide.py).

`execute.py` runs one of the programs below in the entry point's process. A resumed run enters at the phase segment that
its ledger is in.
"""

from __future__ import annotations

from functools import partial

from actors.cluster.runs import compose
from actors.cluster.runs.evaluation_rounds import ROUND, judge_recording, judge_round, judge_training, recorded
from actors.cluster.runs.execute import Job, LiveRun
from actors.replay.messages import Figures, OpenEval, Phase, PhaseRef, Sampling
from actors.sampler.messages import Pin
from runtime.messaging.message import Version

PIN_S = 120.0  # for an engine to load the weights of a round


def training() -> Job:
    """`run FILE`."""
    return Job(compose.plan, train, judge_training, trains=True)


def recording() -> Job:
    """`demos record`."""
    return Job(compose.recording, record, judge_recording)


def evaluation(version: Version, model: str = "") -> Job:
    """`eval MODEL`: weights called `version`, in the folder `model` once the run begins, else where the file says."""
    plan = partial(compose.evaluating, version=version, model=model)
    return Job(plan, partial(evaluate, version=version, model=model), judge_round)


async def train(run: LiveRun) -> Figures:
    """Cold start, then RL and pulses in turns, with evaluation rounds in between and at the end."""
    figures = await run.start()
    while figures.phase.phase is not Phase.DONE:
        work = {Phase.DEMO: demonstrate, Phase.BC: clone, Phase.RL: reinforce, Phase.PULSE: pulse}
        figures = await work[figures.phase.phase](run, figures.phase)
    return await run.end()


async def demonstrate(run: LiveRun, segment: PhaseRef) -> Figures:
    """Oracles and endpoints play `tasks.demo` until `demos.count` episodes are verified, or no attempt is left.

    With `demos.resample_rounds` it comes again after cloning: the policy tries what the pool solved sometimes.
    """
    figures = await run.until_after(segment)
    run.note(recorded(figures))
    return figures


async def clone(run: LiveRun, segment: PhaseRef) -> Figures:
    """Behaviour cloning: `entropulse.bc_steps` of cross-entropy on the demonstrations."""
    return await run.until_after(segment)


async def reinforce(run: LiveRun, segment: PhaseRef) -> Figures:
    """Step-level GRPO: seats play groups of episodes of `tasks.train`, the learner steps on each complete batch.

    A batch is at most `replay.max_staleness` versions behind. The segment ends by its count of steps, by its curves, or
    for want of groups whose rewards differ. The last one ends with the round on the final weights.
    """
    return await run.until_after(segment)


async def pulse(run: LiveRun, segment: PhaseRef) -> Figures:
    """Entropulse: `entropulse.pulse_steps` of cross-entropy on the successes of RL, which is to raise entropy again.

    The result is the new reference policy, with a fresh optimizer. Seats play evaluation rounds meanwhile.
    """
    return await run.until_after(segment)


async def record(run: LiveRun) -> Figures:
    """The first phase alone, with no policy and no learner."""
    await run.start()
    demos = run.plan.deploy.demos

    def over(now: Figures) -> bool:
        if now.demo_left is not None:  # with strata each task that was begun gets all its attempts
            return now.demo_left == 0
        return now.demos >= demos.count or now.demo_attempts >= demos.attempts

    run.note(recorded(await run.until(over)))
    return await run.end()


async def evaluate(run: LiveRun, version: Version, model: str = "") -> Figures:
    """One round: every engine holds `version`, and seats play each held-out task with it. Nothing learns."""
    await run.start()
    deploy, lanes = run.plan.deploy, run.plan.lanes
    for sampler in run.plan.samplers:
        await run.request(sampler, Pin(version=version, location=model or deploy.model.path), PIN_S)
    drawn = Sampling(temperature=deploy.sampling.eval_temperature, max_new_tokens=deploy.sampling.max_new_tokens)
    episodes = deploy.evaluation.episodes
    opened = OpenEval(
        round=ROUND, version=version, tasks=lanes.eval, task_set=lanes.task_set, sampling=drawn, episodes=episodes
    )
    await run.request("replay", opened)
    await run.until(lambda now: any(one.round == ROUND and one.closed for one in now.evals))
    return await run.end()
