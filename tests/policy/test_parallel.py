"""Layouts of ranks that a model can't be split by are refused by their key."""

import msgspec
import pytest

from policy.architecture import Architecture
from policy.settings import ParallelConfig
from runtime.errors import ConfigError
from tests.messages import Messages

MODEL = Architecture(
    style="qwen2", layers=6, hidden=64, heads=8, kv_heads=4, head_dim=8, rotary_dim=8, ffn=96, vocab=128, context=512,
    norm_eps=1e-6, rope_base=1e4, qkv_bias=True, tied=True,
)  # fmt: skip


def test_a_layout_that_a_model_allows_has_the_product_of_its_ranks() -> None:
    allowed = ParallelConfig(tensor=4, pipeline=3, data=5, sequence=True)
    allowed.refuse(MODEL)
    assert allowed.ranks == 60
    ParallelConfig(tensor=4).refuse(msgspec.structs.replace(MODEL, vocab=125))


@pytest.mark.parametrize("settings", [{"sequence": True}, {"data": 0}], ids=str)
def test_what_no_model_allows_is_refused_at_once(settings: dict[str, int], message: Messages) -> None:
    with message.raised(ConfigError):
        ParallelConfig(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "model"),
    [
        ({"tensor": 3}, {}),
        ({"tensor": 8}, {}),
        ({"tensor": 4}, {"ffn": 98}),
        ({"tensor": 4}, {"vocab": 6}),
        ({"pipeline": 4}, {}),
    ],
    ids=str,
)
def test_what_the_model_does_not_allow_is_refused_by_one_line(
    settings: dict[str, int], model: dict[str, int], message: Messages
) -> None:
    parallel = ParallelConfig(**settings)  # type: ignore[arg-type]
    with message.raised(ConfigError):
        parallel.refuse(msgspec.structs.replace(MODEL, **model))
