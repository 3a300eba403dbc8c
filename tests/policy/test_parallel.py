"""Layouts of ranks that a model can't be split by are refused by their key."""

import msgspec
import pytest

from policy.architecture import Architecture
from policy.parallel import ParallelConfig
from runtime.errors import ConfigError

MODEL = Architecture(
    style="qwen2", layers=6, hidden=64, heads=8, kv_heads=4, head_dim=8, rotary_dim=8, ffn=96, vocab=128, context=512,
    norm_eps=1e-6, rope_base=1e4, qkv_bias=True, tied=True,
)  # fmt: skip


def test_ranks_are_the_product() -> None:
    assert ParallelConfig().ranks == 1
    assert ParallelConfig(tensor=4, pipeline=3, data=5, sequence=True).ranks == 60
    ParallelConfig(tensor=4, pipeline=3, data=5, sequence=True).refuse(MODEL)
    ParallelConfig(tensor=4).refuse(msgspec.structs.replace(MODEL, vocab=125))


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"context": 2}, r"learner\.parallel\.context is 2: attention over packed sequences .*"),
        ({"sequence": True}, r"learner\.parallel\.sequence is true: it needs learner\.parallel\.tensor above 1"),
        ({"data": 0}, r"learner\.parallel\.data is 0: it counts from 1"),
    ],
)
def test_what_no_model_allows_is_refused_at_once(settings: dict[str, int], line: str) -> None:
    with pytest.raises(ConfigError, match=f"^{line}$"):
        ParallelConfig(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "model", "line"),
    [
        ({"tensor": 3}, {}, "tensor is 3: it does not divide num_attention_heads 8"),
        ({"tensor": 8}, {}, "tensor is 8: it does not divide num_key_value_heads 4"),
        ({"tensor": 4}, {"ffn": 98}, "tensor is 4: it does not divide intermediate_size 98"),
        ({"tensor": 4}, {"vocab": 6}, "tensor is 4: vocab_size 6 is too small for it"),
        ({"pipeline": 4}, {}, "pipeline is 4: it does not divide num_hidden_layers 6"),
    ],
)
def test_what_the_model_does_not_allow_is_refused_by_one_line(
    settings: dict[str, int], model: dict[str, int], line: str
) -> None:
    parallel = ParallelConfig(**settings)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=rf"^learner\.parallel\.{line}$"):
        parallel.refuse(msgspec.structs.replace(MODEL, **model))
