"""Desktops in sandboxes at a URL, by a service that refuses what the E2B protocol forbids."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import asyncssh
import msgspec
import pytest

from actors.desktop.config import E2bConfig
from actors.desktop.faults import BrokenBy, FaultCause, LinkState, cause_of
from actors.desktop.files.read_home import FileSeen, ReadLimits, ReadRefusal
from actors.desktop.link import GuestLink, LinkDown, evidence_of
from actors.desktop.pool.pool import open_provider
from actors.desktop.provider import Desktop, DesktopSpec
from actors.desktop.providers import ssh
from actors.desktop.providers.e2b import E2bProvider
from actors.errors import DesktopFault
from apis.tasks.verify.verify import WantedFile
from runtime.errors import ConfigError
from tests.actors.desktop.e2b_stand_in import KEY, TEMPLATE, StandInService
from tests.actors.desktop.test_provider_sandbox import losing
from tests.actors.desktop.test_provider_ssh import write_plum
from tests.heard import until

pytestmark = [pytest.mark.desktop, pytest.mark.skipif(os.geteuid() != 0, reason="the stand-in enters namespaces")]


@pytest.fixture
async def service() -> AsyncIterator[StandInService]:
    async with StandInService() as service:
        yield service


def settings(service: StandInService, **more: object) -> E2bConfig:
    return E2bConfig(**{"url": service.url, "sandbox_url": service.url, "template": TEMPLATE, "desktops": 2} | more)


@pytest.fixture
async def provider(service: StandInService, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[E2bProvider]:
    monkeypatch.setenv("E2B_API_KEY", KEY)
    provider = await open_provider(settings(service), "test")
    assert isinstance(provider, E2bProvider)
    yield provider
    await provider.close()
    assert service.sandboxes == {}


async def until_lost(provider: E2bProvider, desktop: Desktop) -> None:
    async def lost() -> bool:
        return not (await provider.probe(desktop)).alive

    await until(lost)


async def test_a_sandbox_boots_works_is_read_and_leaves_nothing(provider: E2bProvider, service: StandInService):
    desktop, other = await asyncio.gather(provider.boot(DesktopSpec()), provider.boot(DesktopSpec()))
    link = await GuestLink.open(desktop, timeout_s=30)
    await write_plum(link)
    await link.call("launch", argv=["ln", "-s", "/etc/passwd", "link"], timeout_s=30)
    await link.call("launch", argv=["sh", "-c", "while :; do echo x >> grows; done"], timeout_s=30)
    async with asyncio.timeout(30):
        while not (await provider.read_home(desktop, [WantedFile("grows")], ReadLimits()))[0].data:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert len(await link.call("screenshot", timeout_s=10)) > 5000
    await provider.freeze(desktop)
    seen = await provider.read_home(
        desktop, [WantedFile(path) for path in ("Documents/plum.txt", "link", "none", "grows")], ReadLimits()
    )
    assert seen[:3] == [
        FileSeen(path="Documents/plum.txt", data=b"hello\nworld"),
        FileSeen(path="link", refusal=ReadRefusal.LINK),
        FileSeen(path="none", refusal=ReadRefusal.MISSING),
    ]
    assert [seen[3]] == await provider.read_home(desktop, [WantedFile("grows")], ReadLimits())
    await link.close()
    await provider.destroy(desktop)
    await provider.destroy(desktop)
    assert service.ended == ["killed"]
    assert not (await provider.probe(desktop)).alive
    assert (await provider.probe(other)).alive
    await provider.destroy(other)
    assert service.sandboxes == {}
    await provider.destroy(await provider.boot(DesktopSpec()))


async def test_only_the_pinned_host_key_is_accepted(provider: E2bProvider):
    desktop = await provider.boot(DesktopSpec())
    other, stranger = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    with pytest.raises(LinkDown, match="Host key is not trusted"):
        await GuestLink.open(msgspec.structs.replace(desktop, host_key=other.export_public_key()), timeout_s=20)
    with pytest.raises(LinkDown, match="Permission denied"):
        await GuestLink.open(msgspec.structs.replace(desktop, client_key=stranger.export_private_key()), timeout_s=20)


@pytest.mark.parametrize("delay_s", [0.0, 0.3, 1.0])
async def test_a_cancelled_boot_leaves_nothing(provider: E2bProvider, service: StandInService, delay_s: float):
    boot = asyncio.ensure_future(provider.boot(DesktopSpec()))
    await asyncio.sleep(delay_s)
    boot.cancel()
    await asyncio.wait([boot])
    if not boot.cancelled():
        await provider.destroy(boot.result())
    assert service.sandboxes == {}
    assert provider._free._value == 2


async def test_a_killed_agent_is_the_guests_doing(provider: E2bProvider):
    desktop = await provider.boot(DesktopSpec())
    link = await GuestLink.open(desktop, timeout_s=30)
    lost = await losing(link, "kill -9 $PPID")
    seen = evidence_of(await provider.probe(desktop), lost, acted=True)
    assert cause_of(seen) is BrokenBy.LINK_CLOSED
    await link.close()


async def test_a_sandbox_that_is_lost_is_the_hosts_fault(provider: E2bProvider, service: StandInService):
    desktop = await provider.boot(DesktopSpec())
    link = await GuestLink.open(desktop, timeout_s=30)
    (name,) = service.sandboxes
    service.end(name, "lost")
    with pytest.raises(LinkDown):
        await link.call("ping", timeout_s=30)
    await until_lost(provider, desktop)
    lost = LinkDown(LinkState.LOST, "")
    assert cause_of(evidence_of(await provider.probe(desktop), lost, acted=True)) is FaultCause.MACHINE_UNREACHABLE
    for verb in (provider.freeze(desktop), provider.read_home(desktop, [WantedFile("x")], ReadLimits())):
        with pytest.raises(DesktopFault) as broken:
            await verb
        assert broken.value.culprit == "host"
    await link.close()
    await provider.destroy(desktop)


async def test_a_sandbox_ends_after_its_owner_and_not_before(service: StandInService, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("E2B_API_KEY", KEY)
    short = settings(service, lifetime_s=30)
    msgspec.structs.force_setattr(short, "lifetime_s", 6)
    provider = await open_provider(short, "test")
    assert isinstance(provider, E2bProvider)
    desktop = await provider.boot(DesktopSpec())
    await asyncio.sleep(7.0)
    assert (await provider.probe(desktop)).alive, "it is asked for again in time"
    monkeypatch.setattr(provider._api, "prolong", lambda _: asyncio.sleep(0))  # as of an owner that was killed
    await until_lost(provider, desktop)
    assert service.ended == ["timeout"]
    await provider.close()


@pytest.mark.parametrize(
    ("broken", "cause"),
    [("api", FaultCause.BOOT_FAILED), ("Start", FaultCause.BOOT_FAILED), ("SendInput", FaultCause.MACHINE_UNREACHABLE)],
)
async def test_a_service_that_fails_is_a_fault_that_leaves_nothing(
    provider: E2bProvider, service: StandInService, broken: str, cause: FaultCause, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(ssh, "CONNECT_S", 3.0)
    service.broken = broken
    with pytest.raises(DesktopFault) as refused:
        await provider.boot(DesktopSpec())
    assert refused.value.cause == cause
    service.broken = ""
    assert service.sandboxes == {}
    assert provider._free._value == 2
    desktop = await provider.boot(DesktopSpec())
    service.broken = "api"
    with pytest.raises(DesktopFault):
        await provider.destroy(desktop)
    assert provider._made[desktop.name][1].cancelled(), "a sandbox that is to end is not asked for again"
    service.broken = ""
    await provider.destroy(desktop)
    assert service.sandboxes == {}


async def test_what_the_service_refuses_is_said(service: StandInService, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("E2B_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="E2B_API_KEY, which is not set"):
        await open_provider(settings(service), "test")
    for key, template, said in (("other", TEMPLATE, "Invalid API key"), (KEY, "none", "none is not there")):
        monkeypatch.setenv("E2B_API_KEY", key)
        provider = await open_provider(settings(service, template=template), "test")
        with pytest.raises(DesktopFault, match=said):
            await provider.boot(DesktopSpec())
        await provider.close()
