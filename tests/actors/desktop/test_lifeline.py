"""A sandbox whose owner is gone ends by itself, at whatever moment of its start the owner died.

The owner's death is told to the sandbox by the lifeline alone here: the process that the kernel watches lives on.
"""

from __future__ import annotations

import os

import pytest

from actors.desktop.link import GuestLink
from actors.desktop.provider import DesktopSpec
from actors.desktop.providers.sandbox import provider as provider_module
from actors.desktop.providers.sandbox.provider import SandboxProvider

ENDS_S = 10.0
write = os.write


@pytest.mark.parametrize("when", ["before it lets go", "as it lets go", "while it serves"])
async def test_a_sandbox_ends_with_its_lifeline(sandbox: SandboxProvider, monkeypatch, when: str) -> None:
    if when == "before it lets go":  # bwrap gets its byte, the session never gets its own

        def half(fd: int, data: bytes) -> int:
            return write(fd, data[:1] if data == b"12" else data)

        monkeypatch.setattr(provider_module.os, "write", half)
    desktop = await sandbox.boot(DesktopSpec())
    box = sandbox._sandboxes[desktop.name]
    assert box.init is not None
    assert box.outer is not None
    if when == "while it serves":
        link = await GuestLink.open(desktop, timeout_s=30.0)
        assert await link.call("ping", timeout_s=5.0) == "pong"
        await link.close()
    os.close(box.lifeline)
    box.lifeline = -1
    await box.init.ended(ENDS_S)
    await box.outer.ended(ENDS_S)
    assert not (await sandbox.probe(desktop)).alive
    await sandbox.destroy(desktop)
