"""A stand-in for a service that speaks the E2B protocol: it refuses what that forbids, and its sandboxes are real.

A sandbox is a bubblewrap of its own user and processes. It ends when its time is over. What its routes take and answer
is what the published client (e2b 2.63) sends and reads; `tests/extras/test_e2b.py` plays that client against it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import time
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

KEY = "e2b_" + "0" * 40
TEMPLATE = "desktop"
ACCOUNTS = "root:x:0:0::/:/bin/sh\nuser:*:1000:1000::/home/user:/bin/bash\nsshd:*:100:65534::/:/bin/false\n"
OUTSIDE = 29_997 if os.geteuid() == 0 else os.geteuid()
ENVD = "/process.Process/{method}"


class Sandbox:
    """Processes of one user that see no others."""

    def __init__(self, token: str, timeout_s: float) -> None:
        self.token = token
        self.base = Path(tempfile.mkdtemp(prefix="computerrl-stand-in-"))
        self.base.chmod(0o755)
        self.processes: dict[int, asyncio.subprocess.Process] = {}
        self.prolong(timeout_s)
        for name in ("home", "tmp"):
            (self.base / name).mkdir()
            os.chown(self.base / name, OUTSIDE, -1)
        (self.base / "passwd").write_text(ACCOUNTS)
        info, told = os.pipe()
        command = [
            "bwrap", "--unshare-user", "--uid", "1000", "--gid", "1000", "--unshare-pid", "--unshare-net",
            "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/run",
            "--dir", "/run/sshd", "--tmpfs", "/home", "--bind", str(self.base / "home"), "/home/user",
            "--bind", str(self.base / "tmp"), "/tmp", "--ro-bind", str(self.base / "passwd"), "/etc/passwd",
            "--info-fd", str(told), "sh", "-c", "echo ready; exec sleep infinity",
        ]  # fmt: skip
        identity = OUTSIDE if os.geteuid() == 0 else None
        self.init = subprocess.Popen(
            command,
            stdout=-1,
            pass_fds=[told],
            user=identity,
            group=identity,
            extra_groups=None if identity is None else [],
        )
        os.close(told)
        with os.fdopen(info) as stream:
            self.pid = int(orjson.loads(stream.read())["child-pid"])
        assert self.init.stdout is not None
        assert self.init.stdout.readline() == b"ready\n", "bubblewrap has laid it out"

    def prolong(self, timeout_s: float) -> None:
        self.ends = time.monotonic() + timeout_s

    async def start(self, argv: list[str], env: dict[str, str]) -> asyncio.subprocess.Process:
        enter = ["nsenter", "-t", str(self.pid), "-U", "-m", "-p", "-n", "-S", "1000", "-G", "1000", "--"]
        usual = {"HOME": "/home/user", "PATH": os.environ["PATH"], "USER": "user"}
        process = await asyncio.create_subprocess_exec(
            *enter,
            "/bin/sh",
            "-c",
            'cd && exec "$@"',
            "sh",
            *argv,
            stdin=-1,
            stdout=-1,
            stderr=-1,
            env=usual | env,
            start_new_session=True,
        )
        self.processes[process.pid] = process
        return process

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self.init.kill()
        self.init.communicate()
        subprocess.run(["rm", "-rf", str(self.base)], check=True)


def refused(status: int, code: object, message: str) -> web.Response:
    return web.json_response({"code": code, "message": message}, status=status)


def envelope(flags: int, body: object) -> bytes:
    raw = orjson.dumps(body)
    return bytes([flags]) + len(raw).to_bytes(4, "big") + raw


class StandInService:
    """`async with StandInService() as service` listens on a port of its own; `url` is both URLs."""

    def __init__(self, most: int = 4) -> None:
        self.most = most
        self.sandboxes: dict[str, Sandbox] = {}
        self.made = 0
        self.ended: list[str] = []  # why each sandbox ended
        self.broken = ""  # what does not work any more: a method of envd, or `api`
        self.url = ""

    async def __aenter__(self) -> StandInService:
        app = web.Application(client_max_size=8 << 20)
        app.add_routes([
            web.post("/sandboxes", self._create), web.post("/v2/sandboxes", self._create),
            web.get("/health", self._health), web.get("/sandboxes/{id}", self._info),
            web.delete("/sandboxes/{id}", self._kill), web.post("/sandboxes/{id}/timeout", self._prolong),
            web.post(ENVD, self._envd),
        ])  # fmt: skip
        self._runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        self._reaper = asyncio.create_task(self._reap())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._reaper.cancel()
        for name in list(self.sandboxes):
            self.end(name, "service")
        await self._runner.cleanup()

    def end(self, name: str, why: str) -> None:
        self.sandboxes.pop(name).kill()
        self.ended.append(why)

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            for name in [name for name, one in self.sandboxes.items() if one.ends < time.monotonic()]:
                self.end(name, "timeout")

    def _refusal(self, request: web.Request) -> web.Response | None:
        if self.broken == "api":
            return refused(503, 503, "overloaded")
        if request.headers.get("X-API-Key") != KEY:
            return refused(401, 401, "Invalid API key")
        name = request.match_info.get("id")
        return refused(404, 404, "sandbox not found") if name is not None and name not in self.sandboxes else None

    async def _create(self, request: web.Request) -> web.Response:
        if (no := self._refusal(request)) is not None:
            return no
        body = await request.json()
        if not isinstance(body.get("templateID"), str) or not isinstance(body.get("timeout", 15), int):
            return refused(400, 400, "templateID is needed, and timeout counts seconds")
        if body["templateID"] != TEMPLATE:
            return refused(404, 404, f"template '{body['templateID']}' not found")
        if len(self.sandboxes) >= self.most:
            return refused(429, 429, "you have reached the maximum number of concurrent sandboxes")
        self.made += 1
        name = f"i{self.made:019d}"
        self.sandboxes[name] = Sandbox(os.urandom(8).hex(), body.get("timeout", 15))
        answer = {
            "sandboxID": name, "templateID": TEMPLATE, "clientID": "x", "envdVersion": "0.6.4", "domain": "e2b.test",
            "envdAccessToken": self.sandboxes[name].token, "alias": TEMPLATE,
        }  # fmt: skip
        return web.json_response(answer, status=201)

    async def _info(self, request: web.Request) -> web.Response:
        return self._refusal(request) or web.json_response({"sandboxID": request.match_info["id"]})

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(status=204)

    async def _kill(self, request: web.Request) -> web.Response:
        if (no := self._refusal(request)) is not None:
            return no
        self.end(request.match_info["id"], "killed")
        return web.Response(status=204)

    async def _prolong(self, request: web.Request) -> web.Response:
        if (no := self._refusal(request)) is not None:
            return no
        self.sandboxes[request.match_info["id"]].prolong((await request.json())["timeout"])
        return web.Response(status=204)

    async def _envd(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        box = self.sandboxes.get(request.headers.get("E2b-Sandbox-Id", ""))
        if box is None:
            return refused(502, 502, "The sandbox was not found")
        if request.headers.get("X-Access-Token") != box.token:
            return refused(401, "unauthenticated", "no access")
        if b64decode(request.headers.get("Authorization", "").removeprefix("Basic ")) not in (b"user:", b""):
            return refused(401, "unauthenticated", "invalid user")
        if request.headers.get("Connect-Protocol-Version") != "1":
            return refused(400, "invalid_argument", "missing required header: Connect-Protocol-Version")
        if method == self.broken:
            return refused(503, "unavailable", "not now")
        raw = await request.read()
        if method == "Start":
            size = int.from_bytes(raw[1:5], "big")
            if request.content_type != "application/connect+json" or raw[0] or size != len(raw) - 5:
                return refused(415, "invalid_argument", "no enveloped JSON")
            return await self._start(request, box, orjson.loads(raw[5:]))
        if request.content_type != "application/json":
            return refused(415, "invalid_argument", "no JSON")
        return await self._unary(method, box, orjson.loads(raw))

    async def _unary(self, method: str, box: Sandbox, body: dict[str, Any]) -> web.Response:
        process = box.processes.get(body["process"]["pid"])
        if process is None or process.returncode is not None or process.stdin is None:
            return refused(404, "not_found", "process not found")
        if method == "SendInput":
            process.stdin.write(b64decode(body["input"]["stdin"], validate=True))
            with contextlib.suppress(ConnectionError):
                await process.stdin.drain()
        elif method == "CloseStdin":
            process.stdin.close()
        elif method == "SendSignal" and body["signal"] in ("SIGNAL_SIGKILL", "SIGNAL_SIGTERM"):
            os.killpg(process.pid, getattr(signal, body["signal"].removeprefix("SIGNAL_")))
        else:
            return refused(404, "unimplemented", method)
        return web.json_response({})

    async def _start(self, request: web.Request, box: Sandbox, body: dict[str, Any]) -> web.StreamResponse:
        reply = web.StreamResponse(headers={"Content-Type": "application/connect+json"})
        await reply.prepare(request)
        config = body["process"]
        process = await box.start([config["cmd"], *config.get("args", [])], config.get("envs", {}))
        if not body.get("stdin", True):
            process.stdin.close()
        await reply.write(envelope(0, {"event": {"start": {"pid": process.pid}}}))

        async def told(name: str, stream: asyncio.StreamReader) -> None:
            while piece := await stream.read(32 << 10):
                event = {"event": {"data": {name: b64encode(piece).decode()}}}
                with contextlib.suppress(ConnectionError):  # a client that left; the process goes on
                    await reply.write(envelope(0, event))

        await asyncio.gather(told("stdout", process.stdout), told("stderr", process.stderr))
        code = await process.wait()
        end = {"exitCode": code, "exited": code >= 0, "status": f"exit status {code}"}
        with contextlib.suppress(ConnectionError):
            await reply.write(envelope(0, {"event": {"end": end}}) + envelope(2, {}))
        return reply
