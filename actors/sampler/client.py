"""HTTP client of one engine, embedded or SGLang's own.

Invariant: every call has a deadline, every answer a size limit and a type; whatever goes wrong is one of
EngineGone (ask again), EngineBusy (ask later) and EngineError (don't ask that).
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import aiohttp
import msgspec

from actors.sampler import wire
from runtime.errors import EngineBusy, EngineError, EngineGone, SamplerError

T = TypeVar("T")
MAX_ANSWER_BYTES = 32 << 20
CONTROL_TIMEOUT_S = 20.0


class EngineClient:
    """Speaks to `base`; `connector` decides what lies under it (TCP or a Unix socket)."""

    def __init__(self, base: str, connector: aiohttp.BaseConnector) -> None:
        self._base = base.rstrip("/")
        self._session = aiohttp.ClientSession(connector=connector)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    async def generate(self, body: dict[str, Any], timeout_s: float) -> wire.GenerateAnswer:
        """Draw one response."""
        return await self._call("POST", "/generate", body, wire.GenerateAnswer, timeout_s)

    async def first_token(self, token: int, timeout_s: float) -> None:
        """Return once the engine has generated something."""
        body = {"input_ids": [token], "sampling_params": {"max_new_tokens": 1, "temperature": 0.0}}
        await self._call("POST", "/generate", body, dict[str, Any], timeout_s)

    async def model_info(self) -> wire.ModelInfo:
        """Which weights are current."""
        return await self._call("GET", "/model_info", None, wire.ModelInfo, CONTROL_TIMEOUT_S)

    async def context_length(self) -> int:
        """Tokens of prompt and response together."""
        models = await self._call("GET", "/v1/models", None, wire.Models, CONTROL_TIMEOUT_S)
        if not models.data:
            raise EngineError("the engine serves no model")
        return models.data[0].max_model_len

    async def update(
        self, location: str, version: str, timeout_s: float, *, digest: str, retract: bool, pause: bool
    ) -> None:
        """Replace the current weights.

        `pause` wraps the update as SGLang needs it: without a pause it would wait for all requests to end, and in
        place its prefix cache must not be flushed. The embedded engine takes `retract` with the update instead and
        goes on generating while it loads.
        """
        body = {"model_path": location, "weight_version": version}
        if not pause:
            ours = {"retract_running": retract, "digest": digest}
            await self._control("/update_weights_from_disk", body | ours, timeout_s)
            return
        await self._control("/pause_generation", {"mode": "retract" if retract else "in_place"}, CONTROL_TIMEOUT_S)
        try:
            await self._control("/update_weights_from_disk", body | {"flush_cache": retract}, timeout_s)
        finally:
            await self._control("/continue_generation", {}, CONTROL_TIMEOUT_S)

    async def pin(self, version: str, location: str, timeout_s: float) -> None:
        """Keep a version resident (embedded engine only)."""
        await self._control("/pin_weights", {"weight_version": version, "model_path": location}, timeout_s)

    async def unpin(self, version: str) -> None:
        """Let a version go (embedded engine only)."""
        await self._control("/unpin_weights", {"weight_version": version}, CONTROL_TIMEOUT_S)

    async def _control(self, path: str, body: dict[str, Any], timeout_s: float) -> None:
        answer = await self._call("POST", path, body, wire.Control, timeout_s)
        if not answer.success:
            raise EngineError(f"{path}: {answer.message}")

    async def _call(self, method: str, path: str, body: Any, kind: type[T], timeout_s: float) -> T:
        if self._session.closed:
            raise EngineGone(f"{path}: the engine is down")
        data = None if body is None else msgspec.json.encode(body)
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._session.request(
                    method,
                    self._base + path,
                    data=data,
                    headers={"Content-Type": "application/json"},
                    timeout=aiohttp.ClientTimeout(total=None),
                ) as response,
            ):
                raw = await _read(response)
        except TimeoutError as error:
            raise EngineGone(f"{path} was not answered within {timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise EngineGone(f"{path}: {type(error).__name__}: {error}") from error
        if response.status == 200:
            return _decode(raw, kind, path)
        text = f"{path}: status {response.status}: {raw[:500].decode(errors='replace')}"
        if response.status in (429, 503):
            raise EngineBusy(text)
        raise EngineError(text) if response.status < 500 else EngineGone(text)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > MAX_ANSWER_BYTES:
            raise SamplerError(f"the engine's answer is longer than {MAX_ANSWER_BYTES} bytes")
        parts.append(part)
    return b"".join(parts)


def _decode(raw: bytes, kind: type[T], path: str) -> T:
    try:
        return msgspec.json.decode(raw or b"{}", type=kind)
    except msgspec.MsgspecError as error:
        raise SamplerError(f"{path}: the engine's answer is not as agreed: {error}") from error
