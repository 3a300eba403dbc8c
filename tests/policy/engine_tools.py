"""A tiny model for the engine, what transformers makes of it, and an engine process behind a URL."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import torch
from tokenizers import Tokenizer, models
from torch import Tensor

from policy.engine.core import EngineCore, EngineOptions
from policy.engine.model import load_weights
from policy.engine.scheduler import Draw
from policy.engine.scheduler import Sequence as Response
from runtime.http import bearer
from runtime.program import TOKEN_ENV
from tests.policy import tiny_models

ROOT = Path(__file__).resolve().parents[2]
VOCAB = tiny_models.VOCAB
CONTEXT = 4096  # long enough that a request is still running when a test interferes with it


def write_model(folder: Path, style: str = "qwen2", *, seed: int = 0, tied: bool = True) -> Path:
    """A random model with a tokenizer whose token i reads `<i>`."""
    tiny_models.write(folder, style, seed=seed, tied=tied, layers=3, max_position_embeddings=CONTEXT)
    vocab = {f"<{i}>": i for i in range(VOCAB)}
    Tokenizer(models.WordLevel(vocab, unk_token="<0>")).save(str(folder / "tokenizer.json"))
    return folder


def reference_logits(folder: Path, ids: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    """Logits [len(ids), vocab] of transformers, computed in `dtype`."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    with torch.no_grad():
        return model(torch.tensor([list(ids)])).logits[0]


def reference_logprobs(folder: Path, prompt: Sequence[int], response: Sequence[int], temperature: float) -> list[float]:
    """Log-probabilities of `response` after `prompt` by transformers."""
    logits = reference_logits(folder, [*prompt, *response])[len(prompt) - 1 : -1]
    logprobs = torch.log_softmax(logits / (temperature or 1.0), -1)
    return logprobs[range(len(response)), list(response)].tolist()


def make_core(folder: Path, dtype: torch.dtype = torch.float32, **options: Any) -> EngineCore:
    """An engine without threads."""
    settings = EngineOptions(model_path=str(folder), weight_version="0.0", **options)
    return EngineCore(settings, load_weights(folder, torch.device("cpu"), dtype))


def response(rid: str, prompt: list[int], tokens: int, *, temperature: float = 0.0, **fields: Any) -> Response:
    """A response to be drawn by a core."""
    draw = Draw(max_new_tokens=tokens, temperature=temperature, stop_ids=frozenset(), seed=1)
    return Response(rid=rid, ids=list(prompt), draw=draw, **fields)


def run_core(core: EngineCore, *responses: Response) -> None:
    """Submit and step until all have ended."""
    core.submit(list(responses))
    for _ in range(10_000):
        if all(one.finish is not None for one in responses):
            return
        core.step()
    raise AssertionError("the engine makes no progress")


@dataclass(frozen=True)
class Server:
    """A running engine."""

    url: str
    model: Path
    pid: int
    token: str = ""

    def session(self, **options: Any) -> aiohttp.ClientSession:
        """One that shows the token."""
        return aiohttp.ClientSession(headers=bearer(self.token), **options)

    async def post(self, path: str, body: Any, method: str = "POST") -> tuple[int, Any]:
        """Status and answer, decoded where it is JSON."""
        async with self.session() as session, session.request(method, self.url + path, json=body) as answer:
            json = answer.content_type == "application/json"
            return answer.status, await (answer.json() if json else answer.text())

    async def get(self, path: str) -> tuple[int, Any]:
        """Like `post`, without a body."""
        return await self.post(path, None, "GET")

    async def generate(self, **body: Any) -> Any:
        """The answer of /generate, which must succeed."""
        status, answer = await self.post("/generate", body)
        assert status == 200, answer
        return answer

    async def each(self, prompts: list[list[int]], **body: Any) -> list[Any]:
        """The answers to several prompts at once."""
        return await asyncio.gather(*(self.generate(input_ids=prompt, **body) for prompt in prompts))

    async def load(self) -> dict[str, Any]:
        """The one entry of /v1/loads."""
        _, answer = await self.get("/v1/loads")
        return answer["loads"][0]


@contextlib.contextmanager
def engine_server(model: Path, *options: str) -> Iterator[Server]:
    """An engine process on a free port of this machine."""
    sock = socket.create_server(("127.0.0.1", 0))
    argv = [sys.executable, "-P", "-m", "policy.engine", "--model-path", str(model), "--weight-version", "0.0"]
    argv += ["--fd", str(sock.fileno()), "--die-with-parent", str(os.getpid()), *options]
    token = secrets.token_urlsafe(24)
    env = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", TOKEN_ENV: token}
    process = subprocess.Popen(argv, env=env, pass_fds=[sock.fileno()])
    url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    sock.close()
    try:
        yield Server(url, model, process.pid, token)
    finally:
        process.terminate()
        assert process.wait(timeout=20) == 0
