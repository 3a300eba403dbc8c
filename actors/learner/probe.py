"""The fixed probe: prompts of the first batches of RL, and what later weights make of them.

A step's own entropy is of tokens that differ from run to run. These prompts, none of them a demonstration's, stay the
same over a run and all that forks from it. The first look has those of one batch alone.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from actors.replay.messages import Sampling, StepPayload
from actors.sampler.messages import Generate, Generated
from policy.packing import Aggregation, MicroBatch, pack_cross_entropy
from runtime.disk import store_error
from runtime.errors import ActorGone, DeadlineExceeded, MailboxFull, StoreError
from runtime.messaging.message import Value
from runtime.messaging.refs import Ref

FILE = "probe"  # in a run's folder
PROMPTS, DRAWN_FROM, DRAWS = 256, 32, 8  # kept; of these answers are drawn for; answers for each
MARGIN = 32  # tokens that an answer may be longer than the one that was kept
ANSWER_S = 60.0


class ProbePrompt(Value):
    """A prompt that is kept, and what was answered to it."""

    prompt_ids: list[int]
    response_ids: list[int]


class Probe:
    """The prompts of a run, in its folder. Raises StoreError where they can't be read or written."""

    def __init__(self, run_dir: Path) -> None:
        self._file = run_dir / FILE
        try:
            kept = self._file.read_bytes() if self._file.is_file() else b"\x90"
            self.prompts = msgspec.msgpack.decode(kept, type=list[ProbePrompt])
        except OSError as error:
            raise store_error(f"can't read {self._file}", error) from error
        except msgspec.DecodeError as error:
            raise StoreError(f"{self._file} holds no prompts: {error}") from None

    def keep(self, steps: Iterable[StepPayload]) -> None:
        """Add the steps' prompts that are not among them, until there are enough."""
        known = {tuple(one.prompt_ids) for one in self.prompts}
        fresh = {tuple(one.prompt_ids): one for one in steps if one.response_ids}
        more = [
            ProbePrompt(prompt_ids=one.prompt_ids, response_ids=one.response_ids)
            for prompt, one in fresh.items()
            if prompt not in known
        ]
        if not (more := more[: PROMPTS - len(self.prompts)]):
            return
        self.prompts += more
        part = self._file.with_suffix(".part")
        try:
            part.write_bytes(msgspec.msgpack.encode(self.prompts))
            part.replace(self._file)
        except OSError as error:
            raise store_error(f"can't write {self._file}", error) from error

    def packed(self, token_budget: int, ranks: int) -> list[MicroBatch]:
        """The kept answers after their prompts, as a rank reads them."""
        whole = [(one.prompt_ids + one.response_ids, one) for one in self.prompts]
        spans = [(ids, [(len(one.prompt_ids), len(ids))]) for ids, one in whole]
        return pack_cross_entropy(spans, token_budget, Aggregation.TOKEN_MEAN, 1.0, ranks)

    async def drawn(self, samplers: Sequence[Ref], name: str) -> dict[str, float]:
        """How much answers of the samplers' weights differ: the mean entropy of eight answers to a prompt, in nats.

        {} where a sampler does not answer. `name` is what these draws are called, once.
        """
        of_each = [one for one in self.prompts[:DRAWN_FROM] for _ in range(DRAWS)]
        asked = [
            samplers[n % len(samplers)].ask(
                Generate(
                    rid=f"probe-{name}-{n}",
                    prompt_ids=one.prompt_ids,
                    sampling=Sampling(temperature=1.0, max_new_tokens=len(one.response_ids) + MARGIN),
                    seed=n,
                ),
                timeout_s=ANSWER_S,
            )
            for n, one in enumerate(of_each)
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        ids = list[Hashable]()
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, (ActorGone, DeadlineExceeded, MailboxFull)):
                raise answer
            if not isinstance(answer, Generated):
                return {}
            ids.append(tuple(answer.output_ids))
        groups = [ids[n : n + DRAWS] for n in range(0, len(ids), DRAWS)]
        return {"probe_answer_entropy": fmean(map(entropy_of, groups))} if groups else {}


def entropy_of(answers: Sequence[Hashable]) -> float:
    """Of the answers' shares, in nats: 0 where all are equal."""
    counts = Counter(answers).values()
    return math.log(len(answers)) - math.fsum(n * math.log(n) for n in counts) / len(answers)
