"""The line that is printed to continue a run, run word for word, continues it; what says otherwise is refused."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.cluster import cli
from actors.cluster.config import deploy_files, models, typed_yaml
from actors.cluster.config.schema import Deploy
from actors.cluster.evaluate import play, settings, show
from actors.cluster.runs import execute, experiment, resume, run_folder
from actors.cluster.runs.run_folder import Asked, RunRecord
from actors.cluster.runs.weights import NamedWeights
from actors.replay.database.schema import connect
from runtime.errors import ConfigError
from runtime.program import program
from tests.actors.cluster.unplayed import AT, FILE, Broken, refused, told, unplayed


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Broken:
    return unplayed(tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "runs"),
    [
        (["my file.yaml", "--seed", "3"], ["demos", "3"]),
        (["my file.yaml", "--seed", "3", "5"], ["demos", "3", "5"]),
        (["my arms.yaml"], ["demos", "cloning-3", "near-3", "far-3", "cloning-5", "near-5", "far-5"]),
        (["my arms.yaml", "--arm", "far", "--seed", "5"], ["demos", "cloning-5", "far-5"]),
    ],
)
def test_an_experiment_goes_on_by_the_line_that_is_printed(
    broken: Broken, words: list[str], runs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    sets = ["--set", "learner.sft.lr=0.5", "--set", "run.require={bc_steps: 2, rl_steps: 1}"]
    status, line = cli.main(["run", *words, *sets, "--name", "e", *AT]), told(capsys)
    for number, run in enumerate(runs, 1):
        assert status == 130
        assert broken.begun[-1] == f"e-{run}"
        status = cli.main(line)
        if number < len(runs):
            line = told(capsys)
    assert status == 0
    assert broken.begun == [f"e-{run}" for run in runs for _ in range(2)]
    for run in runs:
        deploy = typed_yaml.read(Path("my runs") / f"e-{run}" / "deploy.yaml", Deploy)
        assert deploy.learner.sft.lr == 0.5
        assert deploy.run.require.rl_steps == (0 if "cloning" in run else 1)


@pytest.mark.parametrize("named", [["--name", "e"], []])
@pytest.mark.slow
def test_what_a_resume_does_not_say_is_as_it_was_begun(
    broken: Broken, named: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    begin = ["run", "my file.yaml", *AT]
    assert cli.main([*begin, "--name", "older"]) == 130
    assert cli.main([*begin, "--seed", "3", "5", "--set", "learner.sft.lr=0.5", "--name", "e"]) == 130
    while cli.main([*begin, "--resume", *named]) == 130:
        pass
    assert broken.begun == ["older", "e-demos", "e-demos", "e-3", "e-3", "e-5", "e-5"]
    assert typed_yaml.read(Path("my runs/e-5/deploy.yaml"), Deploy).learner.sft.lr == 0.5
    while cli.main([*begin, "--resume", "--name", "e", "--seed", "7"]) == 130:
        pass
    assert broken.begun[-2:] == ["e-7", "e-7"], "more seeds of the same"
    assert typed_yaml.read(Path("my runs/e-7/deploy.yaml"), Deploy).learner.sft.lr == 0.5


def test_what_is_newest_goes_on_whatever_was_there_before(broken: Broken, capsys: pytest.CaptureFixture[str]) -> None:
    begin = ["run", "my file.yaml", *AT]
    assert cli.main([*begin, "--name", "alone"]) == 130
    assert cli.main([*begin, "--resume"]) == 0
    assert broken.begun == ["alone", "alone"]
    assert cli.main([*begin, "--seed", "3", "--name", "e"]) == 130
    assert cli.main([*begin, "--name", "newest"]) == 130
    assert cli.main([*begin, "--resume"]) == 0
    assert broken.begun[-2:] == ["newest", "newest"]


def test_a_recording_is_finished_as_it_was_begun(broken: Broken) -> None:
    begin = ["run", "my file.yaml", "--name", "e", *AT]
    assert cli.main([*begin, "--seed", "3"]) == 130
    assert cli.main([*begin, "--seed", "1", "3", "--resume"]) == 130
    assert broken.begun == ["e-demos", "e-demos", "e-1"]
    assert typed_yaml.read(Path("my runs/e-demos/deploy.yaml"), Deploy).run.seed == 3


@pytest.mark.parametrize(
    ("begun", "said", "expected"),
    [
        ([], ["learner.sft.lr=0.5"], "--set learner.sft.lr=0.5: experiment e was begun with no --set: leave it out"),
        (["learner.sft.lr=0.5"], ["learner.sft.lr=0.50"], ""),
        (["learner.sft.lr=0.5"], ["learner.sft.lr=0.1"], "begun with --set learner.sft.lr=0.5: leave it out"),
        (["run.require={bc_steps: 2}", "learner.sft.lr=0.5"], ["run.require.bc_steps=2"], ""),
        (
            ["run.require={bc_steps: 2}"],
            ["run.require.bc_steps=2", "replay.max_staleness=3"],
            "--set replay.max_staleness=3: experiment e was begun with --set 'run.require={bc_steps: 2}': leave it out",
        ),
        ([], ["learner.sft.lrr=1"], "did you mean learner.sft.lr?"),
        (["learner.sft.lr=0.1", "learner.sft.lr=0.5"], ["learner.sft.lr=0.1", "learner.sft.lr=0.5"], ""),
    ],
)
def test_another_set_is_refused_and_the_same_otherwise_said_is_not(
    broken: Broken, begun: list[str], said: list[str], expected: str
) -> None:
    def asked(overrides: list[str], *seeds: int) -> Asked:
        return Asked(seeds=list(seeds), overrides=overrides)

    if expected:
        with pytest.raises(ConfigError) as caught:
            experiment.resumed("my file.yaml", "e", asked(begun, 3), asked(said))
        assert expected in str(caught.value)
    else:
        assert experiment.resumed("my file.yaml", "e", asked(begun, 3), asked(said, 4)) == asked(begun, 4)
    assert experiment.resumed("my file.yaml", "e", None, asked(said, 4)) == asked(said, 4), "an older build's"


def test_a_resume_that_says_something_else_is_refused(broken: Broken, capsys: pytest.CaptureFixture[str]) -> None:
    begin = ["run", "my file.yaml", *AT, "--set", "learner.sft.lr=0.5"]
    assert cli.main([*begin, "--name", "alone"]) == 130
    assert cli.main([*begin, "--name", "e", "--seed", "3"]) == 130
    line = told(capsys)
    assert cli.main(line) == 130  # its recording is done, its run is begun
    capsys.readouterr()
    on = ["run", "my file.yaml", "--resume", *AT]
    shown = refused(capsys, *on, "--name", "e", "--set", "learner.sft.lr=0.1")
    assert "--set learner.sft.lr=0.1: experiment e was begun with --set learner.sft.lr=0.5" in shown
    shown = refused(capsys, *on, "--name", "e-3")
    assert "--name e-3: it is a run of experiment e: continue that with" in shown
    assert shlex.join(line) in shown
    shown = refused(capsys, "run", "smoke", "--resume", "--name", "alone", *AT)
    assert "FILE smoke: run alone was begun with my file.yaml: continue it with" in shown
    older = msgspec.structs.replace(run_folder.read_record(Path("my runs/e-3")), asked=None)
    (Path("my runs/e-3") / "run.json").write_bytes(msgspec.json.encode(older))
    assert "--seed 3 --resume --name e" in run_folder.to_continue(older, Path("my runs/e-3"))


@pytest.mark.slow
def test_a_run_goes_on_with_what_it_was_made_with(broken: Broken, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "my file.yaml", *AT, "--name", "e"]) == 130
    on = ["run", "my file.yaml", "--resume", "--name", "e", *AT, "--set"]
    assert "--set run.seed: run e has 0, which it keeps" in refused(capsys, *on, "run.seed=5")
    shown = refused(capsys, *on, "learner.rl.advantage=trajectory")
    assert "--set learner.rl.advantage: run e has step, which it keeps" in shown
    shown = refused(capsys, *on, "learner.advantage=trajectory")
    assert "unknown key learner.advantage; did you mean learner.rl.advantage?" in shown
    connection, _ = connect(Path("my runs/e/ledger.sqlite"))
    for key, value, was in (("model.path", "other", ""), ("prompt.format", "published", "compact")):
        assert f"--set {key}: run e has {was}, which it keeps" in refused(capsys, *on, f"{key}={value}")
    assert cli.main([*on, "entropulse.bc_steps=90"]) == 0, "cloning has not begun"
    connection.execute("INSERT INTO stays VALUES(0, 0, 'rl', NULL, '0.0', 0, 'begin', '{}', 1.0)")
    shown = refused(capsys, *on, "learner.sft.lr=0.5")
    assert "--set learner.sft.lr: run e has begun to clone as it was told" in shown
    assert cli.main([*on, "entropulse.total_rl_steps=60"]) == 0
    assert cli.main([*on, "learner.parallel.data=2"]) == 0, "checkpoints go on at any layout of ranks"
    connection.execute("INSERT INTO stays VALUES(1, 1, 'done', NULL, '0.0', 0, 'counted', '{}', 2.0)")
    connection.close()
    shown = refused(capsys, *on, "desktops.count=3", "--set", "entropulse.total_rl_steps=61")
    assert "--set entropulse.total_rl_steps=61: run e has begun its last evaluation" in shown
    assert cli.main([*on, "desktops.count=2", "--set", "run.log_level=debug"]) == 0, "of what is left"


def record(name: str, file: str, **more: Any) -> RunRecord:
    return RunRecord(name=name, file=file, seed=7, build="", versions={}, started="", started_s=1.0, **more)


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("my file.yaml", "run 'my file.yaml' --resume --name x"),
        ("eval my model", "eval --resume --name x"),
        ("demos record my suite.yaml", "demos record --resume --name x"),
        ("demos import my demos.jsonl", "demos import 'my demos.jsonl' x"),
    ],
)
def test_the_line_names_the_command_that_made_the_run(
    file: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_folder.claim(Path("runs/x"), record("x", file), resume=False).end("stopped", None)
    assert run_folder.to_continue(record("x", file), Path("runs/x")) == f"{program()} {expected}"
    if not file.startswith("my"):
        Path("x.yaml").write_text(FILE)
        assert expected in refused(capsys, "run", "x.yaml", "--resume", "--name", "x")


def test_what_was_evaluated_or_recorded_is_no_run_of_a_file_called_alike(tmp_path: Path) -> None:
    for name, file in (("a", "local"), ("b", "eval runs/local"), ("c", "demos record suites/local.yaml")):
        run_folder.claim(tmp_path / name, record(name, file), resume=False).end("ok", None)
    assert run_folder.newest_of(tmp_path, "local", "local").name == "a"


STAYS = {"help", "model", "against", "name", "resume", "out", "osworld_out", "runs", "json"}
SAMPLES = {
    "at": ["final"], "tasks": ["desktop"], "like": ["local"], "split": ["held-out"], "instances": ["3"], "first": ["0"],
    "untrained": [], "episodes": ["1"], "decoding": ["greedy"], "desktops": ["2"], "format": ["compact"],
    "max_turns": ["9"], "seed": ["0"], "attach": ["http://x"], "engine": ["embedded"],
    "model_name": ["m"], "api_key_env": ["KEY"], "screen": ["800x600"], "max_tokens": ["9"],
    "overrides": ["run.seed=1"], "observation": ["both"], "coordinates": ["pixels"], "prompt": ["tags"],
}  # fmt: skip


@pytest.mark.slow
def test_an_evaluation_goes_on_as_it_was_begun_or_not_at_all(
    broken: Broken, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path("my runs/seen")
    run_folder.claim(folder, record("seen", "eval base"), resume=False).end("stopped", None)
    (folder / "deploy.yaml").write_text(deploy_files.dump(Deploy()))
    (folder / play._EVALUATED).write_bytes(msgspec.json.encode(NamedWeights(folder=str(models.bundled()), name="base")))
    parser = cli.build_parser().parse_args(["eval"]).parser
    assert {action.dest for action in parser._actions} - STAYS == set(settings.FLAGS) == set(SAMPLES)
    for name, words in SAMPLES.items():
        shown = refused(capsys, "eval", "base", "--resume", resume.flag_of(name), *words, *AT)
        assert f"{resume.flag_of(name)}: --resume goes on as the evaluation was begun: leave it out" in shown
    shown = refused(capsys, "eval", str(models.bundled()), "--resume", *AT)
    assert f"MODEL {models.bundled()}: evaluation seen was begun with base: leave it out" in shown
    assert "no training run" in refused(capsys, "eval", "last", "--resume", *AT)
    assert "name a MODEL" in refused(capsys, "eval", "--tasks", "desktop", *AT)
    assert not broken.begun
    monkeypatch.setattr(show, "result", lambda *_, **__: None)
    line = shlex.split(run_folder.to_continue(run_folder.read_record(folder), folder))[1:]
    assert line == ["eval", "--resume", "--name", "seen", *AT]
    assert cli.main(line) == 0
    assert cli.main(["eval", "base", "--resume", *AT]) == 0
    assert broken.begun == ["seen"], "what has ended is shown again and not started"
    assert run_folder.read_record(folder).file == "eval base"


def test_a_recording_goes_on_as_it_was_begun_or_not_at_all(broken: Broken, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demos", "record", "--deploy", "my file.yaml", "--name", "cold", *AT]) == 130
    line = told(capsys)
    again = ["demos", "record", "--resume", *AT]
    for words, said in (
        (["--deploy", "local"], "--deploy local: recording cold was begun with --deploy my file.yaml"),
        (["--tasks", "text_editor/train/1"], "--tasks text_editor/train/1: recording cold was begun with"),
        (["--set", "demos.count=3"], "--set: --resume goes on as the recording was begun"),
    ):
        assert said in refused(capsys, *again, *words)
    assert cli.main(line) == 0
    assert cli.main([*again, "--deploy", "my file.yaml"]) == 0
    assert broken.begun == ["cold"] * 2, "the last had ended"


@pytest.mark.slow
def test_a_file_that_says_something_else_by_now_is_refused(broken: Broken, capsys: pytest.CaptureFixture[str]) -> None:
    """What is begun later has the settings that the first runs were begun with."""
    file = Path("my arms.yaml")
    text = file.read_text()
    assert cli.main(["run", str(file), "--seed", "5", "--name", "e", *AT]) == 130
    line = told(capsys)
    file.write_text(text.replace("count: 1", "count: 2"))
    assert "my arms.yaml: it has changed since e-demos was begun with it" in refused(capsys, *line)
    file.write_text(text.replace("seeds: [3, 5]", "seeds: [3, 5, 8]  # more of the same"))
    while cli.main(line) == 130:
        pass
    capsys.readouterr()
    file.write_text(text.replace("max_staleness: 4", "max_staleness: 5"))
    assert "it has changed since e-far-5 was begun with it" in refused(capsys, *line)


@pytest.mark.slow
def test_arms_begin_where_another_run_has_cloned(broken: Broken, capsys: pytest.CaptureFixture[str]) -> None:
    begin = ["run", "my arms.yaml", "--seed", "3", *AT]
    assert cli.main([*begin, "--name", "e"]) == 130
    line = told(capsys)
    while broken.begun[-1] != "e-near-3":
        cli.main(line)
    capsys.readouterr()
    weights = str((Path("my runs") / "e-cloning-3" / "weights" / "0.7").resolve())
    later = [*begin, "--cloned", "e-cloning-3", "--arm", "far", "--name", "f"]
    assert cli.main(later) == 130
    line = told(capsys)
    assert "--cloned" in line
    shown = refused(capsys, *line[:2], "--resume", "--name", "f", "--cloned", "e-near-3", *AT)
    assert "--cloned e-near-3: experiment f was begun with --cloned e-cloning-3" in shown
    while cli.main([*line, "--arm", "far", "near"]) == 130:  # another arm later
        pass
    assert broken.begun[-4:] == ["f-far-3", "f-far-3", "f-near-3", "f-near-3"]
    for name in ("f-far-3", "f-near-3"):
        deploy = typed_yaml.read(Path("my runs") / name / "deploy.yaml", Deploy)
        assert (deploy.model.path, deploy.demos.count, deploy.entropulse.bc_steps) == (weights, 0, 0)
    alone = ["run", "my file.yaml", "--cloned", "e-cloning-3", "--name", "alone", *AT]
    assert "it was cloned with seed 3, not 0" in refused(capsys, *alone)
    assert cli.main([*alone, "--set", "run.seed=3"]) == 130
    assert typed_yaml.read(Path("my runs/alone/deploy.yaml"), Deploy).model.path == weights
    line = told(capsys)
    assert "--cloned" not in line
    assert "--cloned: a run goes on with what it has: leave it out" in refused(capsys, *line, "--cloned", "e-cloning-3")
    assert run_folder.read_record(Path("my runs/alone")).cloned_in == "e-cloning-3"
    shown = refused(capsys, *begin, "--cloned", "f-far-3", "--name", "g")
    assert "--cloned f-far-3: it began from what e-cloning-3 had cloned: name that" in shown


@pytest.mark.slow
def test_last_stays_what_it_was_when_an_experiment_began(broken: Broken, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "my arms.yaml", "--seed", "3", "--name", "e", *AT]) == 130
    line = told(capsys)
    while broken.begun[-1] != "e-near-3":
        cli.main(line)
    capsys.readouterr()
    later = ["run", "my arms.yaml", "--seed", "3", "--cloned", "last", "--name", "f", *AT]
    assert cli.main(later) == 130
    line = told(capsys)
    assert line[line.index("--cloned") + 1] == "e-cloning-3"
    shutil.copytree(models.bundled(), Path("my runs/f-near-3/weights/0.9"))
    while cli.main(line) == 130:
        pass
    assert {run_folder.read_record(Path("my runs") / name).cloned_in for name in ("f-near-3", "f-far-3")} == {
        "e-cloning-3"
    }


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--seed", "5", "--cloned", "e-cloning-3"], "it was cloned with seed 3, not 5: say --seed 3"),
        (
            ["--seed", "3", "--cloned", "e-cloning-3", "--set", "learner.sft.lr=0.5"],
            "--cloned e-cloning-3: it was cloned with another learner.sft.lr than the deploy file says",
        ),
        (
            ["--seed", "3", "--cloned", "e-cloning-3", "--set", "tasks.max_turns=5"],
            "it was cloned with another tasks.max_turns than",
        ),
        (["--seed", "3", "--cloned", "e-clonin-3"], "did you mean e-cloning-3?"),
        (["--seed", "3", "--cloned", "e-demos"], "run e-demos holds no weights"),
    ],
)
def test_weights_that_were_cloned_otherwise_are_refused(
    broken: Broken, words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = ["run", "my arms.yaml", *AT]
    cli.main([*begin, "--seed", "3", "--name", "e"])
    line = told(capsys)
    while "e-cloning-3" not in broken.begun:
        cli.main(line)
    capsys.readouterr()
    shown = refused(capsys, *begin, "--name", "f", "--seed", "3", "--cloned", "e-cloning-3")
    assert "--cloned e-cloning-3: it is not done with cloning: stopped" in shown
    cli.main(line)
    capsys.readouterr()
    assert expected in refused(capsys, *begin, "--name", "f", *words)


def test_a_resume_of_what_has_ended_starts_nothing(broken: Broken, capsys: pytest.CaptureFixture[str]) -> None:
    begin = ["run", "my file.yaml", "--name", "one", *AT]
    assert cli.main(begin) == 130
    assert cli.main([*begin, "--resume"]) == 0
    record = Path("my runs/one/run.json").read_bytes()
    capsys.readouterr()
    assert cli.main([*begin, "--resume"]) == 0
    said = capsys.readouterr().out
    assert "run one has ended: ok" in said
    assert "computerrl report one --runs 'my runs'" in said
    assert (broken.begun, Path("my runs/one/run.json").read_bytes()) == (["one", "one"], record)
    assert cli.main([*begin, "--resume", "--set", "run.limit_s=9"]) == 0, "with other settings it goes on"
    assert broken.begun == ["one"] * 3


def test_a_run_that_its_time_limit_ended_goes_on(broken: Broken) -> None:
    begin = ["run", "my file.yaml", "--name", "one", *AT]
    assert cli.main(begin) == 130
    folder = Path("my runs/one")
    record = run_folder.read_record(folder)
    for reason, begun in ((f"{execute.OUT_OF_TIME}; 1 of 2 steps", 2), ("0 of 2 steps", 2)):
        ended = msgspec.structs.replace(record, ended="now", verdict="failed", reason=reason)
        (folder / "run.json").write_bytes(msgspec.json.encode(ended))
        cli.main([*begin, "--resume"])
        assert len(broken.begun) == begun
