"""`apis check`: verdicts, what it refuses, what is missing."""

from __future__ import annotations

import json

import pytest

from actors.cluster import cli, doctor
from actors.cluster.apicheck import command, verdicts
from actors.cluster.apicheck.command import missing
from actors.cluster.bench.figures import Target
from apis.check.case import Case, NotSo, same, want
from apis.check.run import Outcome


def outcome(problem: str = "", ms: list[float] | None = None, *, light: bool = True) -> Outcome:
    made = Outcome(Case(function="play", light=light))
    made.hold(problem)
    made.ms = ms or []
    return made


def test_a_function_without_a_case_has_failed() -> None:
    (found,) = verdicts.judged("vlc", [], ["play"])
    assert (found.verdict.verdict, found.problem) == ("failed", "no case calls it")
    assert verdicts.complaints([found], []) == ["vlc play: no case calls it"]


def test_a_verdict_has_its_times() -> None:
    (found,) = verdicts.judged("vlc", [outcome(ms=[float(n) for n in range(1, 101)])], ["play"])
    assert (found.verdict.verdict, found.verdict.p50_ms, found.verdict.p95_ms, found.calls) == ("ok", 50, 95, 100)
    assert verdicts.complaints([found], []) == []


def test_slow_calls_are_complained_of_unless_they_start_or_export() -> None:
    for light in (True, False):
        found = verdicts.judged("vlc", [outcome(ms=[151.0], light=light)], ["play"])
        assert bool(verdicts.complaints(found, [])) == light
        assert found[0].verdict.verdict == "ok"


def test_a_failure_keeps_its_first_problem_and_an_absent_application_is_none() -> None:
    made = outcome("first")
    made.hold("second")
    assert verdicts.judged("vlc", [made], ["play"])[0].problem == "first"
    absent = verdicts.without("vlc", ["play", "pause"], "unavailable", "missing: vlc-bin")
    assert [one.verdict.verdict for one in absent] == ["unavailable"] * 2
    assert verdicts.complaints(absent, []) == []
    dear = Target(name="a call", measured=30.0, bound=50.0, unit="times", at_least=True)
    assert verdicts.complaints([], [dear]) == ["a call: 30.0, 50 is the least"]


def test_what_is_not_as_wanted_says_what_was_found() -> None:
    want(true=True, found="")
    same(1, 1, "one")
    with pytest.raises(NotSo, match="one: 2, not 1"):
        same(2, 1, "one")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--app", "vcl"], "did you mean vlc?"),
        (["--app", "terminal"], "no application with functions"),
        (["--app", "vlc", "--function", "get_playlists"], "did you mean get_playlist?"),
        (["--repeats", "-1"], "counts from 0"),
    ],
)
def test_bad_input_is_one_line(args: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["apis", "check", *args]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "absent", lambda wanted: wanted[:1])
    assert missing("vlc").startswith("missing: vlc-bin: make setup")
    assert missing("vlc").endswith("apt-get install --no-install-recommends vlc-bin)")


def test_absent_applications_are_unavailable_and_no_failure(
    state_dir: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "missing", lambda app: f"{app} is not here")
    assert cli.main(["apis", "check", "--app", "vlc", "--json", "--state-dir", state_dir]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found) == 12
    assert found[0] == {
        "app": "vlc", "function": "get_playlist", "verdict": "unavailable", "p50_ms": None, "p95_ms": None,
    }  # fmt: skip
