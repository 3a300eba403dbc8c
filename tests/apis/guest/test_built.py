"""Generated functions in their worker: what is refused by a look, what a call may do, and that the worker is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from guest import Refused
from guest.built import calls, gimp, look, marionette, office

GOOD = (
    "def half(number):\n    if number < 0:\n        raise ValueError('a number from 0')\n    return str(number // 2)\n"
)


@pytest.fixture
def tried() -> Iterator[Any]:
    held = calls.Calls()

    def run(source: str, name: str = "f", **arguments: Any) -> str:
        held.offer("Tools", name, source, "", ["re", "os"])
        return held.call("Tools", name, arguments)

    yield run
    held.stop()


def test_a_function_answers_and_its_refusal_is_the_models(tried: Any) -> None:
    assert tried(GOOD, "half", number=9) == "4"
    with pytest.raises(Refused, match="a number from 0") as refused:
        tried(GOOD, "half", number=-1)
    assert refused.value.kind == "tool_failed"


@pytest.mark.parametrize(
    "body",
    [
        "import os\n    os._exit(3)", "raise SystemExit", "import os\n    os.kill(os.getpid(), 9)", "1 / 0",
        "return open('/etc/passwd').read()", "import os\n    os.system('true')",
        "import subprocess\n    subprocess.run('ls')",
        "import os\n    os.remove('/etc/hostname')",
    ],
)  # fmt: skip
def test_a_crash_is_the_functions_and_the_next_call_is_answered(tried: Any, body: str) -> None:
    with pytest.raises(Refused) as refused:
        tried(f"def f():\n    {body}\n")
    assert refused.value.kind == "function_crashed"
    assert tried(GOOD, "half", number=8) == "4"


def test_a_function_that_does_not_end_is_killed(tried: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls.Worker.ask, "__defaults__", (0.5,))
    with pytest.raises(Refused, match="did not end") as refused:
        tried("def f():\n    while True:\n        pass\n")
    assert refused.value.kind == "function_crashed"


def test_the_number_of_a_worker_is_killed_once_for_it_is_anothers_later(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr("os.killpg", lambda number, how: (killed.append(number), os.kill(number, how)))
    worker = calls.Worker()
    job = {
        "do": "call",
        "source": "import os\ndef f():\n    os._exit(0)\n",
        "name": "f",
        "helpers": "",
        "arguments": {},
    }
    with pytest.raises(Refused, match="ended its process"):
        worker.ask(job | {"imports": ["os"]})
    assert worker.ended
    worker.stop()
    assert killed == [worker._process.pid]


def test_a_worker_that_has_ended_keeps_its_number_until_it_is_stopped() -> None:
    worker = calls.Worker()
    os.kill(worker._process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, worker._process.pid, os.WEXITED | os.WNOWAIT)
    assert worker.ended
    os.kill(worker._process.pid, 0)
    worker.stop()
    assert worker._process.returncode == -signal.SIGKILL


def test_ten_megabytes_are_cut_and_what_is_printed_is_no_answer(tried: Any) -> None:
    assert tried("def f():\n    print('{}' * 10 ** 6)\n    return 'x' * 10 ** 7\n") == "x" * 5000


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("def f(b, a):\n    return a", "exactly these parameters"),
        ("def g(a, b):\n    return a", "defines no function f"),
        ("def f(a, b, *c):\n    return a", "exactly these parameters"),
        ("def f(a, *b):\n    return a", "exactly these parameters"),
        ("def f(*, a, b):\n    return a", "exactly these parameters"),
        ("import socket\ndef f(a, b):\n    return a", "imports socket; allowed: re"),
        ("from os.path import join\ndef f(a, b):\n    return a", "imports os.path"),
        ("def f(a, b):\n    return eval(a)", "uses eval"),
        ("def f(a, b):\n    return a.__class__", "uses __class__"),
        ("def f(a, b):\n    os._exit(1)", "uses _exit"),
        ("print('now')\ndef f(a, b):\n    return a", "imports, constants and functions alone"),
        ("class A: pass\ndef f(a, b):\n    return a", "uses ClassDef"),
        ("def f(a, b):\n    app.text = lambda: a", "changes text"),
        ("import re\ndef f(a, b):\n    return re.enum.sys", "uses sys"),
        ("from re import _parser\ndef f(a, b):\n    return a", "uses _parser"),
        ("def f(a, b):\n    return __builtins__['eval'](a)", "uses __builtins__"),
        ("def f(a, b):\n    return getattr(a, b)", "uses getattr"),
        ("def f(a, b):\n    return (x for x in a).gi_frame.f_back", "uses gi_frame"),
        ("def f(a, b):\n    match a:\n        case object(_bus=c):\n            return c", "uses MatchClass"),
        ("def f(a, b):\n    return " + "a + " * 1500 + "a", "too deep"),
        ("def f(a, b:\n    return a", "no Python"),
        ("(" * 5000, "no Python"),
    ],
)
def test_a_look_refuses_without_running_anything(source: str, why: str) -> None:
    seen = look.examined(source, "f", ["a", "b"], ["re"])
    assert any(why in text for text in seen["wrong"])
    assert seen["mutants"] == []


def test_a_function_answers_for_no_other_and_long_or_halved_text_is_mended(tried: Any) -> None:
    forged = "import os\ndef f():\n    os.write({}, b'{{\"says\": \"forged\"}}\\n')\n    return 'own'\n"
    for number in (3, 4):
        with contextlib.suppress(Refused):
            assert tried(forged.format(number)) == "own"
        assert tried(GOOD, "half", number=8) == "4"
    for number in (0, 3):
        with pytest.raises(Refused):
            tried(f"def f():\n    return open({number}, 'w').write('a')\n")
    assert tried("def f():\n    return 'a' + chr(0xd800)\n") == "a?"


def test_two_folders_of_one_owner_are_both_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, name in enumerate(("one_name", "two_name")):
        (tmp_path / str(number)).mkdir()
        functions = [{"name": name, "does": "It does.", "code": f"def {name}():\n    return '{name}'\n"}]
        (tmp_path / str(number) / "api.json").write_text(json.dumps({"owner": "Tools", "functions": functions}))
    monkeypatch.setattr(calls, "PLACE", tmp_path)
    made = calls.Calls()
    assert [made.call("Tools", name, {}) for name in ("one_name", "two_name")] == ["one_name", "two_name"]
    made.stop()


def test_mutants_change_one_decision_each() -> None:
    source = "import re\n\ndef f(a, b):\n    if a == 1:\n        app.set(a, b)\n    app.act('save')\n    return 'ok'\n"
    mutants = dict(look.examined(source, "f", ["a", "b"], ["re"])["mutants"])
    assert mutants["does nothing"].endswith("def f(a, b):\n    return 'done'")
    assert "app.act" not in mutants["lacks the call of line 6"]
    assert "app.set(b, a)" in mutants["two arguments change places in line 5"]
    assert "a == 2" in mutants["a number is one more in line 4"]
    assert "a != 1" in mutants["a comparison is turned in line 4"]
    idle = look.examined("def f(a):\n    return 'done'", "f", ["a"], [])
    assert [label for label, _ in idle["mutants"]] == ["does nothing"]


def test_an_office_that_is_not_there_is_a_refusal_and_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> None:
        raise Refused("tool_failed", "LibreOffice is not running: open it first")

    monkeypatch.setattr(office.Office, "reached", none)
    with pytest.raises(ValueError, match="is not running"):
        office.App("com.sun.star.drawing.DrawingDocument")


@pytest.mark.parametrize(("kind", "said"), [(gimp, b"G\0\0\5abc"), (marionette, b"12"), (marionette, b"-3:{}")])
def test_half_an_answer_of_a_program_is_none(kind: Any, said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def hang_up() -> None:
            link, _ = listener.accept()
            with link:
                link.sendall(said)
                link.shutdown(socket.SHUT_WR)
                link.recv(1000)

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(ValueError, match="does not answer"):
            kind.App(str(listener.getsockname()[1])).script("()")
        thread.join(60)
