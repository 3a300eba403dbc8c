"""Harbor plays and judges a desktop by its own command. COMPUTERRL_HARBOR names it: it wants Python 3.12 or newer."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("openenv", reason="openenv is not installed: make extras")

from apis.tasks import registry as tasks
from tests.extras.served import served

HARBOR = os.environ.get("COMPUTERRL_HARBOR", "")
TASK = "text_editor/train/0"
SETTINGS = """schema_version = "1.4"
[agent]
timeout_sec = 300.0
[verifier]
timeout_sec = 60.0
"""
pytestmark = [
    pytest.mark.desktop,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not HARBOR, reason="COMPUTERRL_HARBOR names no program"),
]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served("text_editor", "--count", "1", "--desktops", "1") as found:
        yield found.replace("http://", "ws://") + "/ws"


def task_folder(folder: Path, wanted: str) -> Path:
    """A Harbor task on a desktop, whose solution writes `wanted`."""
    files = {
        "task.toml": SETTINGS,
        "instruction.md": tasks.task(TASK).instruction,
        "environment/task": TASK,
        "tests/test.sh": "#!/bin/sh\n",
        "solution/solve.sh": f"#!/bin/sh\nAgent.type(e7, text={wanted!r}, overwrite=True)\n"
        "Agent.hotkey(['ctrl', 's'])\nAgent.exit(success=True)\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("agent", "wanted", "reward"),
    [("oracle", f"{tasks.goal(TASK).wanted}\n", 1.0), ("oracle", "another\n", 0.0), ("nop", "", 0.0)],
)
def test_its_own_command_plays_and_judges(address: str, tmp_path: Path, agent: str, wanted: str, reward: float) -> None:
    task = task_folder(tmp_path / "task", wanted)
    line = [HARBOR, "run", "-p", str(task), "-a", agent, "-e", "harbor_desktop:Desktop", "-o", str(tmp_path / "jobs")]
    environment = {**os.environ, "COMPUTERRL_ENV": address, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (found,) = tmp_path.glob("jobs/*/*/result.json")
    result = json.loads(found.read_text())
    assert (result["verifier_result"]["rewards"], result["exception_info"]) == ({"reward": reward}, None)
