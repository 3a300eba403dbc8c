"""Which wording an instance was made of, and what a report says of those that are missed."""

from __future__ import annotations

import pytest

from actors.cluster.report import instructions as wordings
from actors.cluster.runs.evaluation_rounds import EvaluationRound
from actors.replay.statistics.success_rates import RoundEpisode, summarise
from apis.tasks.registry import FAMILIES, TRAIN, digest

MOVED = "The file {file} belongs in {folder}, move it"


def played(name: str, solved: dict[str, bool | None], *, closed: bool = True, task_set: str = "") -> EvaluationRound:
    """A round of these instances; None is one that was lost to a fault."""
    episodes = [RoundEpisode(task=task, success=bool(won), fault=won is None) for task, won in solved.items()]
    return EvaluationRound(
        name=name,
        version="0.1",
        step=1,
        temperature=1.0,
        max_new_tokens=64,
        task_set=task_set or digest(solved),
        closed=closed,
        summary=summarise(episodes),
        episodes=episodes,
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_every_instance_has_a_wording_of_its_split(family: str) -> None:
    for split in ("held-out", *([TRAIN] if FAMILIES[family].trained else [])):
        known = {text for kind in FAMILIES[family].templates.values() for text in kind.get(split, ())}
        assert {wordings.wording_of(f"{family}/{split}/{n}") for n in range(30)} <= known


def test_what_is_no_instance_of_a_family_has_none() -> None:
    strange = ("x/held-out/1", "vlc", "", "files_move/held-out/x", "files_move/held-out/²", "files_move/bogus/1")
    assert {wordings.wording_of(task) for task in (*strange, "slides_same/train/1")} == {""}


def test_nothing_is_said_of_instances_that_ask_for_something_else_today() -> None:
    then = played("final", {"files_move/held-out/1": True}, task_set="0123456789abcdef")
    assert wordings.alike([then]) == []
    assert wordings.told([then, played("x", {"files_move/bogus/1": True}, task_set="x")]) == ""


def test_rounds_alike_stand_side_by_side_what_is_missed_most_first() -> None:
    moves = [f"files_move/held-out/{n}" for n in range(40)]
    belongs = [task for task in moves if wordings.wording_of(task) == MOVED][:4]
    others = [task for task in moves if wordings.wording_of(task) not in (MOVED, "")]
    before = played("after_bc", dict.fromkeys([*belongs, *others], False))
    after = played(
        "final", {**dict.fromkeys(others, True), **dict(zip(belongs, (True, False, False, None), strict=True))}
    )
    apart = [played("other", {belongs[0]: True}), played("open", {belongs[0]: True}, closed=False)]
    beside = wordings.alike([before, apart[0], after, apart[1]])
    assert [found.name for found in beside] == ["after_bc", "final"]
    first, *rest = wordings.by_wording(beside)
    assert (first.family, first.wording, first.rounds, first.missed) == ("files_move", MOVED, [(0, 4), (1, 3)], 2)
    assert sum(row.rounds[1][1] for row in rest) == len(others)
    assert {row.missed for row in rest} == {0}
    assert wordings.told([before, after]) == (
        f'{len(rest)} of {len(rest) + 1} always solved in final; missed most: "{MOVED}" 1 of 3'
    )
    assert wordings.told([]) == wordings.told(apart[1:]) == ""
