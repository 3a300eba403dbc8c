"""A machine that serves the HTTP routes of OSWorld's images: run inside a sandbox of a test, with a desktop of its own.

It is as strict as it can be: another route, verb, field or type is an error that the test sees. It needs no package,
for it runs on the system's Python, as the image's own server does.
"""

from __future__ import annotations

import email.parser
import email.policy
import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PNG = b"\x89PNG\r\n\x1a\n"
SIZE = {"width": 1280, "height": 720}


class Routes(BaseHTTPRequestHandler):
    """Nine routes."""

    def do_GET(self) -> None:
        texts = {
            "/screenshot": PNG,
            "/platform": b"Linux",
            "/accessibility": json.dumps({"AT": "<desktop-frame/>"}).encode(),
            "/cursor_position": b"[0, 0]",
            "/terminal": json.dumps({"output": "", "status": "success"}).encode(),
        }
        self._answer(200 if self.path in texts else 404, texts.get(self.path, b"no such route"))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.path == "/screen_size":
            self._answer(200, json.dumps(SIZE).encode())
        elif self.path in ("/execute", "/setup/execute"):
            self._execute(body)
        elif self.path == "/setup/upload":
            self._upload(body)
        else:
            self._answer(404, b"no such route")

    def _execute(self, body: bytes) -> None:
        order = json.loads(body)
        command = order.pop("command")
        shell = order.pop("shell", False)
        if order or self.headers["Content-Type"] != "application/json" or not isinstance(command, list) or shell:
            self._answer(400, b"a command and shell")
            return
        ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        answer = {"status": "success", "output": ran.stdout, "error": ran.stderr, "returncode": ran.returncode}
        self._answer(200, json.dumps(answer).encode())

    def _upload(self, body: bytes) -> None:
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
        parts = {part.get_param("name", header="content-disposition"): part for part in message.iter_parts()}
        if set(parts) != {"file_path", "file_data"}:
            self._answer(400, b"file_path and file_data are required")
            return
        path = parts["file_path"].get_payload(decode=True).decode()
        with open(os.path.expanduser(path), "wb") as file:
            file.write(parts["file_data"].get_payload(decode=True))
        self._answer(200, b"File Uploaded")

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def main() -> None:
    """A desktop, as a machine's own session manager starts it, then the routes; the arguments are port and display."""
    os.environ.update(DISPLAY=sys.argv[2], DBUS_SESSION_BUS_ADDRESS=f"unix:path={os.environ['HOME']}/.bus")
    os.makedirs("/tmp/.X11-unix", 0o1777, exist_ok=True)
    reads, writes = os.pipe()
    os.set_inheritable(writes, True)
    x = ["Xvfb", sys.argv[2], "-screen", "0", "1280x720x24", "-nolisten", "tcp", "-noreset", "-displayfd", str(writes)]
    subprocess.Popen(x, pass_fds=[writes])
    ready = os.fdopen(reads)
    ready.readline()
    bus = ["dbus-daemon", "--session", f"--address={os.environ['DBUS_SESSION_BUS_ADDRESS']}", "--nofork", "--nopidfile"]
    subprocess.Popen([*bus, f"--print-address={writes}"], pass_fds=[writes])
    ready.readline()
    subprocess.Popen(["openbox", "--sm-disable"])
    subprocess.Popen(["/usr/libexec/at-spi-bus-launcher", "--launch-immediately"])
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Routes).serve_forever()


if __name__ == "__main__":
    main()
