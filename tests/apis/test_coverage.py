"""Verdicts on task files: what can be judged, who judges it, and what no policy can solve without a network."""

from __future__ import annotations

import json
from typing import Any

import pytest

from actors.cluster.config import tasksets
from apis.plans.setup import setup
from apis.tasks.metrics.metric import Declared, Score
from apis.tasks.osworld import HOME
from apis.tasks.verify.verify import FileView
from apis.tasksets import judge, states
from apis.tasksets.coverage import Covered, covered
from apis.tasksets.steps import carried
from tests.apis.standins import drawn
from tests.apis.task_files import bring, loaded, of_command, of_file, ran, rule
from tests.apis.twins import file

RULE = rule(expected="a")
SAID = {"func": "exact_match", "result": of_command("date"), "expected": RULE}
KINDS = ("mp4", "mpeg", "webm", "ogg", "quicktime")
TABS = [{"type": "chrome_open_tabs", "parameters": {"urls_to_open": ["https://x.org/a"]}}]


def verdict(instruction: str = "Do it", *, published: bool = False, present: bool = True, **changes: Any) -> Covered:
    task = loaded(instruction=instruction, **{"evaluator": SAID, **changes})
    return covered(task, lambda *_: True, lambda _: present, published=published)


def judged_by(metric: str, rules: Any = None, *, published: bool = False, **more: Any) -> Covered:
    asked = {"func": metric, "result": of_file("a"), "expected": {"type": "rule", "rules": rules}, **more}
    return verdict(published=published, evaluator=asked)


def lacks(found: Covered) -> list[str]:
    return [str(need) for need in found.needs]


@pytest.mark.parametrize(
    ("metric", "rules", "lacking"),
    [
        ("is_expected_bookmarks", {"type": "no_such"}, "rule type no_such"),
        ("check_json", {"expect": [{"key": ["a"], "method": "no_such", "ref": 1}]}, "method no_such"),
        ("check_thunderbird_prefs", {"expect": {"a": {"method": "re.Q", "ref": "b"}}}, "method re.Q"),
        ("is_shortcut_on_desktop", {"type": "url", "url": "b"}, "rule type url"),
        ("check_csv", {"expect": [{"a": {"method": "ge.le", "ref": 1}}]}, "method ge.le"),
    ],
)
def test_a_rule_that_a_metric_does_not_know_is_what_the_file_lacks(metric: str, rules: Any, lacking: str) -> None:
    found = judged_by(metric, rules, published=True)
    assert (found.verdict, lacks(found)) == ("unsupported", [f"metric {metric}: {lacking}"])


def test_methods_with_flags_and_bounds_are_known() -> None:
    for method in ("re.I", "re.I|S", "re.I.M", "range.te", "approx:0.1", "eq"):
        assert judged_by("check_json", {"expect": [{"key": ["a"], "method": method, "ref": "1"}]}).verdict == "runnable"


def test_an_option_whose_name_begins_with_a_line_says_nothing() -> None:
    metric = Declared("tried", lambda *_: Score(1, "yes"), lacks=lambda options: next(iter(options), ""))
    assert (metric.lacking({"_note": "x"}), metric.lacking({"note": "x"})) == ("", "note")


def test_a_proxy_is_a_note_and_pip_from_a_file_no_network() -> None:
    found = verdict(proxy=True)
    assert (found.verdict, len(found.notes)) == ("runnable", 1)
    for words, kind in (
        ("pip install pygame", "network"),
        ("pip install /home/user/a-1.whl", "application"),
        ("pip install --user a-1.whl", "application"),
    ):
        config = [ran(words.split())]
        assert {need.kind for need in verdict(config=config, present=False).needs} == {kind, "application"}, words


@pytest.mark.parametrize(
    ("instruction", "solvable"),
    [
        ("Save what https://x.org/a says", False),
        ("Measure the line through speedtest.net", False),
        ("Install Spotify on my system", False),
        ("Please clone the repository of instructor", False),
        ("Install the extension that lies in the Desktop directory", True),
        ('Install the local file "/home/user/test.vsix"', True),
        ("Open http://localhost:8000/a in the browser", True),
        ("Forward mail from a@outlook.com", True),
        ("Is it installed?", True),
    ],
)
def test_what_no_policy_can_solve_without_a_network_is_said(instruction: str, solvable: bool) -> None:
    found = verdict(instruction)
    assert (found.verdict, found.solvable, bool(found.offline)) == ("runnable", solvable, not solvable)


def test_a_far_page_at_the_start_is_a_tab_whose_address_counts() -> None:
    def shown(func: str, kind: str, rules: Any) -> Covered:
        expected = {"type": "rule", "rules": rules}
        return verdict(config=TABS, evaluator={"func": func, "result": {"type": kind}, "expected": expected})

    tabs = shown("is_expected_tabs", "open_tabs_info", {"type": "url", "urls": ["https://x.org/a"]})
    assert (tabs.verdict, tabs.solvable) == ("runnable", True)
    active = shown("is_expected_active_tab", "active_tab_info", {"type": "url", "url": "https://x.org/b"})
    assert (active.verdict, active.offline) == ("runnable", "it starts with https://x.org/a")
    content = shown("check_direct_json_object", "active_tab_html_parse", {"expected": {}})
    assert content.verdict == "needs_network"
    cookies = shown("is_cookie_deleted", "cookie_data", {"type": "domains", "domains": ["x.org"]})
    assert cookies.verdict == "needs_network"  # none is there to be deleted


def test_the_published_package_judges_what_it_alone_knows_and_says_what_else_passes() -> None:
    gold = {"type": "cloud_file", "path": "https://x.org/a.docx", "dest": "a.docx"}
    for published, expected in ((True, "runnable"), (False, "needs_judge")):
        found = judged_by("compare_init_lines", expected=gold, published=published)
        assert (found.verdict, found.judge) == (expected, "published")
    assert found.notes == [
        "compare_init_lines: refused here though the published one accepts it: a document whose words are gone"
    ]
    refused = judged_by("compare_image_text", {"type": "text", "text": "a"}, published=True)
    assert refused.verdict == "unsupported"
    assert "easyocr" in lacks(refused)[0]


def test_settings_and_a_sound_server_are_here_where_their_programs_are() -> None:
    def got(command: str) -> dict[str, Any]:
        return {"func": "exact_match", "result": of_command(command), "expected": RULE}

    lock = "gsettings get org.gnome.desktop.screensaver lock-enabled"
    assert lacks(verdict(evaluator=got(lock), present=False)) == [
        "application gsettings", "application org.gnome.desktop.screensaver",
    ]  # fmt: skip
    assert verdict(evaluator=got(lock)).verdict == "runnable"
    assert verdict(evaluator=got("timedatectl status")).verdict == "needs_app"
    sounds = setup(loaded(evaluator=got("pactl list sinks")), "/home/agent")
    assert [call.args["argv"][0] for call in sounds[:2]] == ["pulseaudio", "pactl"]
    assert tasksets.programs()("org.no.such.settings") is False


def test_a_terminals_text_and_sizes_of_windows_are_getters() -> None:
    for getter in (
        {"type": "vm_terminal_output"},
        {"type": "vm_screen_size"},
        {"type": "vm_window_size", "app_class_name": "vlc"},
    ):
        assert verdict(evaluator={"func": "exact_match", "result": getter, "expected": RULE}).verdict == "runnable"
    assert verdict(evaluator={"func": "exact_match", "result": {"type": "vm_window_size"}, "expected": RULE}).needs


def test_what_the_browser_and_the_desktop_say_is_read_as_published() -> None:
    said = json.dumps({"tabs": [["https://www.a.org/", "A"], ["chrome://settings/", "S"]], "active": 0})
    assert states.tabs(said)[1] == {"url": "chrome://settings/", "title": "S"}
    assert states.address(said, "https://www.") == "https://www.a.org"
    for wrong in (None, "", "{", '{"tabs": [], "active": 0}', '{"tabs": [["a", "b"]], "active": 7}'):
        assert (states.front(wrong), states.address(wrong, "")) == (None, None)
    found = states.shortcuts("Desktop/a.desktop\0Name=Tea\nDesktop/a.desktop\0Exec=x\nno line\n")
    assert found == {"a.desktop": "Name=Tea\nExec=x\n"}
    assert (states.size("[9, 5]"), states.size("")) == ({"width": 9, "height": 5}, None)
    listed = "[Added Associations]\nvideo/mp4=b\n[Default Applications]\n" + "".join(
        f"video/{kind}=a;\n" for kind in KINDS
    )
    assert states.player(FileView("file", data=listed.encode())) == "a"
    assert states.player(FileView("file", data=b"[Default Applications]\nvideo/mp4=a\n")) == "unknown"


@pytest.mark.parametrize("func", ["check_textbox_on_leftside", "check_image_size", "increase_saturation"])
def test_a_picture_judged_by_one_feature_has_to_be_like_one_of_the_start(func: str) -> None:
    black, start = (file(drawn(said, "PNG")) for said in ("black", "start"))
    brought = bring({f"{HOME}/a.png": start.data, f"{HOME}/a.xcf": b"gimp xcf"})
    asked = {"func": func, "result": of_file("a.png"), "expected": rule(height=40)}

    def tail(name: str, result: Any, expected: Any, *_: Any) -> Score:
        return Score(float(name != "compare_images" or result.data != black.data), name)

    task = loaded(config=[brought], evaluator=asked)
    scores = [judge.score(task, lambda _, one=one: one, {}, carried, tail).value for one in (start, black)]
    assert scores == [1, 0]


@pytest.mark.parametrize(("func", "count"), [("check_transition", 1), ("compare_pptx_files", 0)])
def test_files_of_the_start_are_sent_only_where_a_guard_compares_with_them(func: str, count: int) -> None:
    brought = bring({f"{HOME}/a.pptx": b"start", f"{HOME}/a.png": b"start"})
    task = loaded(config=[brought], evaluator={"func": func, "result": of_file("a.pptx")})
    sent: list[Any] = []

    def tail(*asked: Any) -> Score:
        sent.extend(asked[-1])
        return Score(1.0, "")

    result = FileView("file", data=b"end", name="a.pptx")
    judge.score(task, lambda _: result, {}, carried, tail)
    assert [(one.name, one.data) for one in sent] == [("a.pptx", b"start")] * count
