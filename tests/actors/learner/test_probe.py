"""The fixed probe: prompts that stay, and the entropy of answers to them."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any, cast

import pytest

from actors.learner.probe import DRAWN_FROM, DRAWS, FILE, PROMPTS, Probe
from actors.sampler.messages import Generate, Generated, Refused
from runtime.errors import DeadlineExceeded, StoreError
from runtime.messaging.message import Version
from runtime.messaging.refs import Ref
from tests.actors.learner.stand_ins import payload


class Drawing:
    """Answers a prompt's draws by turns with `answers`; the seed of a request counts them."""

    def __init__(self, answers: list[list[int]], fault: object = None) -> None:
        self.answers, self.fault = answers, fault
        self.asked: list[Generate] = []

    async def ask(self, msg: Generate, timeout_s: float) -> Generated | Refused:
        self.asked.append(msg)
        if isinstance(self.fault, Exception):
            raise self.fault
        if isinstance(self.fault, Refused):
            return self.fault
        ids = self.answers[(msg.seed or 0) % len(self.answers)]
        return Generated(output_ids=ids, logprobs=[0.0] * len(ids), spans=[], finish="stop", cached_tokens=0)


def steps(number: int, seed: int = 0) -> list[Any]:
    rng = random.Random(seed)
    return [payload(rng, Version(lineage=0, step=0)) for _ in range(number)]


def refs(drawing: Drawing) -> list[Ref]:
    return [cast("Ref", drawing)]


def test_the_first_prompts_stay_over_a_restart(tmp_path: Path) -> None:
    probe, first = Probe(tmp_path), steps(100)
    probe.keep([*first, *first])
    assert len(probe.prompts) == 100
    again = Probe(tmp_path)
    assert again.prompts == probe.prompts
    again.keep(steps(300, seed=1))
    assert len(again.prompts) == PROMPTS
    again.keep(steps(300, seed=2))
    assert Probe(tmp_path).prompts == again.prompts
    assert again.prompts[:100] == probe.prompts
    packed = [sample for micro in again.packed(512, 1) for sample in micro.samples]
    assert sum(sample.response_len for sample in packed) == sum(len(one.response_ids) for one in again.prompts)
    assert math.isclose(sum(sample.weight * sample.response_len for sample in packed), 1.0)
    (tmp_path / FILE).write_bytes(b"\x91\x01")
    with pytest.raises(StoreError):
        Probe(tmp_path)


async def test_eight_answers_to_each_of_32_prompts(tmp_path: Path) -> None:
    probe, drawing = Probe(tmp_path), Drawing([[1], [1], [1, 2], [3]])
    assert await probe.drawn(refs(drawing), "0.0") == {}
    probe.keep(steps(40))
    assert await probe.drawn(refs(drawing), "0.1") == {"probe_answer_entropy": pytest.approx(1.5 * math.log(2))}
    assert len(drawing.asked) == len({one.rid for one in drawing.asked}) == DRAWN_FROM * DRAWS
    for fault in (DeadlineExceeded("Generate"), Refused(reason="too long")):
        assert await probe.drawn(refs(Drawing([[1]], fault)), "0.2") == {}
