"""Which of this machine's addresses and network interfaces lead to another machine.

Invariant: looking sends no packet, but for the look-up of a name.
"""

from __future__ import annotations

import socket

import psutil


def towards(address: str) -> str:
    """This machine's address on the way to `address`, which is HOST:PORT. Raises OSError where there is no way."""
    host, _, port = address.rpartition(":")
    family, kind, protocol, _, found = socket.getaddrinfo(host, int(port), type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as sock:
        sock.connect(found)  # of a datagram socket: only the way is chosen
        return str(sock.getsockname()[0])


def interface_of(address: str) -> str:
    """The network interface that has `address`; "" where none has it."""
    for name, held in psutil.net_if_addrs().items():
        if any(one.address == address for one in held):
            return name
    return ""
