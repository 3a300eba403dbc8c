"""A replay store in a process of its own, to be killed: commits episodes and says which were answered.

Usage: python ledger_child.py FOLDER. Writes `token success` for every answered commit to standard output.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from actors.replay.ledger import episodes, phases, training
from actors.replay.ledger.store import Store
from actors.replay.messages import (
    Batch,
    Commit,
    Outcome,
    Phase,
    PhaseRef,
    Reservation,
    Reserve,
    Serving,
    SetPhase,
    Take,
    Trained,
)
from runtime.messaging.message import Version
from tests.actors.replay.ledger_tools import settings, step

SEATS = 8


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def seat(store: Store, name: str, life: str) -> None:
    for number in itertools.count():
        wish = Reserve(seat=name, request_id=f"{life}/{name}/{number}")
        (work,) = await store.do(lambda tx, wish=wish: episodes.reserve_many(tx, [wish]))
        if not isinstance(work, Reservation):
            await asyncio.sleep(0.005)
            continue
        success = work.slot % 2 == 0
        commit = Commit(
            token=work.token, seat=name, outcome=Outcome(success=success, reason="verified"),
            steps=[step("0.0"), step("0.0")], wall_s=1.0, busy_s=1.0,
        )  # fmt: skip
        await store.do(lambda tx, commit=commit: episodes.commit(tx, commit))
        say(f"commit {work.token} {int(success)}")


async def learner(store: Store, life: str) -> None:
    for number in itertools.count():
        wish = Take(learner="learner", request_id=f"{life}/{number}", trained=Version(lineage=0, step=0))
        batch = await store.do(lambda tx, wish=wish: training.take(tx, wish))
        if not isinstance(batch, Batch):
            await asyncio.sleep(0.005)
            continue
        # The version stands still, so that nothing of this endless run ever gets stale.
        trained = Trained(lease=batch.lease, version=Version(lineage=0, step=0), figures={"entropy": 1.0})
        await store.do(lambda tx, trained=trained: training.trained(tx, trained))
        say(f"step {batch.lease} 0")


async def main(folder: Path) -> None:
    store = Store(folder / "ledger.sqlite", settings(max_staleness=3), lambda _: None)
    opened = await store.open()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(store.serve())
        if opened.phase == "demo":
            change = SetPhase(
                expected=PhaseRef(phase=Phase.DEMO, index=0),
                next=PhaseRef(phase=Phase.RL, index=1),
                cause="x",
                evidence={},
            )
            await store.do(lambda tx: phases.set_phase(tx, change))
        serving = Serving(sampler="sampler/0", version=Version(lineage=0, step=0))
        await store.do(lambda tx: phases.serving(tx, serving))
        life = str(asyncio.get_running_loop().time())
        say("ready 0 0")
        for number in range(SEATS):
            tasks.create_task(seat(store, f"desktop/{number}", life))
        tasks.create_task(learner(store, life))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
