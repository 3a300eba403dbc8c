"""What the router passes on is the request that came, with its prompt as it was."""

from __future__ import annotations

import msgspec
import pytest

from actors.replay.messages import Sampling
from actors.sampler.messages import Generate
from actors.sampler.router import PassedOn
from runtime.errors import ProtocolError
from runtime.messaging.message import Version, decode, encode, reply_type


@pytest.mark.parametrize("tokens", [0, 15, 16, 65_535, 65_536])
def test_a_request_passes_with_its_prompt_and_the_prompt_is_counted(tokens: int) -> None:
    sent = Generate(
        rid="7.1", prompt_ids=list(range(tokens)), sampling=Sampling(temperature=0.5, max_new_tokens=4),
        pin=Version(lineage=1, step=2), affinity="7", seed=3,
    )  # fmt: skip
    seen = decode(encode(sent), PassedOn)
    assert seen.prompt_tokens == tokens
    on = decode(encode(msgspec.structs.replace(seen, elsewhere=True)), Generate)
    assert on == msgspec.structs.replace(sent, elsewhere=True)


def test_it_is_the_same_message_but_for_the_type_of_the_prompt() -> None:
    def told(kind: type) -> list[tuple[str, object, object]]:
        fields = msgspec.structs.fields(kind)
        return [(field.name, None if field.name == "prompt_ids" else field.type, field.default) for field in fields]

    assert told(PassedOn) == told(Generate)
    assert PassedOn.__struct_config__.tag == Generate.__struct_config__.tag
    assert reply_type(PassedOn) == reply_type(Generate)


@pytest.mark.parametrize("wrong", ["text", 5, None, {"a": 1}, b"\xdd\x00\x00\x00\x01\x05"])
def test_what_is_no_list_is_refused(wrong: object) -> None:
    body = {"type": "Generate", "rid": "7.1", "prompt_ids": wrong}
    body["sampling"] = {"temperature": 1.0, "max_new_tokens": 4}
    seen = decode(msgspec.msgpack.encode(body), PassedOn)
    with pytest.raises(ProtocolError, match="prompt_ids"):
        _ = seen.prompt_tokens
