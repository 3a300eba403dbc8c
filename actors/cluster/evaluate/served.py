"""A model behind a URL, as `eval` is told of it.

Invariant: an endpoint that can't answer is refused in one line before anything is started. Its key stands in no file.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import re
from http import HTTPStatus

import msgspec

from actors.cluster.config.suggest import hint
from actors.cluster.runs.weights import NamedWeights
from actors.desktop.endpoints.chat import pictured
from actors.desktop.endpoints.client import Endpoint, EndpointDown
from actors.desktop.endpoints.config import EndpointConfig, key_of
from runtime.errors import ConfigError

MODEL_FLAG = "--model-name"
TRIAL_TOKENS = 16  # some servers refuse fewer
TRIAL_SIDE = 64  # pixels
ASKED = "Answer with one word: ready?"
OF_URLS = {
    "model_name": MODEL_FLAG, "api_key_env": "--api-key-env", "observation": "--observation",
    "coordinates": "--coordinates", "prompt": "--prompt",
}  # flags by their argument  # fmt: skip
_HOST = re.compile(r"(?:localhost|[\w-]+(?:\.[\w-]+)+)(?::\d+|/v1(?:/|$))|[\w-]+:\d+(?:/|$)")  # without a scheme
NOT_OF_URLS = {"at": "--at", "attach": "--attach", "engine": "--engine"}


def is_url(model: str | None) -> bool:
    """Whether MODEL is a server's address."""
    return model is not None and "://" in model


def refuse_misplaced(args: argparse.Namespace) -> None:
    """Raise ConfigError for a flag that says nothing of this kind of model."""
    url = is_url(args.model)
    if _HOST.match(args.model):
        raise ConfigError(f"MODEL {args.model}: a server's URL begins with its scheme, as in http://{args.model}")
    for name, flag in (NOT_OF_URLS if url else OF_URLS).items():
        if getattr(args, name) not in (None, []):
            wanted = "a run or a model folder" if url else "a server's URL, such as http://127.0.0.1:30000/v1"
            raise ConfigError(f"{flag}: it goes with {wanted}, and MODEL is {args.model}: leave it out")
    if url and not args.model_name:
        raise ConfigError(f"MODEL {args.model}: name the model as that server calls it: {MODEL_FLAG} NAME")


def named(args: argparse.Namespace) -> NamedWeights:
    """What the evaluation calls it."""
    return NamedWeights(folder="", name=f"{args.model_name} at {args.model}")


def endpoint_of(args: argparse.Namespace, seats: int) -> EndpointConfig:
    """The endpoint that the arguments name, for `seats` episodes at once. Raises ConfigError."""
    return EndpointConfig(
        url=args.model, model=args.model_name, key_env=args.api_key_env or "", timeout_s=180.0, retries=5,
        first_backoff_s=1.0, longest_backoff_s=60.0, concurrent=seats,
    )  # fmt: skip


def refuse_unanswering(config: EndpointConfig, *, picture: bool) -> None:
    """Raise ConfigError unless the endpoint answers a short question now, with a `picture` if it will be shown any."""
    key = key_of(config, os.environ)
    once = msgspec.structs.replace(config, retries=1, timeout_s=min(config.timeout_s, 60.0))

    async def asked() -> None:
        endpoint = Endpoint(once, key)
        try:
            question = [{"role": "user", "content": pictured(ASKED, _blank()) if picture else ASKED}]
            await endpoint.complete(question, seed=0, temperature=0.0, max_tokens=TRIAL_TOKENS)
        except EndpointDown as error:
            served = await endpoint.models() if error.status else []
            todo = _mended_by(config, error, served, picture=picture)
            raise ConfigError(f"MODEL {config.url}: {error} ({error.cause}){todo}") from None
        finally:
            await endpoint.close()

    asyncio.run(asked())


def _mended_by(config: EndpointConfig, error: EndpointDown, served: list[str], *, picture: bool) -> str:
    """What to do about `error` of an endpoint that lists the models `served`, as the end of its line."""
    if error.status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        key = f"the key in {config.key_env} is not taken" if config.key_env else "it wants a key"
        return f"; {key}: --api-key-env names the variable that holds it"
    if served and config.model not in served:
        shown = [ascii(one)[1:-1] for one in served]
        return f"; {MODEL_FLAG} {config.model}: it serves no such model, {hint(config.model, shown)}"
    if error.cause == "endpoint_silent":
        return "; start that server, or mend its host and port"
    if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED) or error.cause == "endpoint_malformed":
        return "; an OpenAI-compatible server's URL mostly ends in /v1: mend it, or the model's name"
    if picture and error.status:
        return "; where the model takes no pictures, leave --observation out"
    return ""


def _blank() -> bytes:
    """A white PNG, large enough for models that refuse tiny ones."""
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (TRIAL_SIDE, TRIAL_SIDE), "white").save(out, "PNG")
    return out.getvalue()
