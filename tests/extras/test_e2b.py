"""The published E2B client against the stand-in that our provider is tried with. `make extras` installs it."""

from __future__ import annotations

import os

import pytest

pytest.importorskip("e2b", reason="e2b is not installed: make extras")

from e2b import AsyncSandbox, CommandExitException

from tests.actors.desktop.e2b_stand_in import KEY, TEMPLATE, StandInService

pytestmark = [
    pytest.mark.desktop,
    pytest.mark.filterwarnings("default"),  # of its own libraries
    pytest.mark.skipif(os.geteuid() != 0, reason="the stand-in enters namespaces"),
]


async def test_its_client_makes_a_sandbox_runs_commands_there_and_ends_it() -> None:
    async with StandInService() as service:
        options = {"api_key": KEY, "api_url": service.url, "sandbox_url": service.url, "http_version": "1.1"}
        sandbox = await AsyncSandbox.create(TEMPLATE, timeout=60, **options)
        assert (await sandbox.commands.run("id -un; pwd")).stdout.split() == ["user", "/home/user"]
        with pytest.raises(CommandExitException, match="exited with code 3"):
            await sandbox.commands.run("echo no >&2; exit 3")
        cat = await sandbox.commands.run("cat", background=True, stdin=True)
        await sandbox.commands.send_stdin(cat.pid, "kiwi\n")
        await sandbox.commands.close_stdin(cat.pid)
        assert (await cat.wait()).stdout == "kiwi\n"
        await sandbox.set_timeout(120)
        assert await sandbox.kill()
        assert service.sandboxes == {}
        with pytest.raises(Exception, match="Invalid API key"):
            await AsyncSandbox.create(TEMPLATE, **(options | {"api_key": "other"}))
