"""`import computerrl`: desktops, tasks, episodes and runs for a program."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import computerrl
import pytest

from actors.cluster.runs import run_folder
from actors.desktop.config import SandboxConfig
from apis.actions.gui import Exit
from tests.actors.cluster.fabricated import record
from tests.folders import desk_folder

TASK = "file_manager/train/3"


@pytest.fixture(scope="module")
def own() -> Iterator[dict[str, Any]]:
    """Settings of desktops whose state is this test's own."""
    with desk_folder() as folder:
        yield {"provider": SandboxConfig(state_dir=folder)}


@pytest.mark.slow
def test_it_is_imported_from_any_folder_without_a_second_copy_of_its_modules(tmp_path: Path) -> None:
    look = (
        "import sys, computerrl; print(computerrl.Desktop.__module__, [n for n in sys.modules if 'computerrl.' in n])"
    )
    done = subprocess.run([sys.executable, "-P", "-c", look], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=1) == ["actors.front.library", "[]\n"]


def test_tasks_are_named_listed_and_refused_with_the_nearest() -> None:
    task = computerrl.Task(TASK)
    assert task.instruction
    assert task.feasible
    assert "file_manager" in task.apps
    listed = computerrl.Task.listed("desktop", "held-out", first=5, count=2)
    assert [one.id for one in listed[:2]] == ["text_editor/held-out/5", "text_editor/held-out/6"]
    with pytest.raises(computerrl.ConfigError, match="did you mean file_manager"):
        computerrl.Task("file_managr/train/3")
    with pytest.raises(computerrl.ConfigError, match="there is no route 'flying'"):
        task.oracle(route="flying")


@pytest.mark.desktop
async def test_a_desktop_is_looked_at_and_acted_on_by_lines_and_typed_actions(own: dict[str, Any]) -> None:
    desktop = computerrl.Desktop(TASK, **own)
    with pytest.raises(computerrl.ComputerRLError, match="not open"):
        await desktop.observe()
    async with desktop:
        seen = await desktop.observe()
        assert seen.app == "file_manager"
        assert (await desktop.screenshot()).startswith(b"\xff\xd8")
        assert "Agent.click" in await desktop.functions()
        with pytest.raises(computerrl.ActionRefused, match=r"no function os\.system"):
            await desktop.act("os.system('id')")
        done = await desktop.act("Agent.open_app(app_name='terminal')")
        assert done.text
        assert done.claim is None
        await desktop.write_file("notes/a.txt", b"kiwi")
        assert await desktop.read_file("notes/a.txt") == b"kiwi"
        with pytest.raises(computerrl.GuestRefused, match="bad_path"):
            await desktop.read_file("/etc/passwd")
        assert (await desktop.act(Exit(success=True))).claim is True
    with pytest.raises(computerrl.ComputerRLError, match="not open"):
        await desktop.observe()


@pytest.mark.desktop
async def test_policies_of_all_kinds_are_judged_and_what_they_raise_arrives(own: dict[str, Any]) -> None:
    task = computerrl.Task(TASK)
    seen: list[computerrl.Seen] = []

    async def gives_up(shown: computerrl.Seen) -> Exit:
        seen.append(shown)
        assert (await shown.screenshot()).startswith(b"\xff\xd8")
        return Exit(success=False)

    def defective(_: computerrl.Seen) -> str:
        raise ZeroDivisionError("of the policy's own")

    async with computerrl.desktops(computerrl.DesktopSettings(count=3, **own)) as pool:
        solved, given_up, broken = await asyncio.gather(
            computerrl.play(task, task.oracle(), desktops=pool),
            computerrl.play(TASK, gives_up, desktops=pool),
            computerrl.play(TASK, defective, desktops=pool),
            return_exceptions=True,
        )
    assert solved.success, solved
    assert solved.steps[-1].response.endswith("Agent.exit(success=True)")
    assert all(step.by == "library" and step.prompt_ids for step in solved.steps)
    assert (given_up.success, given_up.outcome.reason) == (False, "agent_gave_up")
    assert isinstance(broken, ZeroDivisionError)
    assert seen[0].step == 0
    assert task.instruction in seen[0].prompt


@pytest.mark.desktop
async def test_the_example_of_the_package_runs(own: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"\n    import asyncio\n.*?asyncio.run\(main\(\)\)\n", computerrl.__doc__ or "", re.DOTALL)
    text = textwrap.dedent(example).replace("asyncio.run(main())", "")
    names: dict[str, Any] = {}
    exec(text, names)
    await names["main"]()
    app, *_ = capsys.readouterr().out.splitlines()
    assert app.startswith("file_manager [")


@pytest.mark.slow
def test_a_run_that_is_refused_says_why_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(computerrl.ConfigError, match=r"desktops.cuont.*desktops.count"):
        computerrl.Run.start("smoke", name="bad", runs=tmp_path, settings={"desktops.cuont": 2})
    with pytest.raises(computerrl.ConfigError, match="no run nothing"):
        computerrl.Run("nothing", tmp_path)


def test_a_run_is_followed_to_its_end_and_read(tmp_path: Path) -> None:
    claimed = run_folder.claim(tmp_path / "a", record("a", file="smoke.yaml"), resume=False)
    run = computerrl.Run("last", tmp_path)
    assert run.state == "running"
    looks = run.follow(every_s=0.01)
    assert next(looks).state == "running"
    with pytest.raises(computerrl.DeadlineExceeded, match="run a still runs"):
        run.wait(timeout_s=0.0)
    claimed.end("failed", "it was told to")
    assert [look.state for look in looks][-1] == "failed"
    assert run.wait(timeout_s=1.0).reason == "it was told to"
    run.stop()
    with pytest.raises(computerrl.ConfigError):
        run.figures()


def test_a_name_that_another_run_owns_is_not_taken_for_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command refuses it a second later, and what it says is raised."""
    real = subprocess.Popen

    def refusing(_command: list[str], **more: Any) -> subprocess.Popen[bytes]:
        line = "import sys, time; time.sleep(0.5); sys.stderr.write('run mine exists already\\n'); sys.exit(2)"
        return real([sys.executable, "-c", line], **more)

    monkeypatch.setattr(subprocess, "Popen", refusing)
    monkeypatch.setattr(run_folder, "is_run", lambda _: True)
    monkeypatch.setattr(run_folder, "owner", lambda _: run_folder.LockOwner(pid=1, started="before"))
    with pytest.raises(computerrl.ConfigError, match="run mine exists already"):
        computerrl.Run.start("smoke", name="mine", runs=tmp_path)
