"""A built function is what a policy learns: a package's tasks ask for it, its oracle calls it, RL trains on it."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from apis import built
from runtime.program import check_origin

FOLDER = Path(check_origin().root) / "deploy/apis/text_editor"
FAMILY = """
from apis.actions.gui import Exit, Hotkey
from apis.catalogue import call
from apis.tasks.family import DOCUMENTS, of_files
from apis.tasks.view import Goal
from apis.tasks.words import HELD_OUT, TRAIN, text_file, words

TRAINED, OTHER = "Add the line '{word}' to {file}", "{file} needs one more line: '{word}'"
TEMPLATES = {"append": {TRAIN: (TRAINED,), HELD_OUT: (OTHER,)}}

def goal(random, split):
    stem, before, word = words(random, split, 3)
    file = text_file(random, stem)
    instruction = TEMPLATES["append"][split][0].format(file=file, word=word)
    return Goal(kind="append", instruction=instruction, target=file, wanted=word, files=((file, f"{before}\\n"),),
                end=((file, f"{before}\\n{word}\\n"),))

def decide(view):
    lines = [turn.line or "" for turn in view.history]
    if not any("append_line" in line for line in lines):
        return "add it", call("EditorTools", "append_line", line=view.goal.wanted)
    if not any("ctrl" in line for line in lines):
        return "save it", Hotkey(keys=("ctrl", "s"))
    return "done", Exit(success=True)

FAMILY = of_files("append_line", ("text_editor",), TEMPLATES, goal,
                  opened=lambda made: [f"{DOCUMENTS}/{made.target}"], decide=decide)
"""
RUN = """
extends: smoke
run: {{require: {{rl_steps: 1}}}}
tasks:
  train: [{{family: append_line, split: train, count: 16, first: 1000}}]
  demo: [{{family: append_line, split: train, count: 32}}]
  eval: [{{family: append_line, split: held-out, count: 2}}]
demos: {{count: 24}}
desktops: {{count: 4, warm_pool: 2, screenshots: none, apis: ["{api}"]}}
entropulse: {{bc_steps: 40}}
"""


@pytest.mark.proof
@pytest.mark.desktop
@pytest.mark.timeout(900)
async def test_a_step_of_rl_trains_on_a_task_that_uses_a_built_function(tmp_path: Path, state_dir: str) -> None:
    package, listed = tmp_path / "path", tmp_path / "path/appending-1.0.dist-info"
    listed.mkdir(parents=True)
    (package / "appending.py").write_text(FAMILY)
    (listed / "METADATA").write_text("Metadata-Version: 2.1\nName: appending\nVersion: 1.0\n")
    (listed / "entry_points.txt").write_text("[computerrl.families]\nappend_line = appending:FAMILY\n")
    (tmp_path / "mine.yaml").write_text(RUN.format(api=f"{FOLDER}@{built.accepted(FOLDER)}"))

    async def do(*words: str) -> str:
        command = [sys.executable, "-m", "actors.cluster.cli", *words]
        env = os.environ | {"PYTHONPATH": f"{check_origin().root}:{package}"}
        done = await asyncio.to_thread(
            subprocess.run, command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=800
        )
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        return done.stdout

    state = f"desktops.provider.state_dir={state_dir}"
    assert "run mine: ok" in await do("run", "mine.yaml", "--name", "mine", "--set", state)
    trained = await do("episodes", "mine", "--phase", "rl")
    shown = [await do("episodes", "show", "mine", name) for name in re.findall(r"\bg\d+\.\d+\b", trained)[:8]]
    assert any("EditorTools.append_line(line=" in text for text in shown), trained
