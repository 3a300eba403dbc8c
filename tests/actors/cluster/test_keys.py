"""`computerrl keys`: every key that a deploy file may set, with what it means."""

from __future__ import annotations

import json
import re

import pytest

from actors.cluster import cli
from actors.cluster.config import deploy_files, keys, typed_yaml
from actors.cluster.config.schema import EXPERT, Deploy
from actors.cluster.config.typed_yaml import build
from actors.sampler.config import SglangConfig
from runtime.errors import ConfigError

KNOWN = keys.of_deploy()


def test_every_key_that_a_file_may_set_is_told_and_no_other() -> None:
    settable = set(typed_yaml.paths(Deploy))
    told = {one.key for one in KNOWN if "[]" not in one.key}
    tags = {"desktops.provider.type", "samplers.engine.kind"}
    assert told - tags == settable - tags
    assert {one.key for one in KNOWN if one.expert} == EXPERT


@pytest.mark.parametrize("one", KNOWN, ids=lambda one: one.key)
def test_each_has_a_meaning_and_the_default_that_a_file_without_it_gets(one: keys.Key) -> None:
    assert one.meaning
    if one.default is None or "[]" in one.key:
        return
    word = f"{one.key}={one.default}"
    if re.match(r"samplers\.engine\.(?!kind)", one.key):  # of the engine that is not the default one
        with pytest.raises(ConfigError, match="sglang"):
            build({}, Deploy, [word], source="x")
        word = f"samplers.engine={{kind: sglang, {one.key.rpartition('.')[2]}: {one.default}}}"
        assert build({}, Deploy, [word], source="x").samplers.engine == SglangConfig()
        return
    made = build({}, Deploy, [word], source="x")
    assert made == Deploy()
    assert deploy_files.dump(made) == deploy_files.dump(Deploy())


def test_a_word_is_looked_for_in_names_and_meanings(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["keys", "STALENESS"]) == 0
    assert capsys.readouterr().out == (
        "replay.max_staleness = 1   whole number\n    S, versions; 0 gives no overlap of acting and learning\n"
    )
    assert cli.main(["keys", "samplers.engine", "--json"]) == 0
    kind, *rest = json.loads(capsys.readouterr().out)
    assert (kind["key"], kind["type"], kind["default"]) == ("samplers.engine.kind", "embedded | sglang", "embedded")
    assert {one["expert"] for one in rest} == {True}
    assert cli.main(["keys", "demos.pool[].url"]) == 0
    assert "demos.pool[].url (no default)   text\n    (endpoint) up to" in capsys.readouterr().out
    assert cli.main(["keys", "lerner.rl_lr"]) == 2
    assert "did you mean learner.rl_lr?" in capsys.readouterr().err
    assert cli.main(["keys", "stale.max"]) == 2
    assert "all are listed without a word" in capsys.readouterr().err


def test_a_comment_stands_beside_its_field_or_right_above_it() -> None:
    source = '''class A(B):
    """Doc: of it."""

    one: int = 1  # of one
    # of two,
    # and more
    two: str = "#"
    three: dict[str, int] = {  # of three
        "a": 1,
    }
    four: int = 4

    def five(self) -> None:
        x: int = 1  # of none
'''
    found = keys._read(source)
    assert {name: found.get(name) for name in ("one", "two", "three", "four")} == {
        "one": "of one", "two": "of two, and more", "three": "of three", "four": None,
    }  # fmt: skip
