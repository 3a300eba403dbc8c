"""`run vision` in small, with real desktops, processes and a tiny model that sees: what it saw is kept and learned."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from actors.cluster import cli
from actors.replay.database import queries
from actors.replay.database.auditing import audit
from actors.replay.database.ledger_file import reading
from actors.replay.messages import StepPayload
from deploy.recipes import seeing
from policy.pictures import picture_size
from runtime.segments import read_blob

TASKS = "[{{family: picture_name, split: {}, count: {}}}]"
SETTINGS = {
    "tasks.demo": TASKS.format("train", 6),
    "tasks.eval": TASKS.format("held-out", 2),
    "demos.count": "4",
    "entropulse.bc_steps": "2",
    "entropulse.total_rl_steps": "0",
    "run.require": "{bc_steps: 2}",
    "replay.sft_batch_size": "4",
    "desktops.count": "2",
    "desktops.warm_pool": "0",
    "learner.sft.threads": "1",
}

pytestmark = [pytest.mark.desktop, pytest.mark.slow]


@pytest.mark.timeout(600)
def test_a_run_clones_and_evaluates_what_was_seen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seeing.make(tmp_path / "seeing")
    sets = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
    sets += ["--set", f"model.path={tmp_path / 'seeing'}"]
    words = ["run", "vision", "--name", "v", "--runs", str(tmp_path), *sets]
    ran = subprocess.run([sys.executable, "-P", "-m", "actors.cluster.cli", *words], capture_output=True, text=True)
    assert ran.returncode == 0, (ran.stdout + ran.stderr)[-3000:]
    run, seen = tmp_path / "v", dict[str, set[int]]()
    with reading(run) as db:
        checked = audit(db, run / "segments")
        for row in queries.episodes(db):
            for ref in queries.steps_of(db, row["token"]):
                step = msgspec.msgpack.decode(read_blob(run / "segments", ref.blob), type=StepPayload)
                (picture,) = step.pictures
                png = read_blob(run / "segments", picture.blob)
                assert hashlib.sha256(png).hexdigest() == picture.digest
                assert picture_size(png) == (224, 224)
                seen.setdefault(row["lane"], set()).add(step.prompt_ids.count(step.prompt_ids[picture.at]))
    assert not [one for one in checked if one.wrong]
    assert seen == {"demo": {64}, "eval": {64}}, "each prompt has the pads of one picture"
    assert cli.main(["demos", "export", "v", str(tmp_path / "out.parquet"), "--runs", str(tmp_path)]) == 2
    assert "a recording holds texts alone" in capsys.readouterr().err
