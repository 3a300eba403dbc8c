"""Servers that speak SGLang's contract: the embedded engine, real SGLang, or whatever a URL names.

COMPUTERRL_TEST_SGLANG=1 adds real SGLang where `make sglang-cpu` has built its environment; COMPUTERRL_CONTRACT_URL
names a running server to check instead (it must see this machine's files, and is told to load others).
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from actors.sampler.config import SamplersConfig, SamplerSettings, SglangConfig
from actors.sampler.engine import SglangEngine, interpreter
from runtime.clock import RealClock
from runtime.errors import ConfigError
from runtime.http import bearer
from runtime.program import TOKEN_ENV
from tests.policy.engine_tools import Server, engine_server, write_model

START_S = 240.0
# One of all servers, because samplers.api_key_env names one.
TOKEN = os.environ.setdefault(TOKEN_ENV, secrets.token_urlsafe(24))
URL = os.environ.get("COMPUTERRL_CONTRACT_URL", "")


def missing_sglang() -> str:
    """Why real SGLang is not tested here, or nothing."""
    if os.environ.get("COMPUTERRL_TEST_SGLANG") != "1":
        return "real SGLang is tested by make test-change (COMPUTERRL_TEST_SGLANG=1)"
    try:
        interpreter("")
    except ConfigError as error:
        return str(error)
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests of real servers time to start one, and skip them where there is none."""
    reason = missing_sglang()
    for item in items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if item.get_closest_marker("real_sglang") or parameters.get("server") == "sglang":
            item.add_marker(pytest.mark.timeout(2 * START_S))
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker."""
    config.addinivalue_line("markers", "real_sglang: needs SGLang's own environment")


def real_settings(model: Path, **options: object) -> SamplerSettings:
    """A sampler's settings with one real server on this machine."""
    samplers = SamplersConfig(engine=SglangConfig(), max_running_requests=8, cache_tokens=16_384, **options)  # type: ignore[arg-type]
    return SamplerSettings(samplers=samplers, model=str(model), hung_after_s=60.0)


@contextlib.contextmanager
def sglang_server(model: Path, folder: Path) -> Iterator[Server]:
    """A real server with the product's own command line, outside any event loop."""
    settings = real_settings(model)
    started = SglangEngine(settings, "contract", folder, RealClock(), print)
    started.token = TOKEN
    argv, env, _ = started.command(str(model), "0.0")
    with (folder / "sglang.log").open("wb") as log:
        process = subprocess.Popen(argv, env=env, stdout=log, stderr=log, start_new_session=True)
    pidfd = os.pidfd_open(process.pid)
    try:
        _until_it_generates(started.url, started.token, pidfd)
        yield Server(started.url, model, process.pid, started.token)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=60)
        os.close(pidfd)
        started.clear()


def _until_it_generates(url: str, token: str, pidfd: int) -> None:
    body = json.dumps({"input_ids": [1], "sampling_params": {"max_new_tokens": 1}}).encode()
    request = urllib.request.Request(
        f"{url}/generate", data=body, headers={"Content-Type": "application/json", **bearer(token)}
    )
    began = time.monotonic()
    while time.monotonic() - began < START_S:
        try:
            with urllib.request.urlopen(request, timeout=60):
                return
        except (urllib.error.URLError, ConnectionError):
            ended, _, _ = select.select([pidfd], [], [], 0.5)
            assert not ended, "the server ended at its start"
    raise AssertionError(f"no token within {START_S:g} s")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three sets of random weights of one small model, with a tokenizer that transformers loads too."""
    folder = tmp_path_factory.mktemp("models")
    made = [write_model(folder / str(i), seed=i) for i in range(3)]
    for model in made:
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<0>", "model_max_length": 4096}
        (model / "tokenizer_config.json").write_text(json.dumps(config))
    return made


@pytest.fixture(scope="module", params=["url"] if URL else ["embedded", "sglang"])
def server(
    request: pytest.FixtureRequest, models: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """One server for all tests of a file."""
    if request.param == "url":
        yield Server(URL, models[0], 0, TOKEN)
    elif request.param == "embedded":
        with engine_server(models[0], "--max-running-requests", "8") as found:
            yield found
    else:
        with sglang_server(models[0], tmp_path_factory.mktemp("server")) as found:
            yield found
