"""`make bench NAME=in_context`: what a model does on families that it never learned, by what its prompt says of them.

Teacher-forced on a recording: at states of recorded demonstrations the model answers greedily with one call, which
counts where it is the demonstration's own, letter by letter. No desktop is needed. Arms: `none` is the prompt as it is;
`list` puts functions and keys into the system message; `shot` puts a whole demonstration of the same family, of another
task, before the state; `other` one of another family, which is `shot`'s control. transformers computes the answers.
"""

from __future__ import annotations

import os
import random
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as parquet
import torch
from transformers import AutoModelForCausalLM
from transformers.cache_utils import DynamicCache

from actors.cluster import output
from actors.cluster.config import models
from actors.replay.statistics import wilson
from policy.tokenizer import Exchange, Tokenizer
from tests.bench.report import Measured, show

ARMS = ("none", "list", "shot", "other")
LIST = """You work on a desktop for the user. Answer with one call and nothing else:
Agent.click(coordinates=e7), also with num_clicks=2 or button_type='right'
Agent.type(text='words'), also with coordinates=e7, overwrite=True, enter=True
Agent.hotkey(keys=['ctrl', 's'])
Agent.switch_window(window_id=w2)
Agent.quote(content='what was read')
Agent.wait()
Agent.exit(success=True)
e7 is an element and w2 a window of the list. Keys: ctrl a all, ctrl s save, ctrl x cut, ctrl v paste, ctrl r replace,
ctrl home and ctrl end the text's ends, ctrl shift n new folder, f2 rename, delete. In a terminal: type a command with
enter=True. Call exit once the task is done."""


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked, of which model."""

    model: str = "models/qwen-coder"
    recording: str = "deploy/demos/local.parquet"
    arms: str = ",".join(ARMS)
    states: int = 12  # of each family, each of a demonstration of its own
    seed: int = 0


class Matched(msgspec.Struct, frozen=True, kw_only=True):
    """Answers that are the demonstration's, of one arm and family; "all" is all families together."""

    arm: str
    family: str
    right: int
    states: int
    low: float  # 95 %, Wilson
    high: float


class ContextResult(Measured, frozen=True, kw_only=True):
    """All arms and families."""

    model: str
    prompt_tokens: int  # read in all
    matched: list[Matched]


Demo = list[dict[str, Any]]


def recorded(path: Path) -> dict[str, list[Demo]]:
    """Whole demonstrations by family, each a list of steps."""
    rows = parquet.read_table(path, columns=["demo", "step", "task", "observation", "response"]).to_pylist()
    demos = defaultdict[int, Demo](list)
    for row in rows:
        demos[row["demo"]].append(row)
    families = defaultdict[str, list[Demo]](list)
    for demo in demos.values():
        families[demo[0]["task"].split("/")[0]].append(sorted(demo, key=lambda row: int(row["step"])))
    return dict(families)


def call(answer: str) -> str:
    """The last line of an answer, which is its call."""
    return answer.strip().rpartition("\n")[2].strip()


class Greedy:
    """What one model answers greedily; what a prompt has in common with the one before is computed once."""

    def __init__(self, folder: Path) -> None:
        self.text = Tokenizer.load(folder)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        self.read = 0  # prompt tokens
        self._kept: tuple[list[int], DynamicCache] = ([], DynamicCache())

    def answers(self, meant: str, user: str, system: str | None, earlier: Sequence[Exchange]) -> bool:
        """Whether it answers `meant` and ends its turn: each token of it is the likeliest after those before it."""
        prompt, answer = self.text.prompt_ids(user, system, earlier), self.text.response_ids(meant)
        ahead, cache = self._kept
        common = next((n for n, pair in enumerate(zip(ahead, prompt, strict=False)) if pair[0] != pair[1]), len(ahead))
        common = min(common, len(prompt) - 1)
        if common < len(ahead):
            cache.crop(common - len(ahead))  # so many of its last tokens leave
        new = prompt[common:] + answer[:-1]
        with torch.inference_mode():
            out = self.model(torch.tensor([new]), past_key_values=cache, use_cache=True, logits_to_keep=len(answer))
        self._kept = prompt + answer[:-1], cache
        self.read += len(new)
        return bool(out.logits[0].argmax(-1).tolist() == answer)


def run(wanted: Options) -> int:
    """Ask at every state, arm by arm, and print."""
    load, families = os.getloadavg()[0], recorded(Path(wanted.recording))
    model, rng = Greedy(models.locate(wanted.model)), random.Random(wanted.seed)
    names = sorted(families)
    shots = {family: rng.choice(families[family]) for family in names}
    asked = {}
    for family in names:
        others = [demo for demo in families[family] if demo[0]["task"] != shots[family][0]["task"]]
        asked[family] = [rng.choice(demo) for demo in rng.sample(others, wanted.states)]
    matched = []
    for arm in wanted.arms.split(","):
        whole = [0, 0]
        for number, family in enumerate(names):
            of = {"shot": family, "other": names[(number + 4) % len(names)]}.get(arm)
            earlier = [(step["observation"], call(step["response"])) for step in shots[of]] if of else []
            system = LIST if arm == "list" else None
            said = [
                model.answers(call(state["response"]), state["observation"], system, earlier) for state in asked[family]
            ]
            matched.append(counted(arm, family, sum(said), len(said)))
            whole = [whole[0] + sum(said), whole[1] + len(said)]
            output.line(f"{arm} {family}: {sum(said)} of {len(said)}", to=sys.stderr)
        matched.append(counted(arm, "all", *whole))
    return show(
        ContextResult(load_at_start=load, targets=[], model=wanted.model, prompt_tokens=model.read, matched=matched)
    )


def counted(arm: str, family: str, right: int, states: int) -> Matched:
    """With Wilson's interval."""
    low, high = wilson(right / states, states)
    return Matched(arm=arm, family=family, right=right, states=states, low=low, high=high)
