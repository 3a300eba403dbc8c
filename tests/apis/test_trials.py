"""What of a task file's judging the live desktop is asked, and what a copy of its HOME."""

from __future__ import annotations

from typing import Any

import pytest

from apis.plans.action import Call
from apis.tasks.osworld import HOME
from apis.tasksets.judge import Judging, afterwards, asked_live
from tests.apis.task_files import Part, bring, loaded, of_command, of_file, ran, rule

GUEST = "/home/agent"
SAVE = ran(["python", "-c", "import pyautogui; pyautogui.hotkey('ctrl', 's')"])


def judging(*steps: Part, command: Any = "", outside: bool = True) -> Judging:
    asked = of_command(command) if command else of_file("a")
    judged = {"func": "check_include_exclude", "result": asked, "expected": rule(include=["x"])}
    return afterwards(loaded(evaluator={"postconfig": list(steps), **judged}), GUEST, outside=outside)


def commands(calls: tuple[Call, ...]) -> list[str]:
    return [" ".join(call.args["argv"]) if call.method == "run" else call.method for call in calls]


@pytest.mark.parametrize(
    "command", [["ls", f"{HOME}/Desktop", "|", "grep", "a"], "which spotify", "bash eval.sh", "cat a.ps", "git log"]
)
def test_what_lies_in_home_is_asked_of_a_copy(command: Any) -> None:
    found = judging(command=command)
    assert (found.live, len(found.trial), found.rewrites, found.asked) == ((), 1, False, [])
    assert found.trial[0].args["env"]["PYTHONNOUSERSITE"] == "1"


@pytest.mark.parametrize(
    ("command", "safe"),
    [(["python", "-c", "import json"], True), ("cd a; python3 -Bc 'import os'", True), ("python3 a/mine.py", False)],
)
def test_a_line_of_python_loads_no_module_that_the_policy_has_left(command: Any, safe: bool) -> None:
    env = judging(command=command).trial[0].args["env"]
    assert (env.get("PYTHONSAFEPATH"), env["GIT_CONFIG_KEY_0"]) == ("1" if safe else None, "format.pretty")


@pytest.mark.parametrize(
    "command",
    ["ps aux", "output=$(pgrep soffice); echo $output", "xprop -root", "cat /proc/1/stat"],
)
def test_what_runs_and_shows_is_asked_of_the_live_desktop_and_a_verdict_says_so(command: str) -> None:
    found = judging(command=command)
    assert (len(found.live), found.trial) == (1, ())
    assert "judge: live desktop for" in asked_live("it holds", found.asked)
    assert asked_live("it holds", []) == "it holds"


def test_what_comes_before_a_key_goes_to_the_desktop_and_what_comes_after_it_to_the_copy() -> None:
    found = judging(ran("ls > a"), SAVE, ran(["tar", "cf", "b.tar", "b"]), ran("ls", stdout="out"), command="ls")
    assert commands(found.live)[0] == "/bin/bash -c ls > a"
    assert len(found.live) == len(commands(found.live)) > 1
    assert commands(found.trial) == ["tar cf b.tar b", "ls", "ls"]
    assert found.rewrites


@pytest.mark.parametrize(("script", "live"), [("ls ~/Desktop", False), ("ps aux | grep office", True)])
def test_of_a_script_that_the_task_brings_along_its_text_decides(script: str, live: bool) -> None:
    found = judging(bring({"eval.sh": script.encode()}), ran("chmod +x eval.sh"), command="bash eval.sh")
    calls = found.live if live else found.trial
    assert commands(calls) == ["write_file", "chmod +x eval.sh", "bash eval.sh"]
    assert (found.trial if live else found.live) == ()
    assert calls[-1].args["env"]["PYTHONSAFEPATH"] == "1"


def test_an_office_of_the_trial_has_a_profile_of_its_own() -> None:
    found = judging(ran(["libreoffice", "--convert-to", "csv", f"{HOME}/a.xlsx"]))
    assert commands(found.trial) == [
        f"soffice -env:UserInstallation=file:///tmp/office --convert-to csv {GUEST}/a.xlsx"
    ]


def test_where_nothing_can_be_tried_from_outside_all_goes_to_the_desktop() -> None:
    found = judging(ran("ls > a"), command="ls", outside=False)
    assert len(found.live) == 2
    assert found.trial == ()
    assert found.asked == ['"ls"']
    assert all(call.args["env"]["PATH"].startswith("/usr/local/bin:") for call in found.live)
