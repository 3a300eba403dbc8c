"""A stranger's chat template: what it may take of time and memory, and what a run says of one that fails."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from actors.cluster.config import models
from policy import chat_process
from policy.chat_process import PROCESS
from policy.tokenizer import Tokenizer
from runtime.errors import ConfigError
from tests.policy.chat_models import CHATML, Chat, write_tokenizer

LOOPS = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}x"
DOUBLED = "{% set n = namespace(x='x' * 99) %}{% for _ in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}{{ n.x }}"
GREEDY = {
    "nested loops": LOOPS,
    "a power": "{{ 9 ** 9 ** 9 }}",
    "a long text": "{{ 'x' * 99999999999 }}",
    "a text that doubles": DOUBLED,
    "a width": "{{ '%99999999999d' | format(1) }}",
    "a macro that calls itself": "{% macro f(n) %}{{ f(n - 1) }}{{ f(n - 1) }}{% endmacro %}{{ f(400) }}",
}


def test_a_template_of_its_own_is_rendered_though_the_tokens_are_the_bundled_ones(tmp_path: Path) -> None:
    shutil.copytree(models.bundled(), tmp_path, dirs_exist_ok=True)
    assert Tokenizer.load(tmp_path).own
    (tmp_path / "chat_template.jinja").write_text(LOOPS)
    with pytest.raises(ConfigError, match="more than 1 s"):
        models.locate(str(tmp_path))


def folder_with(path: Path, template: str) -> Path:
    write_tokenizer(path, "", CHATML._replace(template=template))
    return path


@pytest.mark.parametrize("template", GREEDY.values(), ids=GREEDY)
def test_a_template_that_takes_too_much_is_refused_in_one_line(tmp_path: Path, template: str) -> None:
    began = time.monotonic()
    with pytest.raises(ConfigError) as caught:
        Tokenizer.load(folder_with(tmp_path, template))
    assert time.monotonic() - began < 40.0
    assert str(caught.value).startswith(f"{tmp_path}: ")
    assert "\n" not in str(caught.value)


def test_it_works_where_memory_is_limited_from_outside(tmp_path: Path) -> None:
    path = folder_with(tmp_path, CHATML.template)
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30));"
        "from policy.tokenizer import Tokenizer; print(len(Tokenizer.load(sys.argv[1]).prompt_ids('hello')))"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False)
    assert int(ended.stdout or 0), ended.stderr


def test_a_process_that_was_ended_is_started_again(tmp_path: Path) -> None:
    tokenizer = Tokenizer.load(folder_with(tmp_path, CHATML.template))
    before = tokenizer.prompt_ids("hello")
    assert PROCESS._process is not None
    os.kill(PROCESS._process.pid, signal.SIGKILL)
    with pytest.raises(ConfigError, match="chat template fails"):
        tokenizer.prompt_ids("hello")
    assert tokenizer.prompt_ids("hello") == before


def test_a_question_that_was_given_up_is_not_answered_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = Tokenizer.load(folder_with(tmp_path, CHATML.template))
    before = tokenizer.prompt_ids("hello")

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("policy.chat_process.Connection.poll", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tokenizer.prompt_ids("good bye")
    assert tokenizer.prompt_ids("hello") == before


def test_it_ends_with_the_process_that_asks() -> None:
    child = chat_process.ChatProcess()
    child._started()
    assert child._process is not None
    running = psutil.Process(child._process.pid)
    assert child._link is not None
    child._link.close()
    assert running.wait(20) == 0
    child._link = None
    child.close()


def test_files_that_changed_are_read_again(tmp_path: Path) -> None:
    first = Tokenizer.load(folder_with(tmp_path, CHATML.template)).prompt_ids("hello")
    changed: Chat = CHATML._replace(template=CHATML.template + "<|endoftext|>")
    write_tokenizer(tmp_path, "", changed)
    assert Tokenizer.load(tmp_path).prompt_ids("hello") != first


@pytest.mark.parametrize(
    ("name", "text"),
    [("tokenizer_config.json", "{"), ("tokenizer_config.json", "[]"), ("chat_template.jinja", "{% for")],
)
def test_broken_files_are_refused_in_one_line(tmp_path: Path, name: str, text: str) -> None:
    (folder_with(tmp_path, CHATML.template) / name).write_text(text)
    with pytest.raises(ConfigError) as caught:
        Tokenizer.load(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)
