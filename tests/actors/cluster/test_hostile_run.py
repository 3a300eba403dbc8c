"""A run whose every text is hostile, looked at with every command that looks: nothing steers the terminal or the page.

Guests name windows, files and cells, models answer, task files instruct: each of these texts reaches a ledger, a log, a
record or a page, and through them somebody's terminal.
"""

from __future__ import annotations

import json
import struct
import unicodedata
import zlib
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.cluster import cli
from actors.cluster.web.shared_look import small
from actors.replay.database.ledger_file import connect
from actors.replay.ledger import demo_tasks
from actors.replay.messages import StepRef
from runtime.logs.writer import log_file
from runtime.segments import SegmentStore
from tests.actors.cluster.fabricated import record
from tests.actors.replay.ledger_tools import Play, payload, settings

FORGED = "FORGED: it went well"
EVIL = (
    f"plum\n{FORGED}\r\x1b]0;owned\x07\x1b[2J\x9b2J\u202egnp\u2066\u2028{FORGED}\x85{FORGED}<script>alert(1)</script>\0"
)
NAME = "evil/train/0"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run folder as it lies on disk; no line of it was made harmless when it was written."""
    folder = tmp_path / "runs" / "evil"
    folder.mkdir(parents=True)
    config = msgspec.structs.replace(settings(demos=1), demo_tasks=[NAME], tokenizer="t1", format="compact")
    play = Play(folder, config=config)
    play.do(demo_tasks.label)
    store = SegmentStore(folder / "segments", "seat")

    def step() -> StepRef:
        blob = store.append(msgspec.msgpack.encode(payload(observation=EVIL, response=EVIL, action=EVIL, result=EVIL)))
        return StepRef(blob=blob, prompt_tokens=2, response_tokens=1, well_formed=True, oldest=None)

    play.commit(play.reserve(), True, [step()])
    play.ledger._connection.close()
    with closing(connect(folder / "ledger.sqlite")[0]) as ledger:
        ledger.execute("INSERT INTO stays VALUES (7, 7, 'rl', NULL, '0.5', 0, ?, '{}', 0.0)", ("bc_complete",))
        ledger.execute(
            "INSERT INTO rounds(name, version, temperature, max_new_tokens, task_set, tasks, closed)"
            " VALUES (?, '0.5', 1.0, 64, ?, 1, 1)", (EVIL, EVIL),
        )  # fmt: skip
        ledger.execute("INSERT INTO round_tasks(round_id, n, task, state) VALUES (1, 0, ?, 'played')", (EVIL,))
        ledger.execute(
            "INSERT INTO episodes(token, lane, task, stay, round_id, success, feasible, reason, wall_s, busy_s,"
            " ended_step) VALUES (99, 'eval', ?, 7, 1, 1, 1, ?, 1.0, 1.0, 5)", (EVIL, EVIL),
        )  # fmt: skip
        ledger.execute("INSERT INTO steps VALUES (99, 0, 1, ?)", (msgspec.msgpack.encode(step()),))
        ledger.commit()
    said = {"ended": "2026-01-01T00:00:01Z", "verdict": "failed", "reason": EVIL}
    evil = record("evil", file=EVIL, build=EVIL, versions={"torch": EVIL}, **said)
    (folder / "run.json").write_bytes(msgspec.json.encode(evil))
    line = {"ts": "2026-01-01T00:00:00.000Z", "t": 1.0, "level": "warning", "event": "desktop_gone", "actor": "seat/0"}
    path = log_file(folder, "seat/0")
    path.parent.mkdir()
    hostile: list[dict[str, Any]] = [
        {**line, "detail": EVIL, "reason": EVIL},
        {**line, EVIL: 1, "nested": {EVIL: [EVIL]}},
        {**line, "trace": EVIL},
        {**line, "event": EVIL},
    ]
    path.write_text("".join(json.dumps(one) + "\n" for one in hostile))
    return folder


def unharmed(text: str) -> None:
    """Nothing of it steers a terminal, and no line of it is the guest's alone."""
    text.encode()
    assert not [c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") and c != "\n"]
    assert not [line for line in text.split("\n") if line.lstrip().startswith("FORGED")]


COMMANDS = {
    "logs": ["logs", "evil"],
    "logs --json": ["logs", "evil", "--json"],
    "status": ["status", "evil"],
    "status --json": ["status", "evil", "--json"],
    "runs": ["runs"],
    "runs --json": ["runs", "--json"],
    "report": ["report", "evil"],
    "report --text": ["report", "evil", "--text"],
    "report --json": ["report", "evil", "--json"],
    "demos show": ["demos", "show", "evil"],
    "a wrong name": ["status", EVIL],
    "a wrong actor": ["logs", "evil", "--actor", EVIL],
}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_commands_print_hostile_text_escaped(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
):
    monkeypatch.chdir(tmp_path)  # `report` writes its page there
    assert cli.main([*COMMANDS[command], "--runs", str(run.parent)]) in (0, 1, 2)
    out, err = capsys.readouterr()
    assert "plum" in out + err or command == "demos show"
    unharmed(out)
    unharmed(err)
    if "--json" in command and "logs" not in command:
        assert json.loads(out)


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_task_file_is_shown_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str]):
    shown = {
        "id": EVIL, "snapshot": "x", "instruction": EVIL, "source": EVIL, "trajectory": "x", "related_apps": [EVIL],
        "config": [{"type": "launch", "parameters": {"command": [EVIL]}}],
        "evaluator": {
            "func": "file_text_is", "result": {"type": "vm_file", "path": f"/home/user/{EVIL}", "dest": "x"},
            "expected": {"type": "rule", "rules": {"expected": EVIL}},
        },
    }  # fmt: skip
    path = tmp_path / "task.json"
    path.write_text(json.dumps(shown))
    assert cli.main(["tasks", "show", str(path), *flags]) == 0
    unharmed(capsys.readouterr().out)
    path.write_text(json.dumps({**shown, EVIL: 1, "evaluator": {EVIL: 1}}))
    cli.main(["tasks", "show", str(path), *flags])
    out, err = capsys.readouterr()
    unharmed(out)
    unharmed(err)


@pytest.mark.parametrize(("side", "second"), [(30000, b"IDAT"), (8, b"\0\0\0\0")], ids=["vast", "broken"])
def test_a_picture_of_too_many_pixels_or_with_a_broken_chunk_is_none(side: int, second: bytes) -> None:
    head = b"IHDR" + struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = (head, b"IDAT" + zlib.compress(bytes(200), 0)[:100], second)
    chunks = (struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in parts)
    assert small(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)) is None
