"""Options of SGLang's that are refused at planning, however they are spelled."""

from __future__ import annotations

import pytest

from actors.sampler.config import SglangConfig
from runtime.errors import ConfigError


@pytest.mark.parametrize("name", ["trust-remote-code", "trust_remote_code", "trust-remote_code", "trust-remote", "tr"])
@pytest.mark.parametrize("value", [True, "true", 1])
def test_a_model_folders_programs_are_never_run(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"samplers.engine.options.{name}: trust-remote-code is refused"):
        SglangConfig(options={name: value})


@pytest.mark.parametrize(
    "name", ["--trust-remote-code", "trust-remote-code=1", "Trust-Remote-Code", "x trust", "", "a--b"]
)
def test_a_name_is_an_option_and_nothing_more(name: str) -> None:
    with pytest.raises(ConfigError, match="without its dashes, like tp-size"):
        SglangConfig(options={name: True})


def test_no_value_is_an_option_of_its_own() -> None:
    with pytest.raises(ConfigError, match="disable-radix-cache is '--trust-remote-code', which SGLang would take for"):
        SglangConfig(options={"disable-radix-cache": "--trust-remote-code"})


def test_nor_is_a_file_of_options_named() -> None:
    with pytest.raises(ConfigError, match=r"options\.config: config is refused: it names a file of options"):
        SglangConfig(options={"config": "more.yaml"})


def test_others_are_taken() -> None:
    options = {"tp-size": 2, "context_length": 4096, "trust-remote-code": False, "log-level": "info", "schedule": -1}
    assert SglangConfig(options=options).options == options
