"""`apis check`: verdicts, what it refuses, what is missing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from actors.cluster import cli
from actors.cluster.checks import functions as command
from actors.cluster.checks.functions import complaints, judged, missing, without
from actors.cluster.runs import doctor
from apis.apps.check.case import Case, NotSo, Step, Table
from apis.apps.check.run import CaseOutcome, run
from apis.apps.check.steps import Steps


def outcome(problem: str = "", ms: list[float] | None = None, *, light: bool = True) -> CaseOutcome:
    made = CaseOutcome(Case(function="play", light=light))
    made.hold(problem)
    made.ms = ms or []
    return made


def test_each_function_has_one_verdict_and_a_slow_one_is_complained_of() -> None:
    (absent,) = judged("vlc", [], ["play"])
    assert (absent.verdict, complaints([absent])) == ("failed", ["vlc play: no case calls it"])
    (timed,) = judged("vlc", [outcome(ms=[float(n) for n in range(1, 101)])], ["play"])
    assert (timed.verdict, timed.p50_ms, timed.p95_ms, timed.calls, complaints([timed])) == ("ok", 50, 95, 100, [])
    for light in (True, False):
        slow = judged("vlc", [outcome(ms=[151.0], light=light)], ["play"])
        assert (slow[0].verdict, bool(complaints(slow))) == ("ok", light)
        assert complaints(slow, timed=False) == []
    made = outcome("first", ms=[8000.0])
    made.hold("second")
    failed = judged("vlc", [made], ["play"])
    assert complaints(failed) == complaints(failed, timed=False) == ["vlc play: first"]
    assert complaints(without("vlc", ["play"], "unavailable", "missing: vlc-bin")) == []


class Mortal:
    """A desk whose application ends at the call of one function, and forgets with that what the others did."""

    home = "/home/user"

    def __init__(self, fatal: str, *, at: int) -> None:
        self._fatal, self._left = fatal, at
        self._alive = True
        self.done: list[str] = []

    async def tool(self, name: str, **arguments: Any) -> str:
        if arguments:
            return "refused: no argument nothing"
        self._left -= name == self._fatal
        if self._left <= 0:
            self._alive = False
        if not self._alive:
            return "refused: it is not running"
        self.done.append(name)
        return "done"

    async def call(self, method: str, **arguments: Any) -> Any:
        raise NotSo(f"{method}: {arguments}")

    async def contents(self, path: str) -> bytes:
        return " ".join(self.done).encode()

    async def ended(self) -> bool:
        return not self._alive

    async def again(self) -> None:
        self._alive, self._left = True, 1000
        self.done = []


@pytest.mark.parametrize("at", [1, 3])
async def test_an_application_that_ends_is_one_function_s_failure(at: int) -> None:
    names = ("play", "pause", "stop")
    cases = [Case(function=name, says="done", saved=[Step(has=[name])]) for name in names]
    table = Table(app="a", owner="A", cases=cases, saves="done")
    outcomes = await run(table, Mortal("pause", at=at), 4, lambda _: None)
    assert [(each.case.function, each.problem.partition(":")[0]) for each in outcomes] == [
        ("play", ""), ("pause", "the application ended"), ("stop", ""),
    ]  # fmt: skip
    assert [len(each.ms) for each in outcomes] == [5, at, 5]


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        (Step(file="f", equals="play"), ""),
        (Step(file="f", matches="^(p)", keep="first"), ""),
        (Step(file="f", has=["{first}ay"]), "ay"),
        (Step(file="f", lacks=["pl"]), "'pl'"),
        (Step(file="f", equals="stop"), "play"),
        (Step(file="f", xpath="//a"), "no archive"),
        (Step(file="f", same="g", equals=True), ""),
        (Step(file="f", kind="pages"), "Error"),
        (Step(file="f", kind="picture"), "Error"),
        (Step(tool="play", given={"nothing": 1}), "no argument nothing"),
        (Step(tool="play", given={"nothing": 1}, allow="no argument"), ""),
    ],
)
async def test_a_step_says_what_is_not_as_wanted(step: Step, problem: str) -> None:
    desk = Mortal("", at=1)
    await desk.tool("play")
    steps = Steps(Table(app="a", owner="A", cases=[]), desk)
    if not problem:
        await steps.run([step])
        return
    with pytest.raises(NotSo, match=problem):
        await steps.run([step])


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "absent", lambda wanted: wanted[:1])
    assert missing("vlc").startswith("missing: vlc-bin: make setup")
    assert missing("vlc").endswith("apt-get install --no-install-recommends vlc-bin)")


def test_absent_applications_are_unavailable_and_no_failure(
    state_dir: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "missing", lambda app: f"{app} is not here")
    assert (
        cli.main(["apis", "check", "--app", "vlc", "--json", "--set", f"desktops.provider.state_dir={state_dir}"]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert len(found) == 12
    assert [found[0][name] for name in ("app", "function", "verdict", "p95_ms", "problem")] == [
        "vlc", "get_playlist", "unavailable", None, "vlc is not here",
    ]  # fmt: skip
