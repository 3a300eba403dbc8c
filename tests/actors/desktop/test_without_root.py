"""An ordinary user's desktops: they work, say what they lack, and leave nothing.

The test's own process may be root, so another one is started that is not.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.desktop.providers.sandbox.provider import nested_namespaces

pytestmark = pytest.mark.desktop

ROOT = Path(__file__).resolve().parents[3]
UID = 31_000
WAYS = {
    "ordinary user": ["setpriv", f"--reuid={UID}", f"--regid={UID + 1}", "--clear-groups"],
    "root for himself alone": ["unshare", "--user", "--map-root-user"],
}
NAMESPACES = ["bwrap", "--unshare-user", "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "true"]

PROGRAM = """
import asyncio, json, os, sys
sys.path.insert(0, sys.argv[1])
from actors.cluster.runs.doctor import check_root, check_sandbox, check_state
from actors.desktop.config import SandboxConfig
from actors.desktop.link import GuestLink
from actors.desktop.provider import DesktopSpec
from actors.desktop.files.read_home import ReadLimits
from actors.desktop.providers.sandbox.provider import SandboxProvider
from apis.tasks.verify.verify import WantedFile

# What nothing could remove that goes down by a call for each folder, or that takes rights as they are.
AWKWARD = (
    "import os; os.mkdir('no'); os.mkdir('no/in'); os.chmod('no', 0); home = os.getcwd()\\n"
    "for _ in range(1200): os.mkdir('d'); os.chdir('d')\\n"
    "os.mkdir(home + '/Documents/made')"
)

async def main(state_dir):
    said = {}
    places = (state_dir, SandboxConfig().folder, sys.argv[1] + "/README.md/x")
    for check in (check_root(), *map(check_state, places), check_sandbox()):
        said[f"{check.name} {check.found}"] = [check.ok, check.fatal]
    provider = await SandboxProvider.start(SandboxConfig(state_dir=state_dir), "t")
    try:
        desktop = await provider.boot(DesktopSpec())
        link = await GuestLink.open(desktop, timeout_s=30)
        await link.call("launch", argv=["python3", "-c", AWKWARD], timeout_s=30)
        await link.call("launch", argv=["sh", "-c", "while :; do head -c 9 /dev/zero; done > x"], timeout_s=30)
        await link.call("write_file", path="a", data=b"plum", timeout_s=30)
        shot = await link.call("screenshot", timeout_s=10)
        for _ in range(500):
            if (await provider.read_home(desktop, [WantedFile("Documents/made")], ReadLimits()))[0].names is not None:
                break
            await asyncio.sleep(0.02)
        await provider.freeze(desktop)
        (seen,) = await provider.read_home(desktop, [WantedFile("a")], ReadLimits())
        await link.close()
        said |= {"warnings": desktop.warnings, "shot": len(shot), "data": seen.data.decode()}
        await provider.destroy(desktop)
    finally:
        await provider.close()
    print(json.dumps({**said, "left": [name for name in os.listdir(state_dir) if name != ".lock"]}))

asyncio.run(main(sys.argv[2]))
"""


@pytest.fixture
def folder() -> Iterator[str]:
    """A short path that is the ordinary user's own."""
    made = tempfile.mkdtemp(prefix="crl-u", dir="/tmp")
    yield made
    shutil.rmtree(made)


@pytest.mark.parametrize("way", WAYS)
def test_a_desktop_without_root(folder: str, way: str):
    become = WAYS[way] if os.geteuid() == 0 or way != "ordinary user" else []
    if subprocess.run([*become, *NAMESPACES], capture_output=True, check=False).returncode:
        pytest.skip(f"user namespaces are off for an {way}")
    if subprocess.run([*become, "test", "-r", str(ROOT / "actors/desktop/link.py")], check=False).returncode:
        pytest.skip("the sources can be read by their owner alone")
    if way == "ordinary user" and become:
        os.chown(folder, UID, UID + 1)
    command = [*become, sys.executable, "-c", PROGRAM, str(ROOT), folder]
    env = {"PATH": os.environ["PATH"], "HOME": folder}
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout)
    assert said["data"] == "plum"
    assert said["shot"] > 1000
    assert said["left"] == []
    assert "no user of its own: it is this program's" in said["warnings"]
    assert any(warning.startswith("no limit of disk: ") for warning in said["warnings"])
    uid = 0 if way != "ordinary user" else (UID if become else os.geteuid())
    assert said[f"root uid {uid}: desktops share it, their disks have no limit"] == [False, False]
    assert said[f"state dir {folder}"] == [True, False]
    if way == "ordinary user":
        assert said[f"state dir {folder}/.local/state/computerrl"] == [True, False]
    assert said[f"state dir {ROOT / 'README.md'} is not yours to write to"] == [False, True]
    (sandbox,) = (name for name in said if name.startswith("sandbox user, pid, ipc, uts and net namespaces"))
    assert said[sandbox] == [True, False]
    assert ("programs may make user namespaces" in sandbox) == nested_namespaces()
