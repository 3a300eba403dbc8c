"""Models as policies: of a folder, drawn in this process, or behind a URL.

Invariant: what a model answers is text that the grammar reads, and nothing else is done with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import torch

from actors.desktop.endpoints.chat import Chat
from actors.desktop.endpoints.client import Endpoint, EndpointDown
from actors.desktop.endpoints.config import EndpointConfig
from actors.errors import DesktopFault
from actors.front.playing import Policy, Seen
from apis.actions.spaces import ActionSpace
from apis.prompts import Form
from policy.architecture import read_architecture
from policy.engine.core import EngineCore
from policy.engine.options import EngineOptions
from policy.engine.sequence import Draw, Sequence
from policy.engine.weights import load_weights
from policy.hf_folder import DTYPES
from policy.tokenizer import Tokenizer
from runtime.settings import stable_seed

DTYPE = "float32"


def of_folder(folder: Path, *, temperature: float = 0.0, max_tokens: int = 96, seed: int = 0) -> Policy:
    """The model of a Hugging Face folder, drawn on the CPU; temperature 0 is greedy.

    An answer has as many tokens as the prompt leaves of the model's context, `max_tokens` at most. Where it leaves none
    the answer says so: that is no action, and costs the turn.
    """
    arch, tokenizer = read_architecture(folder), Tokenizer.load(folder)
    options = EngineOptions(model_path=str(folder), dtype=DTYPE, max_running_requests=1, context_length=arch.context)
    core = EngineCore(options, load_weights(folder, torch.device("cpu"), DTYPES[DTYPE]))
    stops = frozenset({*arch.eos_ids, *tokenizer.stop_ids})

    def draw(seen: Seen) -> str:
        ids = seen.prompt_ids(tokenizer)
        room = arch.context - len(ids)
        if room < 1:
            return f"the prompt has {len(ids)} tokens, and the model takes {arch.context}"
        drawn = Draw(min(max_tokens, room), temperature, stops, stable_seed(seed, seen.step))
        answer = Sequence(rid=str(seen.step), ids=list(ids), draw=drawn)
        core.submit([answer])
        while answer.finish is None:
            core.step()
        return tokenizer.decode([one for one in answer.output if one not in stops])

    return lambda seen: asyncio.to_thread(draw, seen)


@asynccontextmanager
async def of_endpoint(
    config: EndpointConfig, key: str, instruction: str, *, form: Form, actions: ActionSpace, max_tokens: int
) -> AsyncIterator[Policy]:
    """The model behind a URL, for one episode of a task with this instruction; greedy.

    The policy raises DesktopFault where the server does not answer.
    """
    endpoint, chat = Endpoint(config, key), Chat(instruction, form, actions)

    async def ask(seen: Seen) -> str:
        messages = chat.messages(seen.observation, chat.remembered(seen.history), seen.last)
        try:
            found = await endpoint.complete(messages, seen.step, temperature=0.0, max_tokens=max_tokens)
        except EndpointDown as error:
            raise DesktopFault(error.cause, str(error), "sampler") from error
        chat.answered(seen.step, found.text)
        return found.text

    try:
        yield ask
    finally:
        await endpoint.close()
