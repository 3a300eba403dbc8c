"""The reference policy: what is trained, as it was when the policy was set, in the host's memory.

Invariant: a GPU holds one set of weights. The reference's stand in the model's place while they are read, and at no
other time. The model's own come back to the bit, whatever fails in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor
from torch.nn import Parameter


class ReferencePolicy:
    """A copy of a rank's trained parameters, pinned where those are on a GPU."""

    @torch.no_grad()
    def __init__(self, trained: Sequence[tuple[str, Parameter]]) -> None:
        """`trained` are the parameters by name, which have one dtype; the copy is of what they are now."""
        (dtype,) = {parameter.dtype for _, parameter in trained}
        sizes = [parameter.numel() for _, parameter in trained]
        # All in one piece: torch may round what it pins up to a power of two, each time that it is asked.
        room = torch.empty(sum(sizes), dtype=dtype, pin_memory=trained[0][1].is_cuda)
        self._trained = dict(trained)
        parts = zip(self._trained.items(), room.split(sizes), strict=True)
        self.weights = {name: part.view_as(parameter).copy_(parameter) for (name, parameter), part in parts}

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model computes as the reference policy inside, where no gradient is taken.

        A tensor at a time changes places, so the device holds one of them more.
        """
        with ExitStack() as back:
            for name, kept in self.weights.items():
                _exchange(self._trained[name], kept)
                back.callback(_exchange, self._trained[name], kept)
            yield


@torch.no_grad()
def _exchange(weight: Tensor, kept: Tensor) -> None:
    own = weight.clone()
    weight.copy_(kept)
    kept.copy_(own)
