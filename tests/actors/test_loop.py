"""The whole loop in one process: demonstrate, clone, RL, pulse, RL, evaluate. Its supervisor crashes twice.

Real are the ledger, the supervisor, the seats with their episodes, the pool, SSH and the stored payloads. Desktops are
simulated. The verdict is one by rule, because their HOMEs are empty, and so no model could solve a task: sampler and
learner stand in for torch, whose import alone takes seconds. Their own tests are in `tests/actors/learner`,
`tests/actors/sampler` and `tests/invariants/test_sampler_and_learner_agree.py`.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.desktop import scene
from actors.desktop.actor import DesktopController, DesktopSeat
from actors.desktop.config import DesktopsConfig, OracleMember, PoolConfig, SeatConfig, SshConfig
from actors.entropulse import actor as entropulse
from actors.entropulse.config import EntropulseConfig, EntropulseSettings, EvaluationConfig
from actors.replay.actor import ReplayActor
from actors.replay.database.auditing import audit
from actors.replay.database.ledger_file import reading
from actors.replay.messages import Batch, Phase, Trained, VersionSpan
from actors.sampler.messages import Generate, Generated, Pin, Unpin
from actors.settings import DemosConfig, SamplingConfig
from apis.tasks.osworld import Task
from apis.tasks.verify.verify import TaskVerdict
from policy.base import MODEL
from policy.tokenizer import Tokenizer
from runtime.actor import Actor, handles
from runtime.logs.reader import read_logs
from runtime.messaging.message import Done, Version
from runtime.segments import read_blob
from runtime.system import ActorSpec, ActorSystem
from tests import simulated_desktops
from tests.actors.entropulse.peers import Learner, Mortal, until_done
from tests.actors.replay.ledger_tools import settings

STALENESS, SEATS = 1, 3
PHASES = EntropulseConfig(bc_steps=2, total_rl_steps=4, rl_steps_per_phase=2, pulses=1, pulse_steps=2)
DEMOS = DemosConfig(count=2)
SAMPLING = SamplingConfig(max_new_tokens=64)
HASTY = OracleMember(name="hasty", haste=0.999)  # a simulated desktop shows no progress that an oracle could go by
CPU_S = 5.0  # of the whole loop on a machine that is not busy


class Sampler(Actor):
    """Claims at once that the task is done, with the weights that are pinned or the learner's newest."""

    async def on_start(self) -> None:
        tokenizer = await asyncio.to_thread(Tokenizer.load, str(MODEL))
        self._ids = tokenizer.response_ids("it is done\nAgent.exit(success=True)")
        self.pinned: Counter[Version] = Counter()

    @handles(Generate, concurrent=True)
    async def generate(self, msg: Generate) -> Generated:
        assert msg.pin is None or self.pinned[msg.pin]
        span = VersionSpan(version=msg.pin or ReadingLearner.newest, start=0, end=len(self._ids))
        logprobs = [-0.5] * len(self._ids)
        return Generated(output_ids=self._ids, logprobs=logprobs, finish="stop", cached_tokens=0, spans=[span])

    @handles(Pin)
    async def pin(self, msg: Pin) -> Done:
        self.pinned[msg.version] += 1
        return Done()

    @handles(Unpin)
    async def unpin(self, msg: Unpin) -> Done:
        return Done()


class ReadingLearner(Learner):
    """Reads all that a batch refers to before it makes a version of it, as the real learner does."""

    newest = Version(lineage=0, step=0)

    async def export(self, version: Version) -> None:
        await super().export(version)
        ReadingLearner.newest = version

    async def learn(self, batch: Batch) -> Trained:
        steps = [step for group in batch.groups for one in group.trajectories for step in one.steps] + batch.samples
        payloads = [msgspec.msgpack.decode(read_blob(self.ctx.run_dir / "segments", step.blob)) for step in steps]
        assert all(payload["response_ids"] for payload in payloads)
        return await super().learn(batch)


def verdicts() -> Any:
    """Training episodes of a task succeed and fail in turn, all others succeed."""
    played: Counter[str] = Counter()

    async def judged(task: Task, *_: object, **__: object) -> TaskVerdict:
        played[task.id] += 1
        return TaskVerdict("/train/" not in task.id or played[task.id] % 2 == 1, "by rule")

    return judged


async def test_the_loop_from_demonstrations_to_the_last_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.process_time()
    monkeypatch.setattr(entropulse, "LOOK_S", 0.01)
    monkeypatch.setattr(scene, "judged_apart", verdicts())
    monkeypatch.setattr(simulated_desktops, "VOCABULARY", 200)
    config, machine = simulated_desktops.keys(tmp_path, "text")
    server = await simulated_desktops.listening(config)
    machine = msgspec.structs.replace(machine, port=server.sockets[0].getsockname()[1], desktops=2 * SEATS)
    ledger = msgspec.structs.replace(
        settings(demos=2, incarnation="test", rl_steps_in_all=4, max_staleness=STALENESS, max_new_tokens=64),
        train_tasks=[f"text_editor/train/{n}" for n in range(4)],
        demo_tasks=["text_editor/train/90", "text_editor/train/92"],
        demo_members={"text_editor": [HASTY.name]},
    )
    seat = DesktopSeat(
        seat=SeatConfig(screenshots="none"),
        desktops=DesktopsConfig(provider=SshConfig(machines=[machine]), pool=PoolConfig(warm_pool=1)),
        model=str(MODEL),
        samplers=["sampler/0"],
        demonstrators=[HASTY],
    )
    supervisor = EntropulseSettings(
        entropulse=PHASES, evaluation=EvaluationConfig(), sampling=SAMPLING, demos=DEMOS, task_set="held-out",
        eval_tasks=["text_editor/held-out/0", "text_editor/held-out/1"], samplers=["sampler/0"],
    )  # fmt: skip
    async with ActorSystem(tmp_path / "run") as system:
        await system.spawn(ActorSpec(name="replay", factory=ReplayActor, config=ledger))
        await system.spawn(
            ActorSpec(name="sampler/0", factory=Sampler),
            ActorSpec(name="learner", factory=ReadingLearner),
            ActorSpec(name="entropulse", factory=Mortal, config=supervisor),
            *(ActorSpec(name=f"desktop/{n}", factory=DesktopController, config=seat) for n in range(SEATS)),
        )
        figures = await until_done(system, crashes_in=(Phase.BC, Phase.RL))
    server.close()
    changes = [(line["phase"], line["cause"]) for line in read_logs(tmp_path / "run", event="phase_changed")]
    assert changes == [
        ("bc", "demos_complete"), ("rl", "bc_complete"), ("pulse", "counted"), ("rl", "pulse_complete"),
        ("done", "counted"),
    ]  # fmt: skip
    assert figures.steps == {"bc": 2, "rl": 4, "pulse": 2}
    assert (figures.demos, figures.endings["trained"], figures.faults) == (2, 4, {})
    assert sum(figures.staleness.values()) == 8, "each trajectory of four groups of two"
    assert all(int(age) <= STALENESS for age in figures.staleness), figures.staleness
    rounds = {found.round: (str(found.version), found.closed, found.successes) for found in figures.evals}
    assert rounds == {"after_bc": ("0.2", True, 2), "final": ("0.8", True, 2)}
    kept = sorted((tmp_path / "run" / "kept").glob("*/model.safetensors"))
    assert [path.read_text() for path in kept] == ["0.2", "0.8"], "after cloning and at the end"
    opened = figures.groups_open + figures.groups_ready + figures.groups_leased + sum(figures.endings.values())
    assert figures.groups_opened == opened
    with reading(tmp_path / "run") as database:
        checks = audit(database, tmp_path / "run" / "segments")
    assert {check.name: check.wrong for check in checks if check.wrong} == {}
    spent = time.process_time() - began
    assert spent < CPU_S, spent
