"""A request as the router sees it: the prompt is passed on as it came.

Invariant: on the wire this is `actors.sampler.messages.Generate`; the sampler that gets it looks at every id.
"""

from __future__ import annotations

import msgspec

from actors.replay.messages import Sampling
from actors.sampler.messages import Generated, Refused
from runtime.errors import ProtocolError
from runtime.messaging.message import Request, Version


class PassedOn(Request[Generated | Refused], tag="Generate"):
    """`prompt_ids` is MessagePack. Of 16,000 numbers, making and writing them took more than all else here."""

    rid: str
    prompt_ids: msgspec.Raw
    sampling: Sampling
    pin: Version | None = None
    affinity: str = ""
    seed: int | None = None
    elsewhere: bool = False

    @property
    def prompt_tokens(self) -> int:
        """How many ids the prompt has. Raises ProtocolError where it is no list."""
        head = bytes(memoryview(self.prompt_ids)[:5])
        match head[0]:
            case 0xDD:
                return int.from_bytes(head[1:5], "big")
            case 0xDC:
                return int.from_bytes(head[1:3], "big")
            case small if small >> 4 == 0x9:
                return small & 0xF
        raise ProtocolError("prompt_ids is no list")
