"""Steps over lists of tensors: the results of Megatron's own fallbacks."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from megatron.core.utils import local_multi_tensor_scale

from policy.megatron.optimizer import norm, scaled

SIZES = st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=2), min_size=1, max_size=6)
UNUSED = torch.zeros(1)


@given(SIZES, st.integers(0, 2**31), st.sampled_from([1.0, 0.25, 1e-3]), st.booleans())
def test_a_list_is_scaled_and_measured_as_its_tensors_are(
    sizes: list[list[int]], seed: int, scale: float, same: bool
) -> None:
    draw = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(size, generator=draw) for size in sizes]
    found, _ = norm(0, UNUSED, [tensors], False)
    torch.testing.assert_close(found, torch.cat([one.reshape(-1) for one in tensors]).norm().reshape(1))

    dtype = torch.float32 if same else torch.bfloat16
    wanted = [torch.empty(size, dtype=dtype) for size in sizes]
    local_multi_tensor_scale(0, UNUSED, [tensors, wanted], scale)
    written = tensors if same else [torch.empty(size, dtype=dtype) for size in sizes]
    scaled(0, UNUSED, [tensors, written], scale)
    torch.testing.assert_close(written, wanted, rtol=0 if same else 0.01, atol=0 if same else 1e-6)
