"""An audit finds what was spoilt, whatever it is, and nothing in a ledger that is as it was written."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from actors.replay.database.auditing import Checked, audit
from actors.replay.messages import Phase, StepRef
from tests.actors.replay.ledger_tools import StoredPlay


def audited(run: Path) -> dict[str, Checked]:
    with closing(sqlite3.connect(f"{(run / 'ledger.sqlite').as_uri()}?mode=ro", uri=True)) as ledger:
        ledger.row_factory = sqlite3.Row
        return {check.name: check for check in audit(ledger, run / "segments")}


class Written(StoredPlay):
    """It has recorded a demonstration, cloned it, and come to RL."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, demos=1)
        self.number = 0
        self.commit(self.reserve(), True, self.steps(None))
        self.phase(Phase.BC, steps=1)
        self.trained(self.batch())
        self.checkpointed("0.1")
        self.rl()

    def steps(self, version: str | None) -> list[StepRef]:
        self.number += 1
        return [self.stored(version, f"payload {self.number}", pictures=[f"picture {self.number}".encode()])]

    def learn_from(self, drawn: str) -> None:
        """A step of RL from a group that weights `drawn` played."""
        self.serving(drawn)
        for success in (True, False):
            self.commit(self.reserve(), success, self.steps(drawn))
        self.trained(self.batch())

    def close(self) -> None:
        self.ledger.close()
        self.store.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Demonstrations, cloning, RL with a resume, a pulse, and episodes in flight."""
    folder = tmp_path_factory.mktemp("run")
    play = Written(folder)
    play.learn_from("0.1")
    play.checkpointed("0.2")
    play.learn_from("0.1")
    play.resumed("1.2", "0.2")
    play.reopen(incarnation="again")
    play.serving("1.2")
    play.trained(play.batch())  # what was undone, once more
    play.learn_from("1.3")
    play.phase(Phase.PULSE, steps=1)
    play.trained(play.batch())
    play.rl()
    play.reserve()
    play.close()
    return folder


@pytest.mark.parametrize("then", ["stops", "steps", "pulses and goes back again"])
def test_nothing_is_wrong_after_a_resume_from_an_older_checkpoint(tmp_path: Path, then: str) -> None:
    play = Written(tmp_path)
    for step in (2, 3, 4):
        play.learn_from(f"0.{step - 1}")
        play.checkpointed(f"0.{step}")
    play.resumed("1.2", "0.2")  # the groups of two steps were final
    if then != "stops":
        play.learn_from("1.2")
        play.checkpointed("1.3")
    if then.startswith("pulses"):
        play.phase(Phase.PULSE, steps=1)
        play.trained(play.batch())
        play.checkpointed("1.4")
        play.resumed("2.1", "0.1")
    play.close()
    found = audited(tmp_path)
    assert {name: check.wrong for name, check in found.items() if check.wrong} == {}
    assert all(check.looked_at for check in found.values())


@pytest.mark.parametrize(
    ("check", "spoil", "said"),
    [
        ("groups", "UPDATE groups SET ending = 'stale' WHERE id = 1 AND final", None),
        ("groups", "UPDATE groups SET state = 'ready' WHERE ending IS NOT NULL", "is ready (trained, final)"),
        ("groups", "UPDATE leases SET state = 'returned' WHERE made = '0.2'", "with a lease that is returned"),
        ("groups", "UPDATE reservations SET state = 'released' WHERE state = 'out'", "is out without a reservation"),
        ("episodes", "DELETE FROM episodes WHERE seq = 2", "was committed, and there is no episode"),
        ("episodes", "UPDATE reservations SET state = 'released' WHERE token = 3", "its reservation is released"),
        ("episodes", "UPDATE reservations SET slot = 0", "has 2 episodes"),
        ("counters", "DELETE FROM groups WHERE id = 1", "opened: 4 counted, 3 in rows"),
        ("counters", "UPDATE counters SET value = 9 WHERE name = 'staleness:0'", "staleness:0: 9 counted"),
        ("phases", "DELETE FROM stays WHERE idx = 2", "comes where segment 2 is due"),
        ("phases", "UPDATE stays SET root = 0 WHERE idx = 3", "goes on with segment 0, which it can't"),
        ("phases", "UPDATE stays SET step_limit = 0 WHERE phase = 'pulse'", "has 1 steps, 0 is its most"),
        ("phases", "UPDATE groups SET stay = 1 WHERE id = 1", "of segment 1 was trained in segment 2"),
        ("phases", "UPDATE stay_steps SET trained = 7", "counts 7 steps, its leases are 1"),
        ("versions", "UPDATE leases SET made = '0.3' WHERE made = '1.3'", "1.5 does not descend from"),
        ("versions", "DELETE FROM leases WHERE made = '1.3'", "made 1.4 as step 3, after 0.2"),
        ("versions", "UPDATE meta SET value = '1.7' WHERE key = 'trained'", "the learner is said to be at 1.7"),
        ("versions", "UPDATE meta SET value = '0.9' WHERE key = 'checkpointed'", "the checkpoint of 0.9 is of weights"),
        ("staleness", "UPDATE groups SET oldest = '0.0', newest = '0.0' WHERE lease = 4", "steps stale when"),
        ("staleness", "UPDATE groups SET oldest = '0.3', newest = '0.3' WHERE id = 3", "drawn from abandoned weights"),
        ("references", "UPDATE blobs SET refs = 2", "1 steps need it, 2 are counted"),
        ("references", "DELETE FROM blobs", "1 steps need it, 0 are counted"),
        ("payloads", "UPDATE blobs SET digest = 'ab'", "does not hold ab"),
    ],
)
def test_what_is_spoilt_is_named(run: Path, tmp_path: Path, check: str, spoil: str, said: str | None) -> None:
    spoilt = tmp_path / "spoilt"
    shutil.copytree(run, spoilt)
    with closing(sqlite3.connect(spoilt / "ledger.sqlite", isolation_level=None)) as ledger:
        assert ledger.execute(spoil).rowcount
    wrong = audited(spoilt)[check].wrong
    if said is None:
        assert audited(spoilt)["counters"].wrong
    else:
        assert any(said in text for text in wrong), wrong


@pytest.mark.parametrize("how", ["gone", "torn", "changed", "a picture changed", "a folder"])
def test_a_payload_that_cannot_be_read_is_named(run: Path, tmp_path: Path, how: str) -> None:
    spoilt = tmp_path / "spoilt"
    shutil.copytree(run, spoilt)
    segment = spoilt / "segments" / "seat-000000.seg"
    text = segment.read_bytes()
    if how == "torn":
        segment.write_bytes(text[:-1])
    elif "changed" in how:
        name = b"picture 2" if "picture" in how else b"payload 2"
        segment.write_bytes(text.replace(name, name[:-1] + b"X"))
    else:
        segment.unlink()
        if how == "a folder":
            segment.mkdir()
    found = audited(spoilt)
    assert len(found["payloads"].wrong) == (1 if "torn" in how or "changed" in how else found["payloads"].looked_at)
    assert msgspec.json.encode(found)
