"""A run's figures as a file stand for the run: what is drawn and said is the same, and no file breaks a report."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import msgspec
import pytest

from actors.cluster import cli
from actors.cluster.report import run_data, show
from actors.cluster.report.run_data import SUFFIX, packed, read_file, read_run
from runtime.errors import ConfigError
from tests.actors.cluster.fabricated import HOSTILE, whole
from tests.actors.cluster.test_report_page import reported


@pytest.mark.proof
def test_figures_stand_for_their_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [whole(tmp_path / f"s{seed}", seed=seed, shift=seed) for seed in (0, 1)]
    reported(runs, tmp_path / "out")
    told = json.loads(capsys.readouterr().out)
    files = [tmp_path / "out" / f"s{seed}{SUFFIX}" for seed in (0, 1)]
    page = reported([files[0], runs[1]], tmp_path / "again")
    again = json.loads(capsys.readouterr().out)
    assert (again["runs"], again["seeds"]) == (told["runs"], told["seeds"])
    assert "s0" in page
    assert (tmp_path / "again" / "curve.png").read_bytes() == (tmp_path / "out" / "curve.png").read_bytes()
    assert (tmp_path / "again" / files[0].name).read_bytes() == files[0].read_bytes()
    assert cli.main(["report", *map(str, files), "--json"]) == 0
    brief = json.loads(capsys.readouterr().out)
    assert (brief["runs"], brief["seeds"]) == (told["runs"], told["seeds"])


def test_a_file_of_figures_holds_no_episode(tmp_path: Path) -> None:
    run = read_run(whole(tmp_path / "s"))
    run = msgspec.structs.replace(run, observations=(1, 7))
    content = packed(run)
    assert content == packed(run), "no clock in it"
    (file := tmp_path / f"s{SUFFIX}").write_bytes(content)
    again = read_file(file)
    assert (again.rounds, again.observations) == (run.rounds, (1, 7))
    assert HOSTILE not in gzip.decompress(content).decode()


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_figures_of_a_build_without_versions_are_of_the_first_observation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(gzip.decompress(packed(read_run(whole(tmp_path / "s")))))
    del content["run"]["observations"]
    (file := tmp_path / f"s{SUFFIX}").write_bytes(gzip.compress(json.dumps(content).encode()))
    assert read_file(file).observations == (1,)
    assert cli.main(["report", str(file)]) == 0
    assert "desktops  showed observation version 1\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"words", "Not a gzipped file"),
        (gzip.compress(b'{"form": 1, "run": {}}')[:-9], "no file of a run's figures"),
        (gzip.compress(b'{"form": 1, "run": {}}'), "missing required field `name`"),
        (gzip.compress(b'{"form": 9, "run": {}}'), "figures of format 9, this build reads 1 and 2"),
        (gzip.compress(b"[]"), "no file of a run's figures"),
    ],
    ids=["not packed", "torn", "nameless", "of another form", "a list"],  # packed bytes hold the time
)
def test_what_is_no_such_file_is_one_clear_line(content: bytes, said: str, tmp_path: Path) -> None:
    (file := tmp_path / f"a{SUFFIX}").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_file(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_too_large_is_refused_before_it_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_data, "MOST_BYTES", 1000)
    (file := tmp_path / f"a{SUFFIX}").write_bytes(gzip.compress(bytes(2000)))
    with pytest.raises(ConfigError, match="unpacked, which no run's figures are"):
        read_file(file)


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    run = msgspec.structs.replace(read_run(whole(tmp_path / "s")), name="../escaped")
    (file := tmp_path / f"s{SUFFIX}").write_bytes(packed(run))
    with pytest.raises(ConfigError, match=r"of a run named \.\./escaped: letters"):
        read_file(file)


def test_a_run_that_was_killed_before_its_first_stay_has_no_stretches(tmp_path: Path) -> None:
    assert msgspec.structs.replace(read_run(whole(tmp_path / "s")), switches=[]).stretches() == []


def test_a_misspelt_file_names_the_nearest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / f"local-0{SUFFIX}").touch()
    assert cli.main(["report", str(tmp_path / f"locl-0{SUFFIX}")]) == 2
    assert f"did you mean {tmp_path / f'local-0{SUFFIX}'}?" in capsys.readouterr().err


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_runs_of_one_name_leave_a_file_each(tmp_path: Path) -> None:
    paths = [whole(tmp_path / place / "local-0", seed=seed) for seed, place in enumerate(("here", "there"))]
    page = reported(paths, tmp_path / "out")
    files = [read_file(tmp_path / "out" / f"{name}{SUFFIX}") for name in ("local-0", "local-0-2")]
    assert [(run.name, run.seed) for run in files] == [("local-0", 0), ("local-0-2", 1)]
    assert "Rounds of local-0-2" in page


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
@pytest.mark.proof
def test_a_file_given_twice_counts_once_and_a_namesake_is_said_to_be_renamed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = []
    for place, shift in (("old", 0.0), ("new", 0.5)):
        run = whole(tmp_path / place / "local-0", shift=shift)
        show.show([run], tmp_path / place / "out", as_json=True)
        kept.append(tmp_path / place / "out" / "local-0.figures.gz")
    double = tmp_path / "double.figures.gz"
    double.write_bytes(kept[0].read_bytes())
    capsys.readouterr()
    show.show([kept[0], double, kept[1]], tmp_path / "both", as_json=True)
    said = capsys.readouterr().err
    assert f"left out {double}: the same run as {kept[0]}" in said
    assert f"{kept[1]} is called local-0-2: another run here is local-0" in said
    assert {path.name for path in (tmp_path / "both").glob("*.gz")} == {"local-0.figures.gz", "local-0-2.figures.gz"}
