"""What desktops reach of the network: a proxy on this host, for names that the deploy file allows.

A desktop has no network. Its SSH server listens at `PROXY_PORT` of the desktop's own loopback, and what connects there
comes through its SSH connection to a socket of this process. Live, the proxy asks for plain pages itself and passes
encrypted connections on. To record or replay it shows its own certificates, by an authority that this process has made
and that Chromium trusts on these desktops alone.

A name is resolved here, once, and what is connected to is an address that was checked: no private, loopback
or link-local one and no service of a cloud's machines. A replay resolves and connects nothing. A desktop's connections,
its bytes and the time of each connection are bounded.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import ipaddress
import os
import re
import secrets
import socket
import ssl
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import asyncssh
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from yarl import URL

from actors.desktop.config import NetworkConfig
from actors.desktop.provider import PROXY_PORT, Desktop
from runtime.disk import Log, read_bytes
from runtime.errors import ConfigError
from runtime.logs.events import declare

# A desktop asked for what it does not get: each name once.
NETWORK_REFUSED = declare("network_refused", "warning", host=str, why=str)

PROXY = f"http://127.0.0.1:{PROXY_PORT}"
PORTS = {"http": 80, "https": 443}
CONNECTIONS = 64  # of one desktop at the same time
CONNECTION_S, ANSWER_S = 600.0, 60.0  # most that a connection lasts, and one answer of a server
DESKTOP_BYTES = 1 << 30  # of one desktop, both ways
HEAD_BYTES, BODY_BYTES, PIECE = 64 << 10, 32 << 20, 64 << 10
NAMES_LOGGED = 1000
_NAME = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]{0,62})\.)+[a-z][a-z0-9-]{0,62}")  # not the number of an address
_WORD = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,200}")
_OF_HOP = re.compile(r"connection|content-length|expect|host|keep-alive|proxy-.*|te|trailer|transfer-encoding|upgrade")
# A stored answer is whole and can be read by anything: no packed or partial one is asked for.
_NOT_ASKED = re.compile(rf"{_OF_HOP.pattern}|accept-encoding|if-.*|range")
# Addresses that lead on to others, which are not checked; and the one of Azure's services that looks public.
_LEADING = [ipaddress.ip_network(net) for net in ("64::/16", "2002::/16", "2001::/32", "::ffff:0:0/96")]
_SERVICES = {"168.63.129.16"}

Headers = list[tuple[str, str]]


def public(address: str) -> bool:
    """Whether an address may be connected to."""
    ip = ipaddress.ip_address(address)
    leads = ip.version == 6 and any(ip in net for net in _LEADING)
    return ip.is_global and not ip.is_multicast and not leads and address not in _SERVICES


class PublicAddresses(AbstractResolver):
    """Resolves a name to its addresses that may be connected to. Raises OSError where it has none."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(4, "names")  # slow name servers hold no thread of the program's

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        ask = partial(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM)
        async with asyncio.timeout(ANSWER_S):
            found = await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        known = [(of, str(at[0])) for of, *_, at in found if public(str(at[0]))]
        if not known:
            raise OSError(errno.EACCES, "it has no public address")
        about = {"hostname": host, "port": port, "proto": 0, "flags": socket.AI_NUMERICHOST}
        return [ResolveResult(host=at, family=of, **about) for of, at in known]  # type: ignore[typeddict-item]

    async def close(self) -> None:
        self._threads.shutdown(wait=False)


class Authority:
    """Signs the certificates that a desktop is shown. Its key is never written."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.context = lru_cache(maxsize=1000)(self._context)

    def _signed(self, name: str, extension: x509.ExtensionType) -> bytes:
        own, its = (x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, one)]) for one in ("ComputerRL", name))
        now, day, number = datetime.now(UTC), timedelta(days=1), 1 + secrets.randbits(150)
        made = x509.CertificateBuilder(own, its, self._key.public_key(), number, now - day, now + 90 * day)
        made = made.add_extension(extension, critical=True)
        return made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _context(self, host: str) -> ssl.SSLContext:
        """As a server of that name."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        with os.fdopen(os.memfd_create("certificate"), "wb") as file:  # Python takes it from a file alone
            file.write(self._signed("desktop", x509.SubjectAlternativeName([x509.DNSName(host)])))
            file.write(self._key.private_bytes(serialization.Encoding.PEM, *plain))
            file.flush()
            context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        return context

    def trusted(self) -> dict[str, bytes]:
        """Files of HOME by which Chromium trusts it. Blocks. Raises OSError, SubprocessError."""
        own = self._signed("ComputerRL", x509.BasicConstraints(ca=True, path_length=0))
        with tempfile.TemporaryDirectory() as folder:
            for words in (("-N", "--empty-password"), ("-A", "-a", "-n", "ComputerRL", "-t", "C,,")):
                line = ["certutil", *words, "-d", f"sql:{folder}"]
                subprocess.run(line, input=own, check=True, capture_output=True, timeout=ANSWER_S)
            return {f".pki/nssdb/{path.name}": path.read_bytes() for path in Path(folder).iterdir()}


class PageAnswer(msgspec.Struct, frozen=True):
    """What a server answered, as a recording keeps it: a file for each method, URL and body, whatever the headers."""

    method: str
    url: str
    status: int
    headers: Headers
    body: bytes


class NoPage(Exception):  # noqa: N818 - an answer, not an error of the program
    """Why a desktop gets no page."""


class Taken:
    """What one desktop has taken."""

    connections = bytes = 0

    def take(self, count: int) -> None:
        """Count bytes. Raises OSError where that are too many."""
        self.bytes += count
        if self.bytes > DESKTOP_BYTES:
            raise OSError(f"a desktop has taken {DESKTOP_BYTES} bytes")


class Network:
    """The proxy of one process's desktops."""

    def __init__(self, config: NetworkConfig, log: Log) -> None:
        self._config = config
        self._log = log
        self._resolver = PublicAddresses()
        self._authority = Authority() if config.mode != "live" else None
        self._refused: set[str] = set()
        self.trusted: dict[str, bytes] = {}  # files that each HOME gets

    @classmethod
    async def open(cls, config: NetworkConfig, log: Log) -> Network:
        """Raises ConfigError where what it needs is not here."""
        network = cls(config, log)
        try:
            if network._authority is not None:
                network.trusted = await asyncio.to_thread(network._authority.trusted)
                await asyncio.to_thread(Path(config.tape).mkdir, parents=True, exist_ok=True)
        except (OSError, subprocess.SubprocessError) as error:
            mend = f"{config.mode} needs certutil: apt-get install libnss3-tools"
            raise ConfigError(f"desktops.network: {mend if 'certutil' in str(error) else error}") from error
        return network

    async def serve(self, desktop: Desktop, connection: asyncssh.SSHClientConnection) -> asyncio.Server:
        """Let a desktop through, until the server is closed. Its socket goes with the desktop's folder.

        Raises OSError, asyncssh.Error.
        """
        assert desktop.outside is not None
        door = str(Path(desktop.outside.trial).with_name("net"))
        server = await asyncio.start_unix_server(partial(self._connected, Taken()), door, limit=HEAD_BYTES)
        await connection.forward_remote_port_to_path("127.0.0.1", PROXY_PORT, door)
        return server

    async def _connected(self, taken: Taken, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.connections += 1
        try:
            async with asyncio.timeout(CONNECTION_S):
                if taken.connections <= CONNECTIONS:
                    await self._answers(taken, reader, writer)
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
            writer.transport.abort()  # it talks no HTTP, has gone or has had its share: the closed connection says so
        finally:
            taken.connections -= 1
            writer.close()

    async def _answers(
        self, taken: Taken, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, within: str = ""
    ) -> None:
        """Answer requests until one is refused. They come encrypted for `within` where that is given."""
        status = 0
        while status != 403:
            method, target, headers = _head(await reader.readuntil(b"\r\n\r\n"))
            tunnel = method == "CONNECT" and not within
            url = urlsplit(f"https://{target if tunnel else within + target}" if tunnel or within else target)
            host = (url.hostname or "").lower()
            try:
                self._refuse(host, url.scheme if url.port in (None, PORTS.get(url.scheme)) else str(url.port))
                if tunnel:
                    await self._through(taken, reader, writer, host)
                    return
                answer = await self._page(
                    method, url._replace(netloc=host, fragment="").geturl(), headers, await _body(reader, headers)
                )
            except NoPage as refusal:
                if host not in self._refused and len(self._refused) < NAMES_LOGGED:
                    self._refused.add(host)
                    self._log.emit(NETWORK_REFUSED, host=host[:253], why=str(refusal)[:400])
                if within:  # a browser that has tried this by itself goes back to the plain page
                    raise OSError(str(refusal)) from refusal
                answer = PageAnswer(
                    "", "", 403, [("Content-Type", "text/plain")], f"{host[:253]}: {refusal}\n".encode()
                )
            status = answer.status
            taken.take(len(answer.body))
            writer.write(_packed(answer, method))
            await writer.drain()

    def _refuse(self, host: str, scheme: str) -> None:
        """Raise NoPage for a name, or a port, that is not allowed."""
        if self._config.mode == "replay":
            return
        if scheme not in PORTS:
            raise NoPage(f"port or scheme {scheme[:40]!r} is not let through")
        if not _NAME.fullmatch(host) or not self._config.allows(host):
            raise NoPage("desktops.network.allow does not name it")

    async def _through(
        self, taken: Taken, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str
    ) -> None:
        """Pass an encrypted connection on, or show it our own certificate. Raises NoPage."""
        ready = b"HTTP/1.1 200 Connection established\r\n\r\n"
        if self._authority is not None:
            writer.write(ready)
            await writer.start_tls(self._authority.context(host))
            await self._answers(taken, reader, writer, host)
            return
        try:
            async with asyncio.timeout(ANSWER_S):
                (at, *_) = await self._resolver.resolve(host, PORTS["https"])
                far_reader, far_writer = await asyncio.open_connection(at["host"], PORTS["https"])
        except OSError as error:
            raise NoPage(f"it can't be reached: {error}") from error
        writer.write(ready)
        await asyncio.gather(_pass(taken, reader, far_writer), _pass(taken, far_reader, writer))

    async def _page(self, method: str, url: str, headers: Headers, body: bytes) -> PageAnswer:
        """What the network answers, or what it once did. Raises NoPage."""
        digest = hashlib.sha256(b"\n".join((method.encode(), url.encode(), body))).hexdigest()
        file = Path(self._config.tape, f"{digest}.json")
        try:
            if self._config.mode == "replay":
                stored = await asyncio.to_thread(read_bytes, file, 2 * BODY_BYTES)
                return msgspec.json.decode(stored, type=PageAnswer)
            answer = await self._asked(method, url, headers, body)
            if self._config.mode == "record":
                await asyncio.to_thread(_store, file, msgspec.json.encode(answer))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            what = "desktops.network.tape has no answer" if self._config.mode == "replay" else "it can't be reached"
            raise NoPage(f"{what}: {error}") from error
        return answer

    async def _asked(self, method: str, url: str, headers: Headers, body: bytes) -> PageAnswer:
        sent = [one for one in headers if not _NOT_ASKED.fullmatch(one[0].lower())]
        limit, nobody = aiohttp.ClientTimeout(total=ANSWER_S), ("User-Agent", "Accept-Encoding")
        about = {"headers": sent, "auto_decompress": False, "timeout": limit, "skip_auto_headers": nobody}
        to, jar = aiohttp.TCPConnector(resolver=self._resolver), aiohttp.DummyCookieJar()
        client = aiohttp.ClientSession(connector=to, cookie_jar=jar, **about)  # type: ignore[arg-type]
        asked = client.request(method, URL(url, encoded=True), data=body or None, allow_redirects=False)
        async with client, asked as got:
            whole = bytearray()
            async for piece in got.content.iter_chunked(PIECE):
                whole += piece
                if len(whole) > BODY_BYTES:
                    raise OSError(f"it sends over {BODY_BYTES} bytes")
            kept = [(str(name), value) for name, value in got.headers.items() if not _OF_HOP.fullmatch(name.lower())]
            return PageAnswer(method, url, got.status, kept, bytes(whole))


def _head(data: bytes) -> tuple[str, str, Headers]:
    """Method, target and headers. Raises ValueError."""
    first, *lines = data.decode("latin-1").strip("\r\n").split("\r\n")
    method, target, _ = first.split(" ")
    headers = [(name, value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    if not all(_WORD.fullmatch(name) for name in (method, *(name for name, _ in headers))):
        raise ValueError("no request of HTTP")
    return method, target, headers


async def _body(reader: asyncio.StreamReader, headers: Headers) -> bytes:
    known = {name.lower(): value for name, value in headers}
    size = int(known.get("content-length", "0"))
    if "transfer-encoding" in known or not 0 <= size <= BODY_BYTES:
        raise ValueError("a body of unknown length, or too long")
    return await reader.readexactly(size)


def _packed(answer: PageAnswer, method: str) -> bytes:
    """As HTTP sends it."""
    lines = [f"HTTP/1.1 {answer.status} -", *(f"{name}: {value}" for name, value in answer.headers)]
    if answer.status not in (204, 304):
        lines.append(f"Content-Length: {len(answer.body)}")
    head = "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")
    return head if method == "HEAD" else head + answer.body


async def _pass(taken: Taken, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on all that comes, then close the other side, which ends what comes from there."""
    try:
        while piece := await reader.read(PIECE):
            taken.take(len(piece))
            writer.write(piece)
            await writer.drain()
    finally:
        writer.close()


def _store(file: Path, content: bytes) -> None:
    """Write a file whole or not at all. Raises OSError."""
    part = file.with_name(f".{secrets.token_hex(8)}")
    try:
        part.write_bytes(content)
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)
