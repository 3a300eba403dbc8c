"""`computerrl model check`: whether learner and engine load a folder and agree with transformers."""

from __future__ import annotations

import time
from pathlib import Path

from actors.cluster import output
from actors.cluster.config import models
from actors.cluster.runs import weights
from policy.architecture import ModelVerdict
from runtime.errors import ConfigError

QUIET_S = 2.0


def check(model: str, runs: Path, dtype: str, *, as_json: bool) -> int:
    """Print the verdict on `model`, a folder, a name or a run below `runs`; its exit status.

    Raises ConfigError where there is none.
    """
    folder = Path(weights.locate(model, runs, look=False).folder)
    began = time.monotonic()

    def tell(step: str) -> None:
        if not as_json and time.monotonic() - began > QUIET_S:
            output.news(f"{output.duration(time.monotonic() - began)}  {step}")

    try:
        folder = models.locate(str(folder))  # refuses what needs no torch to be refused
        from transformers.utils import logging

        from policy.model_check import compare

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        verdict = compare(folder, dtype, tell)
    except ConfigError as error:
        verdict = ModelVerdict(architecture="", why=str(error).removeprefix(f"{model}: "))
    if as_json:
        output.document(verdict)
    else:
        _say(model, dtype, verdict)
    return 1 if verdict.why else 0


def _say(model: str, dtype: str, verdict: ModelVerdict) -> None:
    if verdict.why:
        output.line(f"{model}: {verdict.why}")
        return
    output.prose(
        f"{model}: {verdict.architecture}, {dtype}: largest difference of a logit {verdict.max_logit_diff:.2g};"
        " generates; every tensor comes back"
    )
    for refused in verdict.chat:
        output.prose(f"its chat template refuses {refused}")
