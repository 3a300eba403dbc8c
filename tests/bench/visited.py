"""`make bench NAME=visited`: how sure weights are at states that a policy came to, kept fixed while weights change.

A batch's entropy falls where a policy grows surer, and where it meets easier states: a round that solves more has fewer
lost ones. Here the states are those of closed evaluation rounds of a run, with the answers that were given there, and
only the weights change. transformers computes the logits.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import torch
from transformers import AutoModelForCausalLM

from actors.cluster import output
from actors.cluster.runs import ledgers, run_folder
from actors.replay.database import queries
from actors.replay.messages import StepPayload
from runtime.errors import ConfigError
from runtime.segments import read_blob
from tests.bench.report import Measured, show


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Whose states, and which weights."""

    run: str = "last"
    runs: str = "runs"
    rounds: str = "after_bc,final"
    weights: str = ""  # folders in the Hugging Face layout, with commas between; "" takes those that the run kept


class Sure(msgspec.Struct, frozen=True, kw_only=True):
    """One set of weights at the states of one round."""

    round: str
    weights: str
    states: int
    tokens: int
    entropy: float  # nats per token, mean over the tokens of the answers that were given
    surprisal: float  # nats per token of these answers


class VisitedResult(Measured, frozen=True, kw_only=True):
    """All rounds and weights."""

    run: str
    sure: list[Sure]


def states(run: Path, name: str) -> list[StepPayload]:
    """The steps of round `name` that have an answer. Raises ConfigError where the run has no such round."""
    with ledgers.opened(run) as db:
        found = {row["name"]: row["id"] for row in queries.rounds(db)}
        if name not in found:
            raise ConfigError(f"{run.name} has no round {name}; it has {', '.join(found)}")
        tokens = [row["token"] for row in queries.episodes(db) if row["whereto"] == name and row["stored"]]
        refs = [ref.blob for token in tokens for ref in queries.steps_of(db, token)]
    read = [msgspec.msgpack.decode(read_blob(run / "segments", ref), type=StepPayload) for ref in refs]
    return [step for step in read if step.response_ids]


def sure(folder: Path, name: str, steps: list[StepPayload]) -> Sure:
    """The weights in `folder` at `steps`, teacher-forced on the answers."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    entropy, surprisal, tokens = 0.0, 0.0, 0
    with torch.inference_mode():
        for step in steps:
            answer = torch.tensor(step.response_ids)
            logits = model(torch.tensor([step.prompt_ids + step.response_ids])).logits[0, -len(answer) - 1 : -1]
            logs = logits.log_softmax(-1)
            entropy -= float((logs.exp() * logs).sum())
            surprisal -= float(logs.gather(1, answer[:, None]).sum())
            tokens += len(answer)
    return Sure(
        round=name,
        weights="/".join(folder.parts[-3:]),
        states=len(steps),
        tokens=tokens,
        entropy=entropy / tokens,
        surprisal=surprisal / tokens,
    )


def run(options: Options) -> int:
    """Print the JSON. Raises ConfigError."""
    torch.set_num_threads(1)  # the model is small
    load, folder = os.getloadavg()[0], run_folder.find(Path(options.runs), options.run)
    kept = sorted((folder / "kept").glob("*.*"), key=lambda one: int(one.name.partition(".")[2]))
    weights = [Path(one) for one in options.weights.split(",")] if options.weights else kept
    found = []
    for name in options.rounds.split(","):
        steps = states(folder, name)
        for one in weights:
            found.append(sure(one, name, steps))
            output.line(f"{name} {found[-1].weights}: {found[-1].entropy:.3f} nats", to=sys.stderr)
    return show(VisitedResult(load_at_start=load, targets=[], run=folder.name, sure=found))
