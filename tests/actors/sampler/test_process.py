"""How engines are started, without starting them, and when a start is given up."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from actors.cluster.config import models
from actors.cluster.config.schema import Deploy
from actors.cluster.config.typed_yaml import build
from actors.cluster.runs import compose
from actors.errors import EngineGone
from actors.sampler import engine as engines
from actors.sampler.client import EngineClient
from actors.sampler.config import EmbeddedConfig, SamplersConfig, SamplerSettings, SglangConfig, attached_key
from actors.sampler.engine import EmbeddedEngine, SglangEngine, StartedEngine, environment, interpreter
from actors.sampler.messages import Weights
from actors.sampler.progress import StartProgress
from runtime.clock import RealClock
from runtime.errors import ConfigError
from runtime.messaging.message import Version
from runtime.program import TOKEN_ENV


@pytest.fixture
def command(tmp_path: Path):
    """Makes a command line and its environment."""
    made: list[SglangEngine] = []

    def make(python: str = sys.executable, **samplers: object) -> tuple[list[str], dict[str, str]]:
        options = samplers.pop("options", {})
        engine = SglangConfig(python=python, options=options)  # type: ignore[arg-type]
        config = SamplersConfig(engine=engine, **samplers)  # type: ignore[arg-type]
        made.append(SglangEngine(SamplerSettings(samplers=config, model=""), "s", tmp_path, RealClock(), print))
        made[-1].token = "k" * 32
        return made[-1].command("/model", "0.3")[:2]

    yield make
    for one in made:
        one.clear()


def test_a_started_servers_key_is_in_no_command_line(command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes by the environment to the launcher, which takes it out and tells SGLang within its own process."""
    monkeypatch.setenv("PYTHONPATH", "/ours")
    argv, env = command()
    assert "PYTHONPATH" not in env
    key = env.pop(TOKEN_ENV)
    assert key == "k" * 32
    assert not any(key in word for word in argv)
    (tmp_path / "sglang").mkdir()
    shown = "import os, sys\nprint(sys.argv[1:], 'COMPUTERRL_TOKEN' in os.environ)"
    (tmp_path / "sglang" / "launch_server.py").write_text(shown)
    launcher = argv[argv.index("--model-path") - 2]
    words = [sys.executable, "-P", launcher, str(os.getpid()), "--port", "1"]
    env = {"PYTHONPATH": str(tmp_path), "PATH": os.environ["PATH"], TOKEN_ENV: key}
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, env=env, start_new_session=True)
    assert done.stdout == f"['--port', '1', '--api-key={key}'] False\n"


def test_the_key_of_attached_servers_is_named_by_its_variable() -> None:
    assert attached_key(SamplersConfig(), {}) == ""
    assert attached_key(SamplersConfig(api_key_env="KEY"), {"KEY": "k"}) == "k"
    with pytest.raises(ConfigError, match=r"^samplers\.api_key_env names KEY, which is not set"):
        attached_key(SamplersConfig(api_key_env="KEY"), {})


def pairs(argv: list[str]) -> dict[str, str]:
    return {word: after for word, after in zip(argv, [*argv[1:], ""], strict=True) if word.startswith("--")}


def test_the_embedded_engine_gets_its_dtype_and_its_limit(tmp_path: Path) -> None:
    def given(engine: EmbeddedConfig) -> dict[str, str]:
        settings = SamplerSettings(samplers=SamplersConfig(engine=engine), model="")
        engine_ = EmbeddedEngine(settings, "s", tmp_path, RealClock(), print)
        argv, _, (descriptor,) = engine_.command("/model", "0.3")
        os.close(descriptor)
        engine_.clear()
        return {name: value for name, value in pairs(argv).items() if name != "--fd"}

    plain = given(EmbeddedConfig())
    assert plain["--dtype"] == "float32"
    assert "--context-length" not in plain
    changed = given(EmbeddedConfig(dtype="bfloat16", context_tokens=900))
    assert changed == plain | {"--dtype": "bfloat16", "--context-length": "900"}


def test_on_a_gpu_it_decides_itself_and_options_pass_through(command) -> None:
    argv, env = command(device="cuda", options={"tp_size": 2, "enable-metrics": True, "disable-radix-cache": False})
    given = pairs(argv)
    assert given["--device"] == "cuda"
    assert {"--tp-size=2", "--enable-metrics"} <= set(argv)
    assert "--attention-backend" not in given
    assert "SGLANG_USE_CPU_ENGINE" not in env


def test_an_engine_that_is_to_sleep_can_and_keeps_its_weights(command) -> None:
    argv, _ = command(device="cuda", turns=True)
    assert {"--enable-memory-saver", "--enable-weights-cpu-backup"} <= set(argv)
    for options in ({"device": "cuda"}, {"turns": True}):  # on a CPU there is nothing that could be saved
        assert "--enable-memory-saver" not in command(**options)[0]


def test_a_compiler_of_its_own_packages_is_named_where_the_machine_has_none(
    command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / "bin" / "python"
    toolkit = tmp_path / "lib" / "python3.11" / "site-packages" / "nvidia" / "cu13"
    for program in (python, toolkit / "bin" / "nvcc"):
        program.parent.mkdir(parents=True)
        program.touch(mode=0o755)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(engines, "MACHINE_NVCC", tmp_path / "none")
    assert command(str(python), device="cuda")[1]["CUDA_HOME"] == str(toolkit)
    monkeypatch.setenv("CUDA_HOME", "/opt/cuda")
    assert command(str(python), device="cuda")[1]["CUDA_HOME"] == "/opt/cuda"


def test_started_servers_share_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    deploy = build({"samplers": {"count": 2, "device": "cuda", "gpus": ["1", "2,3"]}}, Deploy, source="x")
    specs = compose._samplers(deploy.samplers, deploy.weight_sync, str(models.bundled()), [])[:2]
    made = [spec.config for spec in specs if isinstance(spec.config, SamplerSettings)]
    assert [environment(settings)["CUDA_VISIBLE_DEVICES"] for settings in made] == ["1", "2,3"]
    assert "CUDA_VISIBLE_DEVICES" not in environment(SamplerSettings(samplers=SamplersConfig(), model=""))
    for wrong, said in (
        ({"count": 2, "device": "cuda"}, "samplers.count is 2 on GPUs, and all engines would take the first"),
        ({"count": 2, "device": "cuda", "gpus": ["1"]}, "names GPUs for 1 engines, and 2 are started"),
        ({"gpus": ["1"]}, "names GPUs for 1 engines, and 0 are started on GPUs here"),
        ({"device": "cuda", "gpus": ["cuda:1"]}, "samplers.gpus holds 'cuda:1'"),
    ):
        with pytest.raises(ConfigError, match=said):
            SamplersConfig(**wrong)  # type: ignore[arg-type]
    SamplersConfig(attach=["http://a:1", "http://b:1"], device="cuda")


def test_a_missing_interpreter_says_what_mends_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"samplers\.engine\.python .*make sglang-cpu"):
        interpreter(str(tmp_path / "python"))
    half = tmp_path / "env" / "bin" / "python"
    half.parent.mkdir(parents=True)
    half.touch(mode=0o755)
    assert interpreter(str(half)) == half
    (tmp_path / "env" / ".computerrl-begun").touch()
    with pytest.raises(ConfigError, match=r"is half built: .*make sglang-cpu"):
        interpreter(str(half))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *(
            ({name: value}, f"samplers.engine.options.{name}: trust-remote-code is refused")
            for name in ("trust-remote-code", "trust_remote_code", "trust-remote_code", "trust-remote", "tr")
            for value in (True, "true", 1)
        ),
        *(
            ({option: "x"}, f"^samplers.engine.options.{option}: {option} is refused")
            for option in ("api-key", "admin-api-key", "tokenizer-worker-num", "config")
        ),
        *(
            ({name: True}, "without its dashes, like tp-size")
            for name in ("--trust-remote-code", "trust-remote-code=1", "Trust-Remote-Code", "x trust", "", "a--b")
        ),
        ({"disable-radix-cache": "--trust-remote-code"}, "is '--trust-remote-code', which SGLang would take for"),
    ],
)
def test_options_that_would_run_code_or_open_a_server_are_refused(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        SglangConfig(options=options)  # type: ignore[arg-type]


def test_others_are_taken() -> None:
    options = {"tp-size": 2, "context_length": 4096, "trust-remote-code": False, "log-level": "info", "schedule": -1}
    assert SglangConfig(options=options).options == options


# -- a start is given up for silence, and not for the time that it takes


def test_output_and_computation_are_progress_and_idling_is_none() -> None:
    progress = StartProgress(0.0)
    assert progress.silent_s(0, 0.1, 60.0) == 60.0  # a process that polls
    assert progress.silent_s(10, 0.1, 70.0) == 0.0
    assert progress.silent_s(10, 30.0, 100.0) == 0.0
    assert progress.silent_s(10, 30.5, 200.0) == 100.0


PROGRAM = """
import time
for _ in range(30):
    print("compiles", flush=True)
    time.sleep(0.05)
time.sleep(60)
"""


class Compiling(StartedEngine):
    """A process that says what goes on as often as asked, and never listens."""

    kind = "sglang"
    url = "http://localhost:1"

    def command(self, location: str, version: str) -> tuple[list[str], dict[str, str], list[int]]:
        return [sys.executable, "-c", PROGRAM], dict(os.environ), []


async def test_a_start_that_goes_on_is_waited_for_and_reported_and_a_silent_one_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_LOOK_S", 0.1)
    monkeypatch.setattr(engines, "_SAY_S", 0.3)

    async def never(self: EngineClient, token: int, timeout_s: float) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(EngineClient, "first_token", never)
    said: list[tuple[float, str]] = []
    settings = SamplerSettings(samplers=SamplersConfig(start_timeout_s=0.6), model="")
    one = Compiling(settings, "s", tmp_path, RealClock(), lambda *line: said.append(line))
    began = time.monotonic()
    with pytest.raises(EngineGone, match=r"no sign of life for .*: compiles"):
        await one.up(Weights(version=Version(lineage=0, step=0), location=""))
    assert time.monotonic() - began > 1.5, "it wrote for so long"
    assert said
    assert said[-1][1] == "compiles"
    await one.down()


def test_a_load_has_more_time_for_more_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(bytes(2_000_000))
    settings = SamplerSettings(samplers=SamplersConfig(load_timeout_s=5.0), model="")
    assert settings.load_limit_s(str(tmp_path)) == 5.02
    assert settings.load_limit_s("nowhere") == 5.0
