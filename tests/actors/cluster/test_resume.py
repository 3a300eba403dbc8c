"""The line that is printed to continue a run, run word for word, continues it; what says otherwise is refused."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
import pytest

from actors.cluster import cli
from actors.cluster.commands import flag_of
from actors.cluster.config import deploy_files, models, typed_yaml
from actors.cluster.config.schema import Deploy
from actors.cluster.evaluate import play as evaluated
from actors.cluster.evaluate import settings
from actors.cluster.report import show as report_show
from actors.cluster.runs import execute, requests, run_folder
from actors.cluster.runs.requests import RunRequest
from actors.cluster.runs.run import wanted
from actors.replay.database.ledger_file import connect
from runtime.errors import ConfigError
from runtime.program import program
from tests.actors.cluster.fabricated import record
from tests.actors.cluster.unplayed import AT, FILE, Broken, refused, told, unplayed


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Broken:
    return unplayed(tmp_path, monkeypatch)


def asked(*words: str) -> list[RunRequest]:
    return requests.resolve(wanted(cli.build_parser().parse_args(["run", *words, *AT])))


def stored(name: str) -> Deploy:
    return typed_yaml.read(Path("my runs") / name / "deploy.yaml", Deploy)


def test_seeds_become_runs_that_differ_in_nothing_else(broken: Broken) -> None:
    found = asked("my file.yaml", "--name", "e", "--seed", "3", "5", "3", "--set", "learner.sft.lr=0.5")
    assert [(one.folder.name, one.deploy.run.seed, one.experiment) for one in found] == [
        ("e-3", 3, "e"),
        ("e-5", 5, "e"),
    ]
    other = msgspec.structs.replace(found[1].deploy, run=found[0].deploy.run)
    assert other == found[0].deploy == deploy_files.load("my file.yaml", ["learner.sft.lr=0.5", "run.seed=3"])[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--seed", "3", "--set", "run.seed=1"], "--set run.seed=1: seeds are chosen with --seed"),
        (["--seed", "-3"], "--seed -3: run.seed is -3: "),
        (["--name", "a/b"], "--name a/b: letters, digits"),
        (["--resume"], "nothing to resume"),
        (["--resume", "--from", "trunk"], "--from: a run that goes on has its own checkpoint: leave it out"),
        (["--resume", "--seed", "3"], "nothing to resume: no experiment"),
        (["--runs", "/dev/null"], "/dev/null is no folder"),
        (["--set", "arms={}"], "unknown key arms"),
    ],
)
def test_what_can_not_begin_is_refused(
    broken: Broken, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [] if "--resume" in words or "--name" in words else ["--name", "e"]
    for more in ([], ["--dry-run"]):
        assert said in refused(capsys, "run", "my file.yaml", *AT, *named, *words, *more)
    assert not broken.begun


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [["3"], ["3", "5"]])
def test_an_experiment_goes_on_by_the_line_that_is_printed(
    broken: Broken, seeds: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    sets = ["--set", "learner.sft.lr=0.5", "--set", "run.require={bc_steps: 2, rl_steps: 1}"]
    status, line = cli.main(["run", "my file.yaml", "--seed", *seeds, *sets, "--name", "e", *AT]), told(capsys)
    for number, seed in enumerate(seeds, 1):
        assert (status, broken.begun[-1]) == (130, f"e-{seed}")
        status = cli.main(line)
        if number < len(seeds):
            line = told(capsys)
    assert status == 0
    assert broken.begun == [f"e-{seed}" for seed in seeds for _ in range(2)]
    assert {stored(f"e-{seed}").learner.sft.lr for seed in seeds} == {0.5}
    assert cli.main(line) == 0
    assert broken.begun == [f"e-{seed}" for seed in seeds for _ in range(2)], "what has ended is passed by"


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
    assert broken.begun == ["older", "e-3", "e-3", "e-5", "e-5"]
    while cli.main([*begin, "--resume", "--name", "e", "--seed", "7"]) == 130:
        pass
    assert broken.begun[-2:] == ["e-7", "e-7"], "more seeds of the same"
    assert {stored(f"e-{seed}").learner.sft.lr for seed in (3, 5, 7)} == {0.5}


def test_a_verdict_is_the_worst_of_all_seeds_and_their_report_stands_in_for_them(
    broken: Broken, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reported: list[list[str]] = []

    def report(paths: list[Path], out: Path, *, as_json: bool) -> int:
        reported.append([path.name for path in paths])
        raise ConfigError("drawing needs matplotlib")

    monkeypatch.setattr(report_show, "show", report)
    begin = ["run", "my file.yaml", "--seed", "3", "5", "--name", "e", *AT]
    assert [cli.main(begin), cli.main([*begin, "--resume"])] == [130, 130]
    broken.verdict = "failed"
    for name in ("e-3", "e-5"):
        connect(Path(f"my runs/{name}/ledger.sqlite"))[0].close()
    assert cli.main([*begin, "--resume"]) == 1
    assert reported == [["e-3", "e-5"]]
    assert "no report: drawing needs matplotlib" in capsys.readouterr().out
    assert [path.name for path in run_folder.of_experiment(Path("my runs"), "e")] == ["e-3", "e-5"]


def test_a_resume_that_says_something_else_is_refused(broken: Broken, capsys: pytest.CaptureFixture[str]) -> None:
    begin = ["run", "my file.yaml", *AT, "--set", "learner.sft.lr=0.5"]
    assert cli.main([*begin, "--name", "alone"]) == 130
    assert cli.main([*begin, "--name", "e", "--seed", "3"]) == 130
    line = told(capsys)
    assert "--name e: there is an experiment e" in refused(capsys, *begin, "--name", "e", "--seed", "5")
    on = ["run", "my file.yaml", "--resume", *AT]
    shown = refused(capsys, *on, "--name", "e", "--set", "learner.sft.lr=0.1")
    assert "--set learner.sft.lr=0.1: experiment e goes on as it was begun" in shown
    shown = refused(capsys, *on, "--name", "e-3")
    assert "--name e-3: it is a run of experiment e: continue that with" in shown
    assert shlex.join(line) in shown
    assert "no such experiment" in refused(capsys, *on, "--name", "f", "--seed", "3")
    shown = refused(capsys, "run", "smoke", "--resume", "--name", "alone", *AT)
    assert "FILE smoke: run alone was begun with my file.yaml: continue it with" in shown
    assert cli.main(["run", "my file.yaml", "--name", "e-5", *AT]) == 130
    shown = refused(capsys, *on, "--name", "e", "--seed", "5")
    assert "--name e: there is a run e-5 that is not of experiment e; give another --name" in shown


def test_a_run_says_that_its_file_has_changed(broken: Broken, capsys: pytest.CaptureFixture[str]) -> None:
    begin = ["run", "my file.yaml", "--name", "e", *AT]
    assert cli.main(begin) == 130
    assert cli.main([*begin, "--resume"]) == 0
    assert "has changed since" not in "".join(capsys.readouterr())
    Path("my file.yaml").write_text(FILE + "entropulse: {total_rl_steps: 7}\n")
    assert cli.main([*begin, "--resume"]) == 0
    said = capsys.readouterr().err
    assert said.count("my file.yaml has changed since: run e goes on as it was begun (--set") == 1
    assert stored("e").entropulse.total_rl_steps != 7


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
    assert "--set learner.sft.lr: run e has begun to clone" in shown
    assert cli.main([*on, "entropulse.total_rl_steps=60"]) == 0
    assert cli.main([*on, "learner.parallel.data=2"]) == 0, "checkpoints go on at any layout of ranks"
    connection.execute("INSERT INTO stays VALUES(1, 1, 'done', NULL, '0.0', 0, 'counted', '{}', 2.0)")
    connection.close()
    shown = refused(capsys, *on, "desktops.count=3", "--set", "entropulse.total_rl_steps=61")
    assert "--set entropulse.total_rl_steps: run e has begun its last evaluation" in shown
    assert cli.main([*on, "desktops.count=2", "--set", "run.log_level=debug"]) == 0, "of what is left"


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("my file.yaml", "run 'my file.yaml' --resume --name x"),
        ("eval my model", "eval --resume --name x"),
        ("demos record my suite.yaml", "demos record --resume --name x"),
    ],
)
def test_the_line_names_the_command_that_made_the_run(
    file: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run_folder.claim(Path("runs/x"), record("x", file=file), resume=False).end("stopped", None)
    assert run_folder.to_continue(record("x", file=file), Path("runs/x")) == f"{program()} {expected}"
    if not file.startswith("my"):
        Path("x.yaml").write_text(FILE)
        assert expected in refused(capsys, "run", "x.yaml", "--resume", "--name", "x")


STAYS = {"help", "model", "against", "name", "resume", "out", "runs", "json"}
SAMPLES = {
    "at": ["final"], "tasks": ["desktop"], "like": ["local"], "split": ["held-out"], "instances": ["3"], "first": ["0"],
    "untrained": [], "episodes": ["1"], "decoding": ["greedy"], "desktops": ["2"], "format": ["compact"],
    "max_turns": ["9"],
    "model_name": ["m"], "api_key_env": ["KEY"], "screen": ["800x600"], "max_tokens": ["9"],
    "overrides": ["run.seed=1"], "observation": ["both"], "coordinates": ["pixels"], "prompt": ["tags"],
}  # fmt: skip


@pytest.mark.slow
def test_an_evaluation_goes_on_as_it_was_begun_or_not_at_all(
    broken: Broken, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path("my runs/seen")
    begun = record("seen", file="eval base")
    begun.weights = run_folder.NamedWeights(folder=str(models.bundled()), name="base")
    run_folder.claim(folder, begun, resume=False).end("stopped", None)
    (folder / "deploy.yaml").write_text(deploy_files.dump(Deploy()))
    parser = cli.build_parser().parse_args(["eval"]).parser
    assert {action.dest for action in parser._actions} - STAYS == set(settings.FLAGS) == set(SAMPLES)
    for name, words in SAMPLES.items():
        shown = refused(capsys, "eval", "base", "--resume", flag_of(name), *words, *AT)
        assert f"{flag_of(name)}: --resume goes on as the evaluation was begun: leave it out" in shown
    shown = refused(capsys, "eval", str(models.bundled()), "--resume", *AT)
    assert f"MODEL {models.bundled()}: evaluation seen was begun with base: leave it out" in shown
    assert "no training run" in refused(capsys, "eval", "last", "--resume", *AT)
    assert "name a MODEL" in refused(capsys, "eval", "--tasks", "desktop", *AT)
    assert not broken.begun
    monkeypatch.setattr(evaluated, "result", lambda *_, **__: None)
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


def test_a_run_of_its_own_is_a_list_of_one(broken: Broken) -> None:
    (one,) = asked("my file.yaml", "--name", "one", "--set", "run.seed=4")
    assert (one.folder, one.deploy.run.seed, one.experiment, one.resume) == (Path("my runs/one"), 4, "", False)
    assert not Path("my runs").exists(), "resolving writes nothing"
    assert cli.main(["run", "my file.yaml", "--name", "one", *AT]) == 130
    (again,) = asked("my file.yaml", "--resume")
    assert (again.folder, again.resume, again.ended) == (one.folder, True, None)


def test_what_is_newest_goes_on_whatever_was_there_before(broken: Broken, capsys: pytest.CaptureFixture[str]) -> None:
    begin = ["run", "my file.yaml", *AT]
    assert cli.main([*begin, "--name", "alone"]) == 130
    assert cli.main([*begin, "--resume"]) == 0
    assert broken.begun == ["alone", "alone"]
    assert cli.main([*begin, "--seed", "3", "--name", "e"]) == 130
    assert cli.main([*begin, "--name", "newest"]) == 130
    assert cli.main([*begin, "--resume"]) == 0
    assert broken.begun[-2:] == ["newest", "newest"]


def test_the_last_recording_stays_what_it_was_when_a_run_began(broken: Broken) -> None:
    assert cli.main(["run", "my file.yaml", "--name", "d", *AT]) == 130
    connect(Path("my runs/d/ledger.sqlite"))[0].close()
    for words in ([], ["--seed", "3"]):
        (one,) = asked("my file.yaml", "--name", "e", "--set", "demos.source=last", *words)
        assert one.asked is not None
        assert (one.asked.overrides, one.deploy.demos.source) == (["demos.source=d"], "d")


def test_a_changed_file_gets_no_more_seeds(broken: Broken, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "my file.yaml", "--seed", "5", "--name", "e", *AT]) == 130
    line = told(capsys)
    Path("my file.yaml").write_text(FILE.replace("count: 1", "count: 2"))
    assert "my file.yaml: it has changed since e-5 was begun with it" in refused(capsys, *line)
    Path("my file.yaml").write_text(FILE + "# more of the same\n")
    assert cli.main(line) == 0


def test_what_was_evaluated_or_recorded_is_no_run_of_a_file_called_alike(tmp_path: Path) -> None:
    for name, file in (("a", "moved/local.yaml"), ("b", "eval runs/local"), ("c", "demos record suites/local.yaml")):
        run_folder.claim(tmp_path / name, record(name, file=file), resume=False).end("ok", None)
    assert requests._run_of(tmp_path, None, "local").name == "a"
