"""Published task files: how they load, what they need, and how their steps are carried out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import pytest

from apis.plans.action import Call
from apis.tasks import osworld
from apis.tasks.metrics.metric import Declared, Score, data
from apis.tasks.metrics.registry import METRICS
from apis.tasks.osworld import HOME
from apis.tasks.verify.verify import FileView
from apis.tasksets import commands, getters, judge, store
from apis.tasksets.coverage import BY_PASSWORD, covered
from apis.tasksets.getters import WantedFixture
from apis.tasksets.package import Lacking
from apis.tasksets.steps import PART_BYTES, at_home, carried, put
from runtime.errors import ConfigError
from tests.apis.task_files import bring, launched, loaded, of_command, of_file, rule

OSWORLD = Path(__file__).resolve().parents[3] / "shared" / "data" / "osworld"
GUEST = "/home/agent"


def test_published_files_load_get_a_verdict_and_survive_a_round_trip() -> None:
    if not OSWORLD.is_dir():
        pytest.skip("published task files do not lie beside this checkout")
    verdicts: Counter[str] = Counter()
    for file in sorted(OSWORLD.glob("*/*.json")):
        task = osworld.load(file.read_bytes())
        assert osworld.load(osworld.dump(task)) == task
        assert task.id == file.stem
        found = covered(task, lambda *_: True, lambda _: True)
        assert (found.verdict == "runnable") == (not found.needs)
        verdicts[found.verdict] += 1
        less = covered(task, lambda *_: False, lambda _: True)
        assert set(found.needs) <= set(less.needs)  # a fetched file takes a need away and adds none
    assert sum(verdicts.values()) == 222
    assert verdicts["runnable"] >= 26


def test_files_that_become_root_by_a_password_need_a_desktop_that_has_one() -> None:
    if not OSWORLD.is_dir():
        pytest.skip("published task files do not lie beside this checkout")
    files = [file for file in sorted(OSWORLD.glob("*/*.json")) if commands.PASSWORD in file.read_text()]
    verdicts: list[tuple[str, str]] = []
    for file in files:
        task = osworld.load(file.read_bytes())
        sandboxed, given = (
            covered(task, lambda *_: True, lambda name: name != "sudo", published=True, root=root)
            for root in (False, True)
        )
        assert sandboxed.verdict == "unsupported"
        assert set(sandboxed.needs) - set(given.needs) == {BY_PASSWORD}
        verdicts.append((file.stem[:8], given.verdict))
    assert sorted(verdicts) == [
        ("3299584d", "runnable"), ("5812b315", "unsupported"), ("716a6079", "runnable"), ("9f3bb592", "needs_network"),
        ("a462a795", "runnable"), ("a74b607e", "runnable"),
    ]  # fmt: skip
    judged = {"func": "exact_match", "result": of_command(f"echo {commands.PASSWORD}")}
    with pytest.raises(Lacking, match="root"):  # over a copy of HOME nobody becomes root
        getters.commands_of(loaded(evaluator=judged).evaluator, HOME)


def test_what_is_not_known_is_kept_and_noted() -> None:
    step = {"type": "launch", "parameters": {"command": ["vlc"], "wait": 1}, "why": "x"}
    task = loaded(
        source=["a", "b"], related_apps="vlc", colour=1, config=[step], proxy="true",
        evaluator={"func": "infeasible", "_note": "n", "expected": None, "postconfig": None},
    )  # fmt: skip
    assert task.notes == ["colour", "config.0.parameters.wait", "config.0.why", "evaluator._note"]
    assert task.unknown["evaluator._note"] == "n"
    assert (task.source, task.related_apps, task.proxy) == ("a b", ["vlc"], True)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"id": ', "no JSON"),
        ("[]", "no JSON object"),
        ('{"id": "a"}', "instruction: it is missing"),
        ('{"id": "a", "instruction": "b", "evaluator": {}}', "evaluator.func"),
        ('{"id": "a", "instruction": {}, "evaluator": {"func": "x"}}', "instruction: a text"),
        ('{"id": "a", "instruction": "b", "evaluator": {"func": "x"}, "config": [1]}', "config.0: a step"),
        (
            '{"id": "a", "instruction": "b", "evaluator": {"func": ["x", "y"], "result": [{}]}}',
            "evaluator.result has 1",
        ),
        ("[" * 100_000, "no JSON"),
    ],
)
def test_a_broken_file_is_refused_in_one_line_with_its_key(text: str, key: str) -> None:
    with pytest.raises(ConfigError, match=key) as refused:
        osworld.load(text.encode())
    assert "\n" not in str(refused.value)


def needs(present: set[str] = frozenset(), hand: bool = False, **changes: Any) -> dict[str, str]:  # type: ignore[assignment]
    found = covered(loaded(**changes), lambda *_: hand, present.__contains__)
    return {"": found.verdict, **{need.kind: need.name for need in found.needs}}


def test_each_lacking_thing_is_named_and_decides_the_verdict() -> None:
    file = {"files": [{"url": "https://x.org/a.odt", "path": f"{HOME}/a.odt"}]}
    download = [{"type": "download", "parameters": file}]
    assert needs(config=download) == {"": "needs_file", "fixture": "https://x.org/a.odt"}
    assert needs(config=download, hand=True) == {"": "runnable"}
    assert needs(config=[launched("gimp")]) == {"": "needs_app", "application": "gimp"}
    assert needs({"gimp"}, config=[launched("gimp")]) == {"": "runnable"}
    assert needs(config=[{"type": "reboot"}]) == {"": "unsupported", "step": "reboot"}
    assert needs(config=[{"type": "login", "parameters": {}}])["account"]
    assert needs({"bash", "sudo"}, config=[launched("bash", "-c", "echo x | sudo -S true")])["root"]
    several = {"type": "cloud_file", "path": ["data:,a"], "dest": ["a"], "multi": True, "gives": [1]}
    lost = {"func": "compare_text_file", "result": {"type": "vm_file", "path": "a"}, "expected": several}
    assert needs(evaluator=lost) == {"": "unsupported", "getter": "cloud_file without list index out of range"}
    judged = {"func": "no_such", "result": {"type": "no_getter"}}
    assert needs(evaluator=judged) == {"": "unsupported", "getter": "no_getter", "metric": "no_such"}


def test_lines_of_pyautogui_become_calls() -> None:
    code = 'import pyautogui; import time; commands.hotkey(["shift", "ctrl", "e"]); time.sleep(1); commands.write("ab")'
    more = '; commands.press("down", presses=2); commands.click({SCREEN_WIDTH_HALF}, 540)'
    done = commands.translated(code + more)
    assert [call.method for call in done if call.method != "settle"] == [
        "hotkey", "type_text", "hotkey", "hotkey", "click",
    ]  # fmt: skip
    assert done[0].args == {"keys": ["shift", "ctrl", "e"]}
    assert done[-2].args == {"x": 640, "y": 360, "button": 1, "n": 1}
    wide = commands.translated(code + more, (1920, 1080))
    assert wide[-2].args == {"x": 960, "y": 540, "button": 1, "n": 1}


def test_a_button_without_a_place_acts_where_the_pointer_is_and_a_press_lasts_until_it_is_let_go() -> None:
    def done(code: str) -> list[tuple[str, Any]]:
        calls = commands.translated(f"import pyautogui; {code}", (1920, 1080))
        return [(call.method, call.args) for call in calls if call.method != "settle"]

    here = {"x": 960, "y": 540, "button": 1, "n": 1}
    assert done("commands.click()") == done("commands.mouseDown(); commands.mouseUp()") == [("click", here)]
    assert done("commands.moveTo(10, 20); commands.click()")[1][1]["x"] == 10
    drag = "commands.moveTo(10, 20); commands.mouseDown(); commands.moveTo(30, 40); commands.mouseUp()"
    assert done(drag)[1:] == [("drag", {"x": 10, "y": 20, "x2": 30, "y2": 40})]
    assert done("commands.moveTo(10, 20); commands.scroll(-3)")[1] == ("scroll", {"x": 10, "y": 20, "dy": 3})


@pytest.mark.parametrize(
    "code",
    [
        "import pyautogui; commands.write(open('/etc/passwd').read())",
        "import pyautogui; __import__('os').system('x')",
        "import pyautogui\nwhile True: pass",
        "import pyautogui; commands.press('a', presses=10**9)",
        "import pyautogui; commands.hotkey('no such key')",
        "import pyautogui; (",
        "import pyautogui; commands.mouseDown()",
        "import pyautogui; commands.mouseUp()",
    ],
)
def test_any_other_line_is_refused_as_a_whole(code: str) -> None:
    with pytest.raises(Lacking, match="pyautogui"):
        commands.translated(code)


def test_programs_have_other_names_here() -> None:
    def argv(command: str | list[str], wait: bool = False, shell: bool = False) -> list[Any]:
        calls = commands.calls_for(command, shell, GUEST, wait=wait)
        return [call.args["argv"] for call in calls if call.args.get("argv")]

    assert argv(["google-chrome", "--remote-debugging-port=1337"]) == [["chromium"]]
    assert argv(["socat", "tcp-listen:9222,fork", "tcp:localhost:1337"]) == []
    assert argv("VLC_VERBOSE=-1 vlc --no-audio /home/user/a.mp4") == [["vlc", "--no-audio", f"{GUEST}/a.mp4"]]
    assert argv(["nautilus", "/home/user/My Music"]) == [["pcmanfm", f"{GUEST}/My Music"]]
    assert argv(["pkill", "chrome"]) == [["pkill", "chromium"]]
    assert argv("mkdir -p /home/user/a && ls", wait=True) == [["/bin/bash", "-c", f"mkdir -p {GUEST}/a && ls"]]
    assert argv("cat ~/a", wait=True) == [["cat", f"{GUEST}/a"]]
    for line in ("cat ~/a", "LC_ALL=C sort a", "mkdir {a,b}", "command -v git"):
        assert argv(line, wait=True, shell=True) == [["/bin/bash", "-c", line]]
    assert argv("vlc a.mp4", shell=True) == [["vlc", "a.mp4"]]
    assert argv("pkill chrome", shell=True) == [["pkill", "chromium"]]


def test_paths_lie_in_home_or_are_refused() -> None:
    assert [at_home(path) for path in ("/home/user/a/", "setup.sh", "~/b", HOME)] == ["a", "setup.sh", "b", ""]
    for path in ("/etc/passwd", "/home/username/a", "a/../../b"):
        with pytest.raises(Lacking, match="root"):
            at_home(path)


def test_a_large_file_goes_into_the_guest_in_parts() -> None:
    data = bytes(PART_BYTES + 1)
    first, second = put("a", data)
    assert first.args["data"] + second.args["data"] == data
    assert second == Call("write_file", {"path": "a", "data": b"\0", "append": True})
    assert put("a", b"") == [Call("write_file", {"path": "a", "data": b""})]


def test_a_command_of_a_getter_runs_on_this_home() -> None:
    counted = of_command("cat /home/user/a | wc -l", shell=True)
    task = loaded(evaluator={"func": "exact_match", "result": counted, "expected": rule(expected="3")})
    (call,) = getters.commands_of(task.evaluator, GUEST)
    assert call.args["argv"] == ["/bin/bash", "-c", f"cat {GUEST}/a | wc -l"]
    read = {}.__getitem__
    assert getters.value_of(task.evaluator.rows()[0][1], read, {call.kept: "3"}, carried) == "3"


def test_garbage_of_the_policy_scores_nothing_and_a_wrong_expectation_is_the_tasks_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def strange(result: Any, expected: Any, _: Any) -> Score:
        wanted = expected["text"]
        return Score(float(data(result).split(b",")[7] == wanted), "")

    def torn(result: Any, expected: Any, _: Any) -> Score:
        raise BadZipFile

    for name, run in (("strange", strange), ("torn", torn)):
        monkeypatch.setitem(METRICS, name, Declared(name, run))

    def scored(name: str, kind: str = "rule", **rules: Any) -> Score:
        expected = {"type": kind, "rules": rules, "path": "b"}
        task = loaded(evaluator={"func": name, "result": {"type": "vm_file", "path": "a"}, "expected": expected})
        return judge.score(task, lambda _: FileView("file", data=b"short"), {}, carried)

    assert scored("strange", text="x").value == 0
    assert scored("torn").value == 0
    assert scored("strange", "vm_file").value == 0  # what is expected lies on the desktop, too
    with pytest.raises(ConfigError, match="strange"):
        scored("strange")


@pytest.mark.parametrize("place", ["config", "postconfig"])
def test_what_is_expected_of_a_file_that_was_brought_is_what_was_brought(place: str) -> None:
    wanted = {"type": "vm_file", "path": "/home/user/Desktop/gold.txt", "dest": "gold.txt"}
    step = bring({wanted["path"]: b"right"})
    evaluator = {"func": "compare_text_file", "result": of_file("a.txt"), "expected": wanted}
    task = loaded(**({"config": [step], "evaluator": evaluator} if place == "config" else
                     {"evaluator": evaluator | {"postconfig": [step]}}))  # fmt: skip
    assert [one.path for one in judge.wanted(task)] == ["a.txt"]

    def scored(left: bytes) -> float:
        read = {"a.txt": FileView("file", data=left), "Desktop/gold.txt": FileView("file", data=b"changed")}
        return judge.score(task, read.__getitem__, {}, carried).value

    assert (scored(b"right"), scored(b"changed")) == (1, 0)


def test_fixtures_are_locked(tmp_path: Path, own_store: Path) -> None:
    wanted, fixtures = WantedFixture("a", "https://x.org/a.odt", "b.odt"), store.Fixtures(loaded())
    with pytest.raises(Lacking, match="fixture"):
        fixtures.content(wanted.url, wanted.name)
    lock = store.keep(wanted, b"one")
    assert (fixtures.at_hand(wanted.url, "b.odt"), fixtures.content(wanted.url, "b.odt")) == (True, b"one")
    assert not fixtures.at_hand(wanted.url, "c.odt")
    with pytest.raises(ConfigError, match=r"a\.odt.*: it has changed"):
        store.keep(wanted, b"two")
    store.content_place(lock.sha256).write_bytes(b"else")
    with pytest.raises(ConfigError, match=r"a\.odt.*: its file"):
        fixtures.content(wanted.url, "b.odt")


def test_a_set_is_locked(tmp_path: Path, own_store: Path) -> None:
    file = tmp_path / "mine" / "a.json"
    file.parent.mkdir()
    file.write_bytes(osworld.dump(loaded()))
    name = store.adopt("mine", [file], pinned=False)
    (task_id,) = store.ids(name)
    assert task_id == f"{name}/mine/a"
    assert store.task(task_id).instruction == "Do it"
    file.write_bytes(osworld.dump(loaded(instruction="Do more")))
    other = store.adopt("mine", [file], pinned=False)
    assert store.task(task_id) != store.task(f"{other}/mine/a")
    store.adopt("osworld", [file], pinned=True)
    file.write_bytes(osworld.dump(loaded()))
    with pytest.raises(ConfigError, match="mine/a has changed"):
        store.adopt("osworld", [file], pinned=True)
