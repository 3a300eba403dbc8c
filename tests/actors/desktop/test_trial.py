"""Commands that judge over a copy of a HOME: what lies there is data, and what they do ends with them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from actors.desktop.provider import Outside
from actors.desktop.providers.sandbox import command, sandbox
from actors.desktop.providers.sandbox.owners import lease_user, lends_users
from actors.desktop.providers.sandbox.trial import Tried, held
from apis.plans.action import Call
from apis.tasksets.judge import _trusted
from tests.folders import desk_folder

pytestmark = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


@pytest.fixture
def outside() -> Iterator[Outside]:
    """A HOME with nothing in it, as a desktop's provider keeps it."""
    lease = lease_user()
    with desk_folder() as folder:
        place = Path(folder)
        place.chmod(0o755)
        for name in ("etc/chromium.d", "guest"):
            (place / name).mkdir(parents=True)
        (place / "etc" / "passwd").write_text(command.PASSWD)
        (place / "etc" / "code").write_text(command.EDITOR_PROGRAM)
        (place / "etc" / "group").write_text(command.GROUP)
        sandbox.make_disk(place / "disk", lease.uid, 64 << 20)
        try:
            yield Outside(
                home=str(place / "disk" / "home"), uid=lease.uid, init_pid=1, cgroups={}, shared=str(place),
                trial=str(place / "trial"),
            )  # fmt: skip
        finally:
            for name in ("disk", "trial"):
                sandbox.unmount(place / name)
            lease.release()


def files(outside: Outside, **contents: str) -> None:
    for name, text in contents.items():
        path = Path(outside.home, name.replace("__", "."))
        path.write_text(text)
        path.chmod(0o755)
        os.chown(path, outside.uid, -1)


def text_of(*parts: str) -> str:
    """A file's text; "" where there is none."""
    with contextlib.suppress(OSError):
        return Path(*parts).read_text(errors="replace")
    return ""


def locked(*parts: str) -> None:
    Path(*parts).chmod(0)


def run(line: str, timeout_ms: int = 5000, **env: str) -> Call:
    return Call("run", {"argv": ["/bin/bash", "-c", line], "timeout_ms": timeout_ms, "env": env}, "out")


async def said(outside: Outside, *calls: Call) -> str:
    found = await held(outside, calls)
    assert found.trouble == ""
    return found.outputs.get("out", "nothing")


async def test_nothing_that_lies_there_is_run_by_its_name_or_forges_what_a_command_says(outside: Outside) -> None:
    forged = "#!/bin/sh\necho forged\n"
    files(outside, ls=forged, __bashrc="echo forged\n", __profile="echo forged\n", json__py="print('forged')\n")
    assert "forged" not in await said(outside, run("ls > /dev/null; python3 -c 1; git --version; echo done"))
    script = Call("write_file", {"path": "eval.py", "data": b"import json; print(json.dumps([1]))"})
    ran = Call("run", {"argv": ["python3", "eval.py"], "timeout_ms": 5000, "env": {"PYTHONSAFEPATH": "1"}}, "out")
    assert await said(outside, script, ran) == "[1]\n"
    files(outside, __gitconfig="[format]\n\tpretty = format:forged\n")
    mine = "git init -q r; cd r; git -c user.name=a -c user.email=a@b.c commit -q --allow-empty -m mine; git log"
    for line in ("python3 -c 'import json; print(json.dumps([1]))'", mine):
        assert "forged" not in await said(outside, _trusted(run(line), {}))


async def test_a_file_of_the_task_is_not_written_through_a_link(outside: Outside) -> None:
    files(outside, kept="kept")
    os.symlink("kept", Path(outside.home, "eval.sh"))
    parts = [Call("write_file", {"path": "eval.sh", "data": b"echo one\n"}),
             Call("write_file", {"path": "eval.sh", "data": b"echo two\n", "append": True})]  # fmt: skip
    assert await said(outside, *parts, run("bash eval.sh; cat kept")) == "one\ntwo\nkept"


async def test_the_copy_changes_and_the_desktops_own_home_does_not(outside: Outside) -> None:
    files(outside, a="old")
    found = await held(outside, [run("echo new > a; mkdir -p d; touch d/b")])
    assert (text_of(found.home, "a"), text_of(outside.home, "a")) == ("new\n", "old")
    assert (sorted(os.listdir(found.home)), os.listdir(outside.home)) == (["a", "d"], ["a"])


async def test_it_has_no_network_no_rights_and_sees_nothing_else(outside: Outside) -> None:
    outputs = await said(
        outside,
        run("exec 2>&1; id -u; ls /root /etc/shadow; touch /usr/local/x; tail -n +3 /proc/net/dev; ps ax|wc -l"),
    )
    assert outputs.startswith("1000\n")
    assert "shadow': No such file" in outputs
    assert "Read-only file system" in outputs
    assert [line.split(":")[0].strip() for line in outputs.splitlines()[-2:-1]] == ["lo"]
    assert int(outputs.rsplit(maxsplit=1)[-1]) < 10


async def test_what_it_writes_and_how_long_it_takes_is_bounded(outside: Outside) -> None:
    found = await held(outside, [
        run("yes | head -c 3000000"),
        Call("run", {"argv": ["sleep", "60"], "timeout_ms": 100}, "late"),
        Call("run", {"argv": ["/no/such"], "timeout_ms": 100}, "absent"),
        Call("run", {"argv": ["sh", "-c", "echo 'bwrap: no'; exit 1"], "timeout_ms": 1000}, "says"),
        Call("run", {"argv": ["sh", "-c", "sleep 60 & echo done"], "timeout_ms": 1000}, "left"),
    ])  # fmt: skip
    assert len(found.outputs["out"]) == 256 << 10
    assert {name: found.outputs.get(name) for name in ("late", "absent", "says", "left")} == {
        "late": "", "absent": None, "says": "bwrap: no\n", "left": "done\n"
    }  # fmt: skip


async def test_output_and_errors_of_a_command_are_apart(outside: Outside) -> None:
    line = run("echo 42; ls new.txt")
    found = await held(outside, [line, replace(line, args={**line.args, "errors": True}, kept="errors")])
    assert found.outputs["out"] == "42\n"
    assert "new.txt': No such file" in found.outputs["errors"]


def named(*words: str) -> list[str]:
    """Commands of processes that have one of the words in them."""
    commands = [text_of(str(path)) for path in Path("/proc").glob("[0-9]*/cmdline")]
    return [command for command in commands if any(word in command for word in words)]


@pytest.mark.parametrize("line", ["sleep 61234", "while :; do cat /bin/bash; done", "setsid sleep 61234 & sleep 61234"])
async def test_a_look_that_is_given_up_ends_and_leaves_no_process(outside: Outside, line: str) -> None:
    for wait_s in (0.05, 0.3):
        look = asyncio.ensure_future(held(outside, [run(line, 30_000)]))
        await asyncio.sleep(wait_s)
        look.cancel()
        done, _ = await asyncio.wait([look], timeout=10)
        assert done, "it goes on"
        assert not named("61234", outside.trial)


@pytest.mark.skipif(not lends_users(), reason="a file of one's own can always be read by root")
async def test_what_can_not_be_read_is_left_out_and_a_locked_home_is_no_home(outside: Outside) -> None:
    files(outside, a="a", b="b")
    locked(outside.home, "b")
    os.mkfifo(Path(outside.home, "pipe"))
    assert await said(outside, run("cat a; cat b 2>/dev/null || echo none")) == "anone\n"
    sandbox.unmount(Path(outside.trial))
    os.rmdir(outside.trial)
    locked(outside.home)
    assert await held(outside, [run("ls")]) == Tried(trouble="HOME itself is locked")


@pytest.mark.skipif(not lends_users(), reason="the disk has no bound")
async def test_a_home_that_fills_its_disk_is_copied_all_the_same(outside: Outside) -> None:
    files(outside, a="x" * (40 << 20))
    assert await said(outside, run("stat -c %s a")) == f"{40 << 20}\n"
