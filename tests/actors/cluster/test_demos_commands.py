"""Demonstrations recorded once on real desktops, carried in a file, and used by other runs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actors.cluster import cli
from actors.cluster.config import deploy_files, models
from actors.cluster.config.lanes import lanes_of
from actors.cluster.config.schema import Deploy
from actors.cluster.config.typed_yaml import build, read
from actors.cluster.runs import loop, recordings, run_folder
from actors.replay.demos import demo_files
from actors.replay.demos.format import FORMAT, RecordingHeader, TaskAttempts
from runtime.errors import ConfigError, StoreError
from tests.proofs import proofs

COMMAND = [sys.executable, "-P", "-m", "actors.cluster.cli"]
PATIENCE_S = 120.0


def recorded(folder: Path) -> None:
    """A run `cold` with four demonstrations of two families, below `folder`/runs; Ctrl-C stops it once on the way."""
    text = "trained: [file_manager, text_editor]\nsplits:\n  train: {count: 50}\n"
    (folder / "mine.yaml").write_text(text)
    words = [*COMMAND, "demos", "record", "mine.yaml", "--name", "cold"]
    options = ["--count", "4", "--desktops", "2", "--noise", "--seed", "3"]
    with (folder / "said").open("w") as said, subprocess.Popen([*words, *options], cwd=folder, stdout=said) as victim:
        give_up = time.monotonic() + PATIENCE_S
        while not held(folder / "runs" / "cold"):
            assert victim.poll() is None
            assert time.monotonic() < give_up
            time.sleep(0.2)
        victim.send_signal(signal.SIGINT)
        assert victim.wait(PATIENCE_S) == 130
    ended, advice = (folder / "said").read_text().splitlines()[-2:]
    assert ended == "run cold: stopped - interrupted"
    assert advice.startswith("continue with  ")
    assert "computerrl demos record" in advice
    before = digests(folder / "runs" / "cold")
    done = subprocess.run([*words, "--resume"], cwd=folder, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "file_manager/gui 2, text_editor/gui 2" in done.stdout
    assert "cold: ok - 4 demonstrations in " in done.stdout
    assert before
    assert digests(folder / "runs" / "cold")[: len(before)] == before, "what was recorded is kept"


def held(run: Path) -> int:
    try:
        return demo_files.read(run)[0].demos
    except StoreError:
        return 0


def digests(path: Path) -> list[str]:
    return [step.digest for demo in demo_files.read(path)[1] for step in demo.steps]


@pytest.mark.timeout(600)
@pytest.mark.desktop
@pytest.mark.parametrize("used", proofs(False, True), ids=["refused", "used"])
def test_one_recording_is_shared_byte_for_byte(
    used: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path)
    monkeypatch.chdir(tmp_path)
    wanted = digests(tmp_path / "runs" / "cold")
    assert len(wanted) >= 8

    def run(*words: str) -> Any:
        assert cli.main(["demos", *words, "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    assert run("export", "cold", "demos.parquet")["header"]["demos"] == 4
    assert digests(tmp_path / "demos.parquet") == wanted
    assert [(f["family"], f["route"], f["demos"]) for f in run("show", "demos.parquet")["strata"]] == [
        ("file_manager", "gui", 2),
        ("text_editor", "gui", 2),
    ]
    assert run_folder.read_record(tmp_path / "runs" / "cold").verdict == "ok"
    if used:
        used_by_another_run(tmp_path)
    refused_where_it_does_not_fit(tmp_path)


def used_by_another_run(folder: Path) -> None:
    """A recording that holds enough leaves nothing to record, and is not asked for again."""
    command = [*COMMAND, "run", "smoke", "--name", "second", "--runs", "runs"]
    sets = ["demos.source=cold", "demos.count=4", "tasks.demo=[]", "entropulse.bc_steps=1"]
    sets += ["entropulse.total_rl_steps=0", "run.require={bc_steps: 1}", "run.seed=9"]
    words = [word for one in sets for word in ("--set", one)]
    done = subprocess.run([*command, *words], cwd=folder, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert digests(folder / "runs" / "second") == digests(folder / "runs" / "cold")
    short = [*COMMAND, "run", "smoke", "--name", "short", *words, "--set", "entropulse.bc_steps=5000"]
    short += ["--set", "run.require={bc_steps: 5000}"]
    done = subprocess.run(
        [*short, "--set", "run.limit_s=8"], cwd=folder, capture_output=True, text=True, check=False, timeout=240
    )
    assert (done.returncode, "run short: failed - out of time; " in done.stdout) == (1, True), done.stdout + done.stderr
    (folder / "runs" / "cold").rename(folder / "runs" / "moved")
    deploy = read(folder / "runs" / "second" / "deploy.yaml", Deploy)
    with pytest.raises(ConfigError, match="cold: no recording of that name"):
        loop.training().planned(deploy, run_dir=folder / "runs" / "third", incarnation="")
    again = loop.training().planned(deploy, run_dir=folder / "runs" / "second", incarnation="")
    assert again.stages[0][0].config.demos.source == "", "what it has taken in it needs no more"  # type: ignore[attr-defined]
    (folder / "runs" / "moved").rename(folder / "runs" / "cold")


def refused_where_it_does_not_fit(folder: Path) -> None:
    """Before anything starts."""

    def refused(**demos: object) -> str:
        tasks = {"train": ["text_editor/train/1"]}
        data = {"tasks": tasks, "demos": demos, "evaluation": {"enabled": False}}
        with pytest.raises(ConfigError) as caught:
            loop.training().planned(build(data, Deploy, source="x"), run_dir=folder / "runs" / "x", incarnation="")
        return str(caught.value)

    assert "holds 4 demonstrations, demos.count asks for 9" in refused(source="cold", count=9)
    assert "demos.source: cld: no recording of that name" in refused(source="cld")
    header, found = demo_files.read(folder / "demos.parquet")
    first, *rest = found
    other, leak = folder / "other.parquet", folder / "leak.parquet"
    demo_files.write(other, msgspec.structs.replace(header, tokenizer="0123"), [first, *rest])
    assert "was recorded with tokenizer 0123" in refused(source=str(other), count=4)
    leaked = first.task.replace("/train/", "/held-out/")
    demo_files.write(leak, header, [msgspec.structs.replace(first, task=leaked), *rest])
    assert f"leak.parquet: {leaked}" in refused(source=str(leak), count=4)
    assert f"did you mean {other}?" in refused(source=str(folder / "othr.parquet"))
    assert f"there is no folder {folder / 'gone'}" in refused(source=str(folder / "gone" / "other.parquet"))


def test_a_recording_of_what_the_run_must_not_have_seen_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "demos.parquet"

    def refused(task: str, held_out: list[str], *, played: bool = True) -> str:
        header = RecordingHeader(
            format=FORMAT,
            tokenizer="",
            form="",
            demos=0,
            tasks=[TaskAttempts(task=task, tries=1, wins=0)],
        )
        demo_files.write(path, header, [])
        try:
            recordings.refuse_leaks(path, "demos.source", held_out, played=played)
        except ConfigError as error:
            return str(error)
        return ""

    assert "held-out/3 is held out" in refused("text_editor/held-out/3", [])
    assert "is of vlc_save, which is never trained on" in refused("vlc_save/held-out/3", [])
    assert "train/3 is also in tasks.eval" in refused("text_editor/train/3", ["text_editor/train/3"])
    assert "did you mean text_editor/train/3?" in refused("text_editr/train/3", [])
    assert refused("text_editr/train/3", [], played=False) == ""
    assert refused("text_editor/train/3", ["text_editor/train/4"]) == ""


@pytest.mark.slow
def test_the_recording_that_comes_along_is_one_for_the_main_job_and_has_all_strata() -> None:
    path = Path(__file__).resolve().parents[3] / "deploy" / "demos" / "local.parquet"
    deploy, _ = deploy_files.load("local", [f"demos.source={path}"])
    recordings.refuse_unfit(deploy, path, models.fingerprint(models.bundled()))
    header, demos = demo_files.read(path)
    assert header.demos == len(list(demos)) >= deploy.demos.count
    families = {task.partition("/")[0] for task in lanes_of(deploy.tasks).demo}
    assert {one.task.partition("/")[0] for one in header.tasks} == families
    assert {one.task for one in header.tasks} <= set(lanes_of(deploy.tasks).demo)
    won = [one.wins / one.tries for one in header.tasks if one.tries]
    assert min(won) == 0 < max(won) == 1
    assert any(0 < share < 1 for share in won)


FILE = """
run: {seed: 2}
tasks:
  demo: [{family: files_move, split: train, count: 4}]
  max_turns: 9
demos:
  count: 8
  attempts_per_task: 2
  mixed_attempts: 1
  resample_rounds: 1
  demonstrators:
    - {type: oracle, name: sound}
    - {type: oracle, name: hasty, haste: 0.6}
desktops: {count: 2, warm_pool: 1, screenshots: none, provider: {type: sandbox, state_dir: STATE}}
"""


@pytest.mark.proof
@pytest.mark.timeout(300)
def test_a_pool_records_what_it_solves_and_says_who_did(
    tmp_path: Path, state_dir: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pool.yaml").write_text(FILE.replace("STATE", state_dir))
    monkeypatch.chdir(tmp_path)
    words = ["demos", "record", "--deploy", "pool.yaml", "--name", "cold"]
    command = [sys.executable, "-P", "-m", "actors.cluster.cli", *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240)
    assert "tasks: files_move/" in done.stdout, done.stdout + done.stderr
    header, found = demo_files.read(tmp_path / "runs" / "cold")
    assert {one.task for one in header.tasks} == {f"files_move/train/{n}" for n in range(4)}
    demos = list(found)
    assert header.demos == len(demos) > 0
    for demo in demos:
        made = {step.payload.by for step in demo.steps}
        assert made <= {"sound", "hasty"}
        assert demo.member == "mixed" or made == {demo.member}
    assert cli.main(["demos", "show", "cold", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert sum(shown["tasks"]["files_move"].values()) == 4
    assert recordings.header_of(tmp_path / "runs" / "cold") == header
