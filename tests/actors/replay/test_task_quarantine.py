"""Tasks that keep breaking episodes rest, and come back by a probe."""

from __future__ import annotations

from pathlib import Path

import msgspec

from actors.replay.database.transaction import Transaction
from actors.replay.ledger import task_choice
from actors.replay.messages import Phase, Reservation
from tests.actors.replay.ledger_tools import BROKEN, FAULT, Play, settings, step

RULES = {"group_size": 3, "min_group_size": 2, "groups_per_step": 2, "retries": 5}


def begun(folder: Path, tasks: tuple[str, ...] = ("t0", "t1"), demos: int = 0, **rules: int) -> Play:
    """A ledger that trains on `tasks`, in groups of three that break seldom enough to end."""
    config = settings(demos=demos, incarnation="test", **(RULES | rules))
    return Play(folder, msgspec.structs.replace(config, train_tasks=list(tasks)))


def make_rest(play: Play, task: str) -> None:
    """Break episodes of `task` until it rests; others that come by are committed."""
    for _ in range(200):
        work = play.reserve()
        if work.task != task:
            play.commit(work, work.slot == 0)
            continue
        play.release(work, BROKEN)
        if play.figures().tasks_resting:
            return
    raise AssertionError(f"{task} never rested")


def test_a_task_that_breaks_episodes_rests_and_others_go_on(tmp_path: Path) -> None:
    play = begun(tmp_path).rl()
    make_rest(play, "t1")
    (rests,) = play.events("task_rests")
    assert (rests["task"], rests["cause"], rests["faults"]) == (
        "t1",
        "setup_failed",
        task_choice.POLICY.faults_in_a_row,
    )
    figures = play.figures()
    assert figures.tasks_resting == 1
    assert figures.endings["lost"] >= 1
    lost = {event["task"] for event in play.events("group_ended") if event["ending"] == "lost"}
    assert lost == {"t1"}
    rows = play.ledger.tx.rows("SELECT task FROM groups WHERE state = 'open'")
    assert all(row["task"] != "t1" for row in rows), "its open groups ended"
    handed = []
    while isinstance(found := play.ask(f"desktop/x{len(handed)}"), Reservation):
        handed.append(found.task)
    assert handed
    assert set(handed) == {"t0"}
    assert play.ask("desktop/y") is None, "no work now, but the run is not over"


def test_one_probe_lets_it_back_and_its_next_fault_sends_it_away(tmp_path: Path) -> None:
    play = begun(tmp_path, ("t0",)).rl()
    make_rest(play, "t0")
    assert play.ask("desktop/1") is None
    play.wall += task_choice.POLICY.first_probe_s + 1
    probe = play.reserve()
    assert play.ask("desktop/2") is None, "one probe at a time"
    play.release(probe, FAULT)
    probe = play.reserve()
    play.release(probe, BROKEN)
    assert play.ask("desktop/1") is None
    play.wall += task_choice.POLICY.first_probe_s + 1
    assert play.ask("desktop/1") is None, "the wait between probes doubles"
    play.wall += task_choice.POLICY.first_probe_s
    probe = play.reserve()
    play.commit(probe, False)
    (back,) = play.events("task_let_back")
    assert (back["task"], back["failed_probes"]) == ("t0", 1)
    assert play.figures().tasks_resting == 0
    again = play.reserve()
    assert again.group == probe.group, "the probe's group goes on"
    play.release(again, BROKEN)
    assert play.figures().tasks_resting == 1
    assert len(play.events("task_rests")) == 3


def test_a_killed_run_forgets_no_rest_and_tries_the_probe_again(tmp_path: Path) -> None:
    play = begun(tmp_path, ("t0",)).rl()
    make_rest(play, "t0")
    play.wall += task_choice.POLICY.first_probe_s + 1
    assert isinstance(play.ask("desktop/1"), Reservation)
    play.reopen(incarnation="next")
    assert play.figures().tasks_resting == 1
    play.serving("0.0")
    probe = play.reserve()
    play.commit(probe, True)
    assert play.figures().tasks_resting == 0


def test_demonstrations_and_rounds_go_on_without_it(tmp_path: Path) -> None:
    play = begun(tmp_path, demos=2, retries=1)
    make_rest(play, "d1")
    play.wall += 1
    tasks = set()
    while isinstance(found := play.ask(f"desktop/d{len(tasks)}"), Reservation):
        tasks.add(found.task)
        play.commit(found, True, [step(None)])
    assert tasks <= {"d0"}
    play.phase(Phase.RL)
    play.open_eval("one", "0.0", ["d0", "d1"])
    work = play.reserve()
    assert work.task == "d0"
    play.commit(work, True)
    (closed,) = play.events("eval_round_closed")
    assert (closed["tasks"], closed["played"], closed["faults"]) == (2, 1, 1)


def test_what_may_not_be_played_is_what_the_rule_says(tmp_path: Path) -> None:
    play = begun(tmp_path, ("due", "free", "later", "probed", "well"))

    def stand(tx: Transaction) -> tuple[list[str], list[str]]:
        for task, state, probe_at in (
            ("due", "resting", tx.now), ("later", "resting", tx.now + 1), ("probed", "probing", 0.0),
            ("well", "well", tx.now + 1),
        ):  # fmt: skip
            tx.execute("INSERT INTO wards VALUES(?, ?, 1, 0, ?, 0)", task, state, probe_at)
        ruled_out = [task for task in tx.settings.train_tasks if not task_choice.playable(tx, task)]
        return list(task_choice.unplayable(tx)), ruled_out

    assert play.do(stand) == (["later", "probed"], ["later", "probed"])


def test_after_a_reboot_what_waited_is_due_and_nothing_else_changes(tmp_path: Path) -> None:
    play = Play(tmp_path)
    play.wall = 90_000.0
    play.rl()
    for _ in range(task_choice.POLICY.faults_in_a_row):
        work = play.reserve("desktop/0")
        while work.task != "t0":
            work = play.reserve("desktop/0")
        play.release(work, BROKEN)
    before = play.ledger.tx.rows("SELECT id, state, ending FROM groups ORDER BY id")
    play.wall = 10.0
    play.reopen()  # the actor alone was restarted
    assert not task_choice.playable(play.ledger.tx, "t0")
    play.do(lambda tx: tx.set_meta("boot", "another"))
    play.reopen()
    assert task_choice.playable(play.ledger.tx, "t0"), "ten seconds after the boot, or it would rest for a day"
    assert play.ledger.tx.rows("SELECT id, state, ending FROM groups ORDER BY id") == before
