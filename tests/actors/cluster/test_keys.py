"""`computerrl keys`: every key that a deploy file may set, with what it means."""

from __future__ import annotations

import json
import re

import pytest

from actors.cluster import cli
from actors.cluster.config import deploy_files, keys, typed_yaml
from actors.cluster.config.schema import DeployFile

KNOWN = keys.of_deploy()
LONGEST = 22  # words of a sentence


def test_every_key_that_a_file_may_set_is_told_and_no_other() -> None:
    settable = set(typed_yaml.paths(DeployFile))
    told = {one.key for one in KNOWN if "[]" not in one.key}
    tags = {"desktops.provider.type", "samplers.engine.type"}
    assert told - tags == settable - tags


KINDS = r"\((sandbox|ssh|container|qemu|e2b|oracle|endpoint|embedded|sglang)\) "
ELSEWHERE = ("samplers.engine.", "model.endpoint.", "desktops.network.")  # of sections that a file without them has not


def test_each_default_is_what_a_file_without_it_gets() -> None:
    for one in KNOWN:
        if one.default is None or "[]" in one.key or one.key.startswith(ELSEWHERE) or re.match(KINDS, one.meaning):
            continue
        made = typed_yaml.build({}, DeployFile, [f"{one.key}={one.default}"], source="x")
        assert made == DeployFile(), one.key
        assert deploy_files.dump(made) == deploy_files.dump(DeployFile())


@pytest.mark.parametrize("one", KNOWN, ids=lambda one: one.key)
def test_a_meaning_begins_with_a_verb_and_its_sentences_are_short(one: keys.Key) -> None:
    meaning = re.sub(KINDS, "", one.meaning)
    assert re.match(r"[A-Z][a-z]+s ", meaning), meaning
    for sentence in re.split(r"(?<=[.;:]) ", meaning):
        assert len(sentence.split()) <= LONGEST, sentence
    if re.search(r"_(s|ms|mib|gib)$", one.key):
        assert re.search(r"second|\bms\b|MiB|GiB", meaning), "it names its unit"


def test_a_word_is_looked_for_in_names_choices_and_meanings(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["keys", "STALENESS"]) == 0
    assert capsys.readouterr().out == (
        "replay.max_staleness = 1   whole number\n"
        "    Limits how many versions old a batch may be. 0 lets acting and learning not overlap.\n"
    )
    assert cli.main(["keys", "samplers.engine", "--json"]) == 0
    kind, *rest = json.loads(capsys.readouterr().out)
    assert (kind["key"], kind["type"], kind["default"]) == ("samplers.engine.type", "embedded | sglang", "embedded")
    assert {one["advanced"] for one in rest} == {True}
    assert cli.main(["keys", "trajectory_mean"]) == 0
    assert capsys.readouterr().out.startswith("learner.loss_aggregation = token_mean"), "or in choices"
    assert cli.main(["keys", "demos.demonstrators[].url"]) == 0
    assert "demos.demonstrators[].url (no default)   text\n    (endpoint) Gives" in capsys.readouterr().out


def test_the_schema_of_the_bundled_files_is_that_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["keys", "--schema"]) == 0
    folder = deploy_files.bundled()["local"].parent
    made = capsys.readouterr().out
    assert (folder / "schema.json").read_text("utf-8") == made, "computerrl keys --schema > deploy/schema.json"
    for file in deploy_files.bundled().values():
        assert file.read_text("utf-8").startswith("# yaml-language-server: $schema=schema.json\n"), file
    schema = json.loads(made)
    learner = schema["$defs"]["RlConfig"]["properties"]["lr"]
    assert learner == {
        "description": "Sets the learning rate of RL.", "type": "number", "exclusiveMinimum": 0, "default": 0.0002
    }  # fmt: skip
    assert schema["$defs"]["SandboxConfig"]["required"] == []
    assert set(schema["$defs"]["DeployFile"]["properties"]) == set(DeployFile.__struct_fields__)
    assert all(shape["additionalProperties"] is False for shape in schema["$defs"].values() if "properties" in shape)
    assert schema["$defs"]["SshConfig"]["required"] == ["type", "machines"]
