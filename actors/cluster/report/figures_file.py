"""What a report says of a run as one small file, to be shown beside other runs where the run itself is not.

Invariant: the file holds all that curves, rounds, gains and time are drawn from, and no episode. A file that is
damaged, or of a format that this build does not know, is refused in one line.
"""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path

import msgspec

from actors.cluster import paths as places
from actors.cluster.config.suggest import hint
from actors.cluster.report.gather import RunData
from actors.replay.messages import Phase
from runtime import disk
from runtime.errors import ConfigError

SUFFIX = ".figures.gz"
FORMAT = 1
DIGITS = 6  # of a step's figures: they are drawn, not computed with
MOST_BYTES = 64 << 20  # unpacked


class _File(msgspec.Struct, frozen=True, kw_only=True):
    format: int = msgspec.field(name="form")
    run: msgspec.Raw


def packed(run: RunData) -> bytes:
    """The file's content; the same for the same run."""
    steps = [msgspec.structs.replace(one, figures=_short(one.figures)) for one in run.steps]
    plain = msgspec.structs.replace(run, steps=steps, episodes=[], details={})
    content = msgspec.json.encode(_File(format=FORMAT, run=msgspec.Raw(msgspec.json.encode(plain))))
    return gzip.compress(content, mtime=0)


def _short(figures: dict[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.{DIGITS}g}") for name, value in figures.items()}


def locate(name: str) -> Path:
    """The file called `name`. Raises ConfigError with the nearest one in its folder."""
    path = Path(name)
    if not os.path.isfile(path):
        known = [str(path.with_name(one.name)) for one in sorted(path.parent.glob(f"*{SUFFIX}"))]
        raise ConfigError(f"{name}: no such file of a run's figures; {hint(name, known)}")
    return path


def read(path: Path) -> RunData:
    """The run whose figures `path` holds. Raises ConfigError."""
    try:
        with disk.opened(path) as packed, gzip.open(packed) as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise ConfigError(f"{path}: more than {MOST_BYTES >> 20} MiB unpacked, which no run's figures are")
        found = msgspec.json.decode(content, type=_File)
        if found.format != FORMAT:
            raise ConfigError(
                f"{path}: figures of format {found.format}, this build reads format {FORMAT}: write them again"
            )
        run = msgspec.json.decode(found.run, type=RunData)
        places.refuse_bad_name(run.name, f"{path} of a run named")
        return _with_phases(run)
    except (OSError, EOFError, zlib.error, msgspec.DecodeError) as error:
        raise ConfigError(f"{path}: no file of a run's figures: {error}") from None


def _with_phases(run: RunData) -> RunData:
    """`run`, its points with the phases of its steps: older builds told a success of 0 where no episode is played."""
    phases = {step.step: step.phase for step in run.steps}
    points = [
        msgspec.structs.replace(point, phase=phase, success=point.success if phase == Phase.RL else None)
        for point in run.figures.points
        for phase in (point.phase or phases.get(point.step, ""),)
    ]
    return msgspec.structs.replace(run, figures=msgspec.structs.replace(run.figures, points=points))
