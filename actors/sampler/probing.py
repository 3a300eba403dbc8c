"""Whether an engine that left a call unanswered still generates.

Invariant: an engine is found dead only where it left a request of one token unanswered. It must have loaded nothing
and answered no other request meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.errors import EngineGone
from actors.sampler.engine.engine import Engine
from actors.sampler.weights.loader import Loader
from policy.errors import EngineBusy, EngineError

PROBE_TIMEOUT_S = 15.0


async def silence(engine: Callable[[], Engine], loader: Loader, answered: Callable[[], int]) -> str:
    """Why the engine is dead, "" where it is not; `answered` counts the requests that it has answered."""
    while True:
        await loader.judged.wait()  # while it loads it may be paused
        before = answered()
        try:
            await engine().client.first_token(0, PROBE_TIMEOUT_S)
        except EngineBusy:
            return ""  # a full line is a sign of life
        except (EngineError, EngineGone) as error:
            if loader.judged.is_set() and answered() == before:
                return str(error)
        else:
            return ""
