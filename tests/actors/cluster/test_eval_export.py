"""Weights located by name, evaluated on real desktops, and exported."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.cluster import cli
from actors.cluster.config import deploy_files, models, suites
from actors.cluster.config.schema import Deploy
from actors.cluster.config.typed_yaml import build, read
from actors.cluster.evaluate import play as evaluated
from actors.cluster.evaluate import settings
from actors.cluster.runs import doctor, evaluation_rounds, execute, run_folder, weights
from actors.cluster.runs import run as runcommand
from actors.cluster.runs.run_folder import claim
from runtime import system
from runtime.errors import ConfigError
from tests.actors.cluster.fabricated import Fabricated, record

COMMAND = [sys.executable, "-P", "-m", "actors.cluster.cli"]
TASKS = [f"text_editor/held-out/{n}" for n in range(2)]


@pytest.fixture
def runs(tmp_path: Path, state_dir: str) -> Path:
    """A fabricated run `mine` with three rounds; the weights of the one in the middle are gone."""
    made = Fabricated(tmp_path / "runs" / "mine", seed=3)
    provider = {"type": "sandbox", "state_dir": state_dir}
    data = {"tasks": {"eval": TASKS, "max_turns": 3}, "desktops": {"count": 2, "provider": provider}}
    (made.path / "deploy.yaml").write_text(deploy_files.dump(build(data, Deploy, source="x")))
    for place in ("kept/0.5", "weights/0.9", "weights/0.10"):
        shutil.copytree(models.bundled(), made.path / place)
    for number, (name, version) in enumerate((("after_bc", "0.5"), ("rl2", "0.7"), ("final", "0.10"))):
        made.play(number + 1, name, version, [n < number for n in range(2)])
    return made.done().parent


def test_weights_are_found_by_round_version_and_name(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    claim(runs / "seen", record("seen", 9.0, "eval mine"), resume=False).end("ok", None)
    shutil.copytree(runs / "mine" / "weights" / "0.9", runs / "seen" / "pinned" / "0.9")
    found = weights.locate("mine", runs)
    shutil.copy(runs / "mine" / "ledger.sqlite", runs / "seen")
    assert cli.main(["status", "seen", "--runs", str(runs)]) == 0
    assert "success 1.000 (2/2), 95 % 0.342-1.000, T=1" in capsys.readouterr().out
    assert weights.locate("last", runs).run == found.run, "an evaluation's copy is no run's last weights"
    assert (found.version, found.at, Path(found.folder).name) == ("0.10", "newest", "0.10")
    claim(runs / "begun", record("begun", 10.0), resume=False).end("stopped", None)
    shutil.copytree(models.bundled(), runs / "begun" / "weights" / "0.0")
    assert weights.locate("last", runs).run == found.run, "what a run begins with was not trained by it"
    with pytest.raises(ConfigError, match="run begun holds no weights of its own: it has made no optimizer step"):
        weights.locate("begun", runs)
    assert weights.locate("last", runs, "after_bc").folder == str(runs / "mine" / "kept" / "0.5")
    assert weights.locate("mine", runs, "0.9").version == "0.9"
    assert weights.locate(str(runs / "mine"), runs, "final").version == "0.10"
    assert weights.locate("base", runs).folder == str(models.bundled())
    assert weights.locate(str(models.bundled()), runs).version == "0.0"
    for name, at, said in (
        ("mine", "rl2", "its weights 0.7 were not kept"),
        ("mine", "after_bcc", "did you mean after_bc?"),
        ("mine", "zzz", "known: newest, after_bc, final, 0.5, 0.9, 0.10"),
        ("mne", "", "did you mean mine?"),
        ("base", "final", "only a run has weights"),
    ):
        with pytest.raises(ConfigError, match=said.replace("?", r"\?")):
            weights.locate(name, runs, at)


def arguments(*words: str) -> Any:
    return cli.build_parser().parse_args(["eval", *words])


def test_an_evaluation_takes_what_is_not_said_from_the_run(runs: Path) -> None:
    mine = weights.locate("mine", runs)
    deploy = settings.deploy_of(arguments("mine", "--runs", str(runs)), mine)
    assert (deploy.tasks.eval, deploy.tasks.max_turns, deploy.desktops.count) == (TASKS, 3, 2)
    assert (deploy.sampling.eval_temperature, deploy.evaluation.episodes, deploy.demos.count) == (0.0, 1, 0)
    like = ("mine", "--runs", str(runs), "--like", "learn")
    for more, memo in (((), "on"), (("--format", "published"), "off")):  # desktops are remembered where a memo holds
        assert settings.deploy_of(arguments(*like, *more), mine).desktops.memo == memo
    words = ("mine", "--tasks", "desktop", "--untrained", "--instances", "2", "--decoding", "T=0.5", "--episodes", "3")
    wide = settings.deploy_of(arguments(*words, "--runs", str(runs), "--format", "published"), mine)
    families = {str(task).partition("/")[0] for task in wide.tasks.eval}
    assert set(suites.load("desktop").untrained) < families
    assert len(wide.tasks.eval) == 2 * len(families)
    assert (wide.sampling.eval_temperature, wide.evaluation.episodes, wide.prompt.format) == (0.5, 3, "published")
    assert (
        build(json.loads(json.dumps(deploy_files.yaml.safe_load(deploy_files.dump(wide)))), Deploy, source="x") == wide
    )


def test_a_card_knows_resumed_weights_and_what_the_run_went_on_from(runs: Path) -> None:
    mine = weights.locate("mine", runs, "final")
    rounds = evaluation_rounds.read_rounds(runs / "mine")
    resumed = msgspec.structs.replace(mine, version="1.10", at="newest")
    assert "in round final" in weights.card(resumed, "out", rounds)
    assert "in round final" not in weights.card(msgspec.structs.replace(resumed, at="1.10"), "out", rounds)
    kept = run_folder.read_record(runs / "mine")
    kept.asked = run_folder.Asked(fork="/far/trunk@0.3")
    (runs / "mine" / "run.json").write_bytes(msgspec.json.encode(kept))
    assert f"--seed {kept.seed} --from trunk@0.3`" in weights.card(mine, "out", [])


def test_an_export_is_whole_described_and_never_written_over(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", "mine", str(tmp_path / "out"), "--runs", str(runs), "--json"]
    assert cli.main([*words, "--at", "final"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["serve"]["SGLang"].endswith(f"--model-path {tmp_path / 'out'} --port 30000")
    card = (tmp_path / "out" / "README.md").read_text()
    assert "Success in round final: 1.000 (2/2, 95 % 0.342 to 1.000)." in card
    assert "from after_bc to final: +1.000" in card
    assert "seed 3, build b, weights 0.10 (final)" in card
    assert "`computerrl run local --seed 3`" in card
    assert cli.main(words) == 2
    assert "exists already" in capsys.readouterr().err
    kept = run_folder.read_record(runs / "mine")
    kept.asked = run_folder.Asked(seeds=[3, 4], overrides=["run.seed=3", "learner.rl.lr=0.1"])
    (runs / "mine" / "run.json").write_bytes(msgspec.json.encode(kept))
    assert cli.main(["export", "mine", str(tmp_path / "arm"), "--runs", str(runs), "--json", "--at", "final"]) == 0
    said = "`computerrl run local --seed 3 --set learner.rl.lr=0.1`"
    assert said in (tmp_path / "arm" / "README.md").read_text()
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from policy import hf_folder
    from policy.tokenizer import Tokenizer

    model = AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    ours = hf_folder.read(models.bundled())
    state = model.state_dict()
    assert all(state[name].equal(tensor) for name, tensor in ours.items())
    ids = Tokenizer.load(tmp_path / "out").response_ids("icon zebra.txt -> click")
    assert AutoTokenizer.from_pretrained(tmp_path / "out")("icon zebra.txt -> click").input_ids == ids[:-1]


def test_an_evaluation_broken_off_before_it_began_leaves_its_name_free(
    runs: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["eval", "mine", "--at", "final", "--name", "mine-again", "--runs", str(runs)]

    def interrupted(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(runcommand, "carry_out", interrupted)
    assert cli.main(line) == 130
    left = runs / "mine-again"
    assert not left.exists()
    left.mkdir()
    (left / "mine.txt").write_text("not of a run")
    assert cli.main(line) == 2
    assert "--name mine-again: " in capsys.readouterr().err
    assert (left / "mine.txt").exists()


def test_an_evaluation_keeps_the_weights_that_its_run_deletes(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def played(plan: Any, *_: object) -> tuple[str, None]:
        asked.append(next(spec.config.model for stage in plan.stages for spec in stage if spec.name == "sampler/0"))
        return "stopped", None

    monkeypatch.setattr(doctor, "examine", lambda _: [])
    monkeypatch.setattr(execute, "execute", played)
    monkeypatch.setattr(system, "run", lambda found: found)
    line = ["eval", "mine", "--at", "final", "--name", "first", "--runs", str(runs)]
    assert cli.main(line) == 130
    shutil.rmtree(runs / "mine" / "weights")
    assert cli.main(["eval", "--resume", "--runs", str(runs)]) == 130
    assert asked == [str(runs / "first" / "pinned" / "0.10")] * 2
    assert (runs / "first" / "pinned" / "0.10" / "config.json").is_file()


@pytest.mark.proof
def test_a_runs_weights_are_evaluated_on_real_desktops(runs: Path, tmp_path: Path) -> None:
    words = ["eval", "mine", "--at", "after_bc", "--decoding", "t=1", "--episodes", "2", "--name", "seen", "--json"]
    done = subprocess.run([*COMMAND, *words], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert (document["decoding"], document["weights"]["version"], document["closed"]) == ("T=1", "0.5", True)
    assert (document["summary"]["episodes"], document["summary"]["instances"]) == (4, 2)
    assert set(document["summary"]["pass_at"]) == {"1", "2"}
    (found,) = evaluation_rounds.read_rounds(runs / "seen")
    assert (found.version, found.closed, found.summary.faults) == ("0.5", True, 0)
    again = subprocess.run([*COMMAND, "report", "seen"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert re.search(r"^eval +5 +T=1 ", again.stdout, re.MULTILINE), again.stdout
    assert not (runs / "seen" / "checkpoints").exists(), "nothing learned"
    deploy = read(runs / "seen" / "deploy.yaml", Deploy)
    same = evaluation_rounds.compare(evaluated.like(deploy, runs / "seen"), found)
    assert (same.whole.value, same.whole.instances) == (0.0, 2)
    assert evaluation_rounds.gain_line(same).startswith("held-out success ")
    with pytest.raises(ConfigError, match="mine has no closed round over task set"):
        evaluated.like(deploy, runs / "mine")
    longer = msgspec.structs.replace(deploy, tasks=msgspec.structs.replace(deploy.tasks, max_turns=9))
    with pytest.raises(ConfigError, match=r"--against: seen played with tasks\.max_turns 3, this evaluation with 9"):
        evaluated.like(longer, runs / "seen")
