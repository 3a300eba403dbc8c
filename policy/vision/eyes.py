"""Pictures to embeddings, each distinct one once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from policy.architecture import Architecture, GlmVisionShape
from policy.memory import SEEN
from policy.pictures import PictureStyle, patches
from policy.tensorfiles import SEEING
from policy.vision.tower import GlmTower, Tower


class Eyes:
    """A tower, and while it is frozen what it made of the pictures that it saw last. Not thread safe."""

    def __init__(self, tower: Tower | GlmTower, style: PictureStyle, device: torch.device) -> None:
        self.tower, self.style, self.device = tower, style, device
        self.passes = 0
        self.frozen = True
        self._seen: OrderedDict[str, Tensor] = OrderedDict()
        self._bytes = 0

    def train(self, part: str) -> None:
        """From now on the tower's "merger" is trained, or "all" of it."""
        self.frozen = False
        for name, parameter in self.tower.named_parameters():
            parameter.requires_grad = part == "all" or name.startswith("merger.")

    def see(self, pictures: Iterable[tuple[str, bytes]]) -> list[Tensor]:
        """The embeddings [tokens, hidden] of each (digest, PNG), with gradients if trained. Raises PictureError."""
        if self.frozen:
            with torch.no_grad():
                return [self._one(digest, png) for digest, png in pictures]
        asked = list(pictures)
        once = {digest: self._pass(png) for digest, png in dict(asked).items()}
        return [once[digest] for digest, _ in asked]

    def _pass(self, png: bytes) -> Tensor:
        rows, grid = patches(png, self.style)
        self.passes += 1
        made: Tensor = self.tower(torch.from_numpy(rows).to(self.device), grid)
        return made

    def _one(self, digest: str, png: bytes) -> Tensor:
        known = self._seen.get(digest)
        if known is None:
            known = self._seen[digest] = self._pass(png)
            self._bytes += known.nbytes
            while self._bytes > SEEN and len(self._seen) > 1:
                self._bytes -= self._seen.popitem(last=False)[1].nbytes
        self._seen.move_to_end(digest)
        return known

    def same(self, other: Eyes) -> bool:
        """Whether both see alike, number by number."""
        pairs = zip(self.tower.parameters(), other.tower.parameters(), strict=True)
        return self.style == other.style and all(torch.equal(ours, theirs) for ours, theirs in pairs)


def eyes_of(
    style: PictureStyle | None,
    arch: Architecture,
    tensors: Mapping[str, Tensor],
    dtype: torch.dtype,
    device: torch.device,
) -> Eyes | None:
    """The eyes of a model, with the tower of `tensors`; None for one that reads text alone."""
    if style is None or arch.vision is None:
        return None
    with torch.device("meta"):
        tower = GlmTower(arch.vision) if isinstance(arch.vision, GlmVisionShape) else Tower(arch.vision)
    own = {name.removeprefix(SEEING): tensor for name, tensor in tensors.items() if name.startswith(SEEING)}
    placed = {name: tensor.to(device=device, dtype=dtype) for name, tensor in own.items()}
    tower.load_state_dict(placed, assign=True)
    return Eyes(tower.requires_grad_(requires_grad=False).eval(), style, device)
