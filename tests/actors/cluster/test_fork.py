"""What a run that goes on from another's checkpoint begins with, and what it may not change."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from actors.cluster import cli
from actors.cluster.config import deploy_files
from actors.cluster.config.schema import Deploy
from actors.cluster.runs import requests
from actors.cluster.runs.run import claim, wanted
from actors.learner import probe
from actors.replay.messages import Phase
from policy import checkpoints
from runtime.errors import ConfigError
from tests.actors.cluster.fabricated import record
from tests.actors.replay.ledger_tools import Play, settings, step


def trunk(runs: Path, cause: str = "counted") -> Play:
    """A run that cloned two steps, made one of RL, played its last round and ended; 0.2 and 0.3 are checkpoints."""
    folder = runs / "trunk"
    for version in ("0.2", "0.3"):
        (folder / "checkpoints" / version).mkdir(parents=True)
        info = checkpoints.CheckpointInfo(version=version, has_reference=False, dtype="float32")
        (folder / "checkpoints" / version / checkpoints.MARKER).write_bytes(msgspec.json.encode(info))
    (folder / "segments").mkdir()
    (folder / "segments" / "seat-000000.seg").write_bytes(b"stored")
    (folder / probe.FILE).write_bytes(b"prompts")
    (folder / "run.json").write_bytes(msgspec.json.encode(record("trunk", file="smoke", verdict="ok")))
    (folder / "deploy.yaml").write_text(deploy_files.dump(deploy_files.load("smoke")[0]))
    play = Play(folder, settings(demos=2, rl_steps_in_all=1))
    play.demonstrate(2)
    play.phase(Phase.BC, steps=2)
    for _ in range(2):
        play.trained(play.batch())
    play.checkpointed("0.2")
    play.phase(Phase.RL, cause=cause)
    play.serving("0.2")
    play.group([True, False], "0.2")
    play.trained(play.batch())
    play.checkpointed("0.3")
    play.open_eval("final", "0.3", ["a/0"])
    play.commit(play.reserve(), True, [step("0.3")])
    assert play.figures().evals[0].closed
    play.phase(Phase.DONE)
    play.ledger.close()
    return play


def forked(runs: Path, play: Play, named: str) -> Play:
    requests.make_fork(requests.fork_point(named, runs), runs / "new")
    return Play(runs / "new", msgspec.structs.replace(play.settings, incarnation="new"))


def test_a_fork_goes_on_from_the_newest_checkpoint_as_if_the_run_had_not_ended(tmp_path: Path) -> None:
    (tmp_path / ".new.partial").mkdir()  # of a fork that was killed
    new = forked(tmp_path, trunk(tmp_path), "trunk")
    found = new.figures()
    assert (found.phase.phase, str(found.trained), found.demos) == (Phase.RL, "0.3", 2)
    assert found.successes_kept == 1, "the reservoir came along"
    assert not found.evals, "the last round is played again"
    assert [path.name for path in (tmp_path / "new" / "checkpoints").iterdir()] == ["0.3"]
    assert (tmp_path / "new" / "segments" / "seat-000000.seg").read_bytes() == b"stored"
    assert (tmp_path / "new" / probe.FILE).read_bytes() == b"prompts"
    assert not (tmp_path / "new" / "run.json").exists(), "it is claimed like any new run"
    requests.make_fork(requests.fork_point("trunk@0.2", tmp_path), tmp_path / "new")
    assert new.figures().trained == found.trained, "what was made already stays"


def test_a_fork_from_an_older_checkpoint_undoes_what_came_after_it(tmp_path: Path) -> None:
    new = forked(tmp_path, trunk(tmp_path), "trunk@0.2")
    new.resumed("1.2", "0.2")
    found = new.figures()
    assert (found.phase.phase, str(found.trained), found.steps.get("rl", 0)) == (Phase.RL, "1.2", 0)
    assert found.steps["bc"] == 2


def asked(*overrides: str) -> tuple[Deploy, str, list[str]]:
    return deploy_files.load("smoke", overrides)[0], "smoke", [*overrides]


def test_what_a_file_changes_of_a_fork_is_blamed_on_the_file_and_can_be_mended(tmp_path: Path) -> None:
    trunk(tmp_path)
    (tmp_path / "trunk" / "deploy.yaml").write_text(deploy_files.dump(asked("model.path=")[0]))
    point, deploy = requests.fork_point("trunk", tmp_path), asked("model.path=elsewhere")[0]
    with pytest.raises(ConfigError) as refused:
        requests.refuse_fork_changes(point, deploy, "mine.yaml", [])
    said = "trunk@0.3 was trained with the bundled model, which a fork keeps: give  --set model.path="
    assert str(refused.value) == f"mine.yaml: model.path: {said}"


def test_a_fork_is_refused_by_its_flag_or_by_its_key(tmp_path: Path) -> None:
    trunk(tmp_path)
    for named, said in (("trunk@0.9", r"no checkpoint 0\.9; did you mean 0\.3"), ("trnk", "no run trnk")):
        with pytest.raises(ConfigError, match=said):
            requests.fork_point(named, tmp_path)
    point = requests.fork_point("trunk", tmp_path)
    requests.refuse_fork_changes(point, *asked("run.seed=7", "learner.rl.epochs=3"))
    with pytest.raises(ConfigError, match=r"^--set learner\.dtype: trunk@0\.3 was trained with float32"):
        requests.refuse_fork_changes(point, *asked("learner.dtype=bfloat16"))
    words = ["run", "smoke", "--runs", str(tmp_path), "--from", "trunk"]
    (one,) = requests.resolve(wanted(cli.build_parser().parse_args([*words, "--name", "new"])))
    assert str(one.fork) == "trunk@0.3"
    with pytest.raises(ConfigError, match="--from: a run that goes on"):
        requests.resolve(wanted(cli.build_parser().parse_args([*words, "--resume", "--name", "trunk"])))


def test_a_fork_goes_on_from_before_a_trial_of_a_pulse_and_not_from_within_it(tmp_path: Path) -> None:
    trunk(tmp_path, cause="trial")
    assert requests.fork_point("trunk", tmp_path).version == "0.2"
    with pytest.raises(
        ConfigError, match=r"^--from trunk@0\.3: 0\.3 was made in a trial of a pulse; did you mean 0\.2"
    ):
        requests.fork_point("trunk@0.3", tmp_path)


def test_a_run_of_a_build_with_another_key_says_what_to_take_out(tmp_path: Path) -> None:
    trunk(tmp_path)
    file = tmp_path / "trunk" / "deploy.yaml"
    file.write_text(file.read_text().replace("entropulse:\n", "entropulse:\n  gone: 0\n"))
    words = ["run", "smoke", "--runs", str(tmp_path), "--from", "trunk", "--name", "new"]
    with pytest.raises(ConfigError, match=r"deploy\.yaml: unknown key entropulse\.gone; .*: take that line out to use"):
        requests.resolve(wanted(cli.build_parser().parse_args(words)))


def test_seeds_of_an_experiment_that_a_resume_begins_go_on_from_its_checkpoint_too(tmp_path: Path) -> None:
    runs = tmp_path / "of@me"
    trunk(runs)
    words = ["run", "smoke", "--runs", str(runs), "--name", "three"]
    begin = [*words, "--from", "trunk@0.2", "--seed", "0", "1"]
    first, _ = requests.resolve(wanted(cli.build_parser().parse_args(begin)))
    claim(first).end("stopped", "interrupted")
    begun, other = requests.resolve(wanted(cli.build_parser().parse_args([*words, "--resume"])))
    assert (begun.resume, begun.fork) == (True, None)
    assert (other.resume, str(other.fork)) == (False, "trunk@0.2")
