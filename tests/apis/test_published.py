"""What is asked of the published metrics, and how their answers count."""

from __future__ import annotations

import base64
import json
import math
import os
import time
import types
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.cluster.config.schema import ClusterConfig, DemonstrationsConfig, Deploy, SeatsConfig
from actors.entropulse.config import EntropulseConfig, EvaluationConfig
from apis.tasks.metrics.metric import Score
from apis.tasks.osworld import Task
from apis.tasks.verify.verify import FileView
from apis.tasksets import judge, published, published_guards, published_worker
from apis.tasksets.coverage import covered
from apis.tasksets.published import PublishedError, PublishedScore
from runtime.errors import ConfigError
from tests.apis.standins import video
from tests.apis.task_files import loaded, of_file
from tests.apis.twins import book, file


def asked(metric: Any, *arguments: Any) -> dict[str, Any]:
    module = types.ModuleType("metrics")
    module.__dict__["tried"] = metric
    return published_worker.apart(module, {"metric": "tried", "arguments": arguments, "options": {}}, published_guards)


def test_a_missing_package_gives_no_score_even_where_its_error_is_swallowed() -> None:
    def metric() -> float:
        try:
            published_worker.Missing("easyocr").Reader()
        except ImportError:
            return 1.0
        return 0.5

    assert asked(metric) == {"missing": "easyocr"}


def test_what_a_metric_does_to_its_process_is_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asked(lambda: os._exit(3)) == {"raised": "ended with status 3"}
    assert asked(lambda: b"x" * (published_worker.MEMORY_BYTES + 1))["raised"].startswith("MemoryError")
    assert published_worker.apart(types.ModuleType("metrics"), {"metric": "none"}, published_guards) == {
        "missing": "not in the package"
    }
    monkeypatch.setattr(published_worker, "WALL_S", 0.3)
    assert asked(lambda: time.sleep(60)) == {"raised": "took longer than 0.3 s"}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "nan"])
def test_an_answer_can_be_read_whatever_a_metric_gives_or_raises(value: Any) -> None:
    def raising() -> float:
        raise ValueError("a\udcff")

    for metric in (lambda: value, raising):
        answer = msgspec.json.decode(json.dumps(asked(metric)), type=PublishedScore)
        assert (answer.score, bool(answer.raised)) == (0, True)


def test_answers_that_can_not_be_read_are_no_tasks_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    for line in ('{"score": NaN}', "{}x", '{"raised": "\\udcff"}'):
        monkeypatch.setattr(published, "_told", lambda orders, line=line: [line])
        with pytest.raises(PublishedError, match="can't be read"):
            published.answers(["{}"])


def test_a_result_arrives_as_a_file_of_its_name() -> None:
    right = msgspec.structs.replace(book(["a"]), name="a.xlsx")
    sent = json.loads(published.order("compare_table", right, book(["b"]), {}))["arguments"]
    assert [one["name"] for one in sent] == ["a.xlsx", "gold"]
    assert asked(lambda path, _: len(Path(path).read_bytes()), *sent) == {"score": len(right.data)}


def test_one_sandbox_runs_at_a_time_and_a_wait_for_others_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / published.MARK).touch()
    monkeypatch.setattr(published, "ENVIRONMENT", tmp_path)
    monkeypatch.setattr(published, "TRY_S", 0.001)
    running, most = [0], [0]

    def run(*_: Any, **__: Any) -> Any:
        running[0] += 1
        most.append(running[0])
        time.sleep(0.02)
        running[0] -= 1
        return types.SimpleNamespace(stdout='{"score": 1}')

    monkeypatch.setattr(published.subprocess, "run", run)
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(published.answers, [["{}"]] * 4)) == [[PublishedScore(1.0)]] * 4
    assert max(most) == 1
    monkeypatch.setattr(published, "TURNS_S", 0.01)
    with published._turn(), pytest.raises(PublishedError, match="busy with other orders"):
        published.answers(["{}"])


def test_a_full_score_that_any_file_gets_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(orders: list[str], *, of_zeros: float) -> list[PublishedScore]:
        given = [json.loads(one)["arguments"][0] for one in orders]
        assert base64.b64decode(given[1]["files"][given[1]["name"]]) == published.BLANK
        return [PublishedScore(score=1.0), PublishedScore(score=of_zeros)]

    for result in (file("right"), FileView("missing")):
        monkeypatch.setattr(published, "answers", partial(told, of_zeros=0.9))
        assert published.score("tried", result, None, {}).solved
        monkeypatch.setattr(published, "answers", partial(told, of_zeros=1.0))
        with pytest.raises(ConfigError, match="any file here its full score"):
            published.score("tried", result, None, {})
    monkeypatch.setattr(published, "answers", lambda orders: [PublishedScore(score=1.0)] * len(orders))
    with pytest.raises(ConfigError, match="any file here its full score"):
        published.score("tried", [file("right"), file("x")], None, {})
    assert published.score("tried", {"a": 1}, None, {}).solved
    refused = PublishedScore(refused="it is empty")
    monkeypatch.setattr(published, "answers", lambda orders: [refused] * len(orders))
    assert published.score("tried", file("right"), None, {}).reason.endswith("accepts it, but it is empty")


@pytest.mark.slow
def test_the_published_package_judges_what_is_not_here() -> None:
    if not (published.ENVIRONMENT / ".computerrl").exists():
        pytest.skip("make osworld-judge")
    files = [file(text) for text in ("one = 1\n", "two = 2\n")]
    task, fixtures = judged_by("compare_python_pure_text", files[0].data, {})
    assert covered(task, lambda *_: True, lambda _: True).verdict == "needs_judge"
    found = covered(task, lambda *_: True, lambda _: True, published=True)
    assert (found.verdict, found.judge) == ("runnable", "published")
    for left, solved in ((files[0], True), (files[1], False), (FileView("missing"), False)):
        verdict = judge.judged(task, lambda _, left=left: left, {}, lambda url, _: fixtures[url], published.score)
        assert verdict.success is solved, verdict.reason
    films = [file(video(said)) for said in ("gold", "start")]
    orders = [published.order("compare_videos", one, films[0], {}) for one in films]
    assert [one.score for one in published.answers(orders)] == [1, 0]
    with pytest.raises(ConfigError, match="any file here its full score"):
        published.score("compare_videos", FileView("missing"), file(b"RIFF"), {})
    with pytest.raises(ConfigError, match="no metric compare_python_pure_text"):
        judge.judged(task, lambda _: files[0], {}, lambda url, _: fixtures[url])


def judged_by(metric: str, expected: bytes, options: dict[str, Any]) -> tuple[Task, dict[str, bytes]]:
    gold = {"type": "cloud_file", "path": "https://x.org/gold.zip", "dest": "gold.zip"}
    asked = {"func": metric, "result": of_file("a.zip"), "expected": gold, "options": options}
    return loaded(id=metric, evaluator=asked), {"https://x.org/gold.zip": expected}


def test_what_is_left_to_the_published_package_gets_files_by_the_tasks_names_and_training_never_asks() -> None:
    task, fixtures = judged_by("compare_archive", b"gold", {"file_type": "audio"})
    asked_for: list[Any] = []

    def tail(name: str, result: Any, expected: Any, options: Mapping[str, Any], _: Any) -> Score:
        asked_for.append((name, result.name, expected.name, dict(options)))
        return Score(0.5, "half")

    verdict = judge.judged(task, lambda _: file(b"mine"), {}, lambda url, _: fixtures[url], tail)
    assert (verdict.success, verdict.score) == (False, 0.5)
    assert asked_for == [("compare_archive", "a.zip", "gold.zip", {"file_type": "audio"})]
    with pytest.raises(ConfigError, match=r"evaluation\.published_metrics is of `eval` alone"):
        Deploy(evaluation=EvaluationConfig(published_metrics=True))
    with pytest.raises(ConfigError, match=r"desktops\.place is set"):
        Deploy(
            demos=DemonstrationsConfig(count=0),
            entropulse=EntropulseConfig(bc_steps=0, total_rl_steps=0, pulses=0),
            evaluation=EvaluationConfig(published_metrics=True),
            desktops=SeatsConfig(place={"CPU": 1}),
            cluster=ClusterConfig(engine="ray"),
        )
