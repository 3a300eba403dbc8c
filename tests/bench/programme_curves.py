"""Draws a stage of a programme: held-out success by RL steps, and what its probes said, a line for each arm.

    python -m tests.bench.programme_curves deploy/entropulse.yaml branch

writes deploy/pictures/entropulse-branch.png. A line is the mean over the seeds that an arm has. The base has a band,
from its lowest seed to its highest.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from actors.cluster import output
from actors.cluster.config.suggest import hint
from actors.cluster.report import drawing
from actors.cluster.report.pooled import closed
from actors.cluster.report.run_data import RunFigures
from runtime.errors import ConfigError
from tests.bench.programme import load
from tests.bench.programme_results import AFTER_PULSE, PROBES, ArmStage, Programme, ProgrammeRun, results

PICTURES = Path("deploy/pictures")
SIZE = (5.2, 3.4)  # inches of one panel
BASE, REPEAT = 2.4, 1.0  # widths of lines


def success(run: RunFigures) -> dict[int, float]:
    """RL steps before a round -> its held-out success."""
    rounds = [one for one in closed(run.by_rl_steps()) if not one.name.startswith(AFTER_PULSE)]
    return {one.step: fmean(float(episode.success) for episode in one.judged) for one in rounds}


def probes(run: RunFigures, name: str) -> dict[int, float]:
    """RL steps before the look -> what it said."""
    return {n: step.figures[name] for n, step in enumerate(run.steps) if name in step.figures}


def curves(plan: Programme, stage: ArmStage, found: Mapping[str, RunFigures]) -> dict[str, dict[str, drawing.Band]]:
    """Title of a panel -> arm -> its band over seeds. Panels and arms without a value are left out."""
    runs = {
        arm: [run for seed in stage.seeds if (run := found.get(ProgrammeRun(stage.name, arm, seed).name)) is not None]
        for arm in plan.arms
    }
    panels = {"Held-out success": {arm: [success(run) for run in of] for arm, of in runs.items()}}
    for name, title in PROBES.items():
        panels[title] = {arm: [probes(run, name) for run in of] for arm, of in runs.items()}
    bands = {
        title: {arm: band for arm, of in arms.items() if len((band := drawing.band(of)).steps) >= drawing.LEAST}
        for title, arms in panels.items()
    }
    return {title: arms for title, arms in bands.items() if arms}


def draw(plan: Programme, panels: Mapping[str, Mapping[str, drawing.Band]], title: str) -> bytes:
    """The PNG: panels next to each other."""
    plt = drawing.pyplot()
    figure, axes = plt.subplots(1, len(panels), figsize=(SIZE[0] * len(panels), SIZE[1]), squeeze=False)
    for place, (name, arms) in zip(axes[0], panels.items(), strict=True):
        place.set_prop_cycle(color=plt.get_cmap("tab20").colors)
        for arm, band in arms.items():
            _line(place, plan, arm, band)
        place.set_title(name, fontsize=9)
        place.set_xlabel("steps of RL", fontsize=9)
    axes[0][-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.02, 0.5), title="arm (seeds)", title_fontsize=7)
    return drawing.drawn(figure, "programme", title, "").png


def _line(axes: Any, plan: Programme, arm: str, band: drawing.Band) -> None:
    base, repeat = arm == plan.base, plan.arms[arm].seed_shift != 0
    width, style = (BASE if base else REPEAT), ("--" if repeat else "-")
    (drawn,) = axes.plot(
        band.steps, band.mean, style, linewidth=width, marker="o", markersize=3, label=f"{arm} ({band.seeds})"
    )
    if base:
        axes.fill_between(band.steps, band.low, band.high, alpha=0.15, color=drawn.get_color())


def main() -> int:
    """Draw a stage; 0, or 2 with a line on what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("stage")
    args = parser.parse_args()
    try:
        plan = load(args.file)
        stages = {stage.name: stage for stage in plan.stages}
        if args.stage not in stages:
            raise ConfigError(f"{args.file}: {args.stage}: no such stage; {hint(args.stage, stages)}")
        panels = curves(plan, stages[args.stage], results(args.file.parent / "results" / args.file.stem))
        if not panels:
            raise ConfigError(f"{args.file}: {args.stage} has no run with two rounds yet")
        path = PICTURES / f"{args.file.stem}-{args.stage}.png"
        path.write_bytes(draw(plan, panels, args.stage))
        output.news(f"drawn: {path}")
    except ConfigError as error:
        output.line(str(error), to=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
