"""The way to another machine is this machine's own address and its interface."""

from __future__ import annotations

import pytest

from runtime.hosts import door


@pytest.mark.parametrize(("address", "expected"), [("127.0.0.1:7000", "127.0.0.1"), ("127.0.0.5:1", "127.0.0.1")])
def test_loopback_is_reached_by_loopback(address: str, expected: str) -> None:
    assert door.towards(address) == expected
    assert door.interface_of(expected) == "lo"


def test_what_no_interface_has_is_named_by_none() -> None:
    assert door.interface_of("203.0.113.7") == ""
    with pytest.raises(OSError, match=r"."):
        door.towards("no.such.host.invalid:1")
