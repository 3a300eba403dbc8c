"""A stand-in for SGLang's server that ends where memory is released, taken back or used out of order, as SGLang would.

It is copied to `sglang/launch_server.py`, and computes nothing: each token is 1. ORDERED_SGLANG names a folder, where
`calls` gets a line for each call that changes it, `wrong` one for each that was out of order. `die-at` names a call
that ends the process, once, `before` or `after` it was carried out.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path
from typing import Any

from aiohttp import web

FOLDER = Path(os.environ.get("ORDERED_SGLANG", ""))


class Server:
    """What a server holds, and what may be asked of it."""

    def __init__(self, model: str, version: str) -> None:
        self.model, self.version = model, version
        self.paused, self.asleep, self.inside = False, False, 0

    def fine(self, name: str, allowed: bool) -> None:
        """Note the call; end where it is out of order."""
        state = f"{name} paused={self.paused} asleep={self.asleep} inside={self.inside}\n"
        with (FOLDER / ("calls" if allowed else "wrong")).open("a") as file:
            file.write(state)
        if not allowed:
            os._exit(1)
        self.die("before", name)

    def die(self, when: str, name: str) -> None:
        file = FOLDER / "die-at"
        if file.exists() and file.read_text() == f"{when} {name}":
            file.unlink()
            os._exit(9)

    async def generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        if self.paused or self.asleep:
            self.fine("generate", allowed=False)
        self.inside += 1
        version, count = self.version, body["sampling_params"]["max_new_tokens"]
        await asyncio.sleep(0.001 * count)
        self.inside -= 1
        meta = {
            "finish_reason": {"type": "length"},
            "weight_versions": [{"version": version, "start": 0, "end": count}],
            "output_token_logprobs": [[-1.0, 1, None]] * count,
            "input_token_logprobs": [
                [None if n == 0 else -1.0, token, None] for n, token in enumerate(body["input_ids"])
            ],
        }
        return web.json_response({"output_ids": [1] * count, "meta_info": meta})

    async def changed(self, request: web.Request) -> web.Response:
        name, body = request.path.strip("/"), await request.json()
        answer: Any = {"success": True, "message": ""}
        match name:
            case "pause_generation":
                self.fine(name, not self.asleep)
                self.paused = True
            case "continue_generation":
                self.fine(name, not self.asleep)
                self.paused = False
            case "release_memory_occupation":
                self.fine(name, self.paused and not self.asleep and not self.inside)
                self.asleep, answer = body["tags"] == ["kv_cache", "weights"], None
            case "resume_memory_occupation":
                self.fine(name, self.asleep)
                self.asleep, answer = False, None
            case _:
                self.fine(name, not self.asleep and not self.paused)
                self.model, self.version = body["model_path"], body["weight_version"]
        self.die("after", name)
        return web.json_response(answer)

    async def about(self, request: web.Request) -> web.Response:
        if request.path == "/model_info":
            return web.json_response({"model_path": self.model, "weight_version": self.version})
        return web.json_response({"data": [{"id": "m", "max_model_len": 128}]})


def main() -> None:
    """Serve until it is killed."""
    parser = argparse.ArgumentParser()
    for name in ("model-path", "weight-version", "port"):
        parser.add_argument(f"--{name}")
    options, _ = parser.parse_known_args()
    server, app = Server(options.model_path, options.weight_version), web.Application()
    app.add_routes([web.get("/model_info", server.about), web.get("/v1/models", server.about)])
    app.add_routes([web.post("/generate", server.generate), web.post("/{name}", server.changed)])
    web.run_app(app, host="127.0.0.1", port=int(options.port), print=None)


if __name__ == "__main__":
    main()
