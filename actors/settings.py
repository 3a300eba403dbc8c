"""Settings that several actors read.

Invariant: a setting of several actors is declared once, and keeps its name in each of them.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from runtime.errors import ConfigError
from runtime.settings import Section, key, tuning

COLDEST = 1e-6  # SGLang and the embedded engine draw greedily below this temperature
NEW_TOKENS_MOST = 1 << 17  # a plan knows the model and its narrower bound


class SamplingConfig(Section, frozen=True, kw_only=True):
    """The deploy file's `sampling`: how answers are drawn."""

    AT: ClassVar[str] = "sampling"

    temperature: Annotated[float, key("Sets the temperature of RL's answers.", ge=COLDEST)] = 1.0
    eval_temperature: Annotated[float, key("Sets the temperature of evaluation rounds. 0 is greedy.", ge=0)] = 1.0
    max_new_tokens: Annotated[int, key("Limits one answer, in tokens.", ge=1, le=NEW_TOKENS_MOST)] = 96


class DemosConfig(Section, frozen=True, kw_only=True):
    """Where the cold start's demonstrations come from."""

    AT: ClassVar[str] = "demos"

    count: Annotated[int, key("Sets the successful demonstrations that behaviour cloning waits for.", ge=0)] = 64
    attempts_per_demo: Annotated[
        float, tuning("Stops recording after count times this many attempts, whatever it got.", gt=0)
    ] = 4.0
    source: Annotated[str, key("Names recorded demonstrations to begin from: a run or a .parquet file.")] = ""
    attempts_per_task: Annotated[
        int, tuning("Tries every task this often before its stratum is known. 0 keeps no strata.", ge=0)
    ] = 0
    mixed_attempts: Annotated[
        int, tuning("Tries an unsolved task this often again, each step by a random demonstrator.", ge=0)
    ] = 2
    resample_rounds: Annotated[
        int, tuning("Lets the cloned policy try sometimes-solved tasks, then clones again, this many times.", ge=0)
    ] = 0
    resample_attempts: Annotated[int, tuning("Sets the policy's attempts per task and round of resampling.", ge=0)] = 2
    resample_bc_steps: Annotated[
        int, tuning("Sets the steps of cloning after resampling, at pulses' rate. 0 takes entropulse.bc_steps.", ge=0)
    ] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.resample_rounds and not (self.attempts_per_task and self.resample_attempts):
            raise ConfigError(
                "demos.resample_rounds goes with demos.attempts_per_task and demos.resample_attempts of at least 1"
            )

    @property
    def attempts(self) -> int:
        """How many attempts a recording has at the most."""
        return int(self.count * self.attempts_per_demo)
