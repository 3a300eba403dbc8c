"""A run's figures as a file stand for the run: what is drawn and said is the same, and no file breaks a report."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import msgspec
import pytest

from actors.cluster import cli
from actors.cluster.report import figures_file
from actors.cluster.report.gather import gather
from runtime.errors import ConfigError
from tests.actors.cluster.test_report_page import reported, whole


@pytest.mark.proof
def test_figures_stand_for_their_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [whole(tmp_path / f"s{seed}", seed=seed, shift=seed) for seed in (0, 1)]
    reported(runs, tmp_path / "out")
    told = json.loads(capsys.readouterr().out)
    files = [tmp_path / "out" / f"s{seed}{figures_file.SUFFIX}" for seed in (0, 1)]
    page = reported([files[0], runs[1]], tmp_path / "again")
    again = json.loads(capsys.readouterr().out)
    assert (again["runs"], again["seeds"]) == (told["runs"], told["seeds"])
    assert "s0" in page
    assert (tmp_path / "again" / "curve.png").read_bytes() == (tmp_path / "out" / "curve.png").read_bytes()
    assert (tmp_path / "again" / files[0].name).read_bytes() == files[0].read_bytes()
    assert cli.main(["report", *map(str, files), "--json"]) == 0
    brief = json.loads(capsys.readouterr().out)
    assert (brief["runs"], brief["seeds"]) == (told["runs"], told["seeds"])


def test_an_episode_leaves_with_its_run_alone(tmp_path: Path) -> None:
    run = gather(whole(tmp_path / "s"))
    run = msgspec.structs.replace(run, figures=msgspec.structs.replace(run.figures, observations=(1, 7)))
    assert run.details
    content = figures_file.packed(run)
    assert content == figures_file.packed(run), "no clock in it"
    (file := tmp_path / f"s{figures_file.SUFFIX}").write_bytes(content)
    again = figures_file.read(file)
    assert (again.details, again.episodes) == ({}, [])
    assert again.rounds == run.rounds
    assert again.figures.observations == (1, 7)


@pytest.mark.usefixtures("undrawn")
@pytest.mark.slow
def test_figures_of_a_build_without_versions_are_of_the_first_observation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(gzip.decompress(figures_file.packed(gather(whole(tmp_path / "s")))))
    del content["run"]["figures"]["observations"]
    (file := tmp_path / f"s{figures_file.SUFFIX}").write_bytes(gzip.compress(json.dumps(content).encode()))
    assert figures_file.read(file).figures.observations == (1,)
    assert cli.main(["report", str(file)]) == 0
    assert "desktops  showed observation version 1\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"words", "Not a gzipped file"),
        (gzip.compress(b'{"form": 1, "run": {}}')[:-9], "no file of a run's figures"),
        (gzip.compress(b'{"form": 1, "run": {}}'), "missing required field `name`"),
        (gzip.compress(b'{"form": 9, "run": {}}'), "figures of format 9, this build reads format 1"),
        (gzip.compress(b"[]"), "no file of a run's figures"),
    ],
    ids=["not packed", "torn", "nameless", "of another form", "a list"],  # packed bytes hold the time
)
def test_what_is_no_such_file_is_one_clear_line(content: bytes, said: str, tmp_path: Path) -> None:
    (file := tmp_path / f"a{figures_file.SUFFIX}").write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        figures_file.read(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_too_large_is_refused_before_it_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures_file, "MOST_BYTES", 1000)
    (file := tmp_path / f"a{figures_file.SUFFIX}").write_bytes(gzip.compress(bytes(2000)))
    with pytest.raises(ConfigError, match="unpacked, which no run's figures are"):
        figures_file.read(file)


def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    run = msgspec.structs.replace(gather(whole(tmp_path / "s")), name="../escaped")
    (file := tmp_path / f"s{figures_file.SUFFIX}").write_bytes(figures_file.packed(run))
    with pytest.raises(ConfigError, match=r"of a run named \.\./escaped: letters"):
        figures_file.read(file)


def test_a_run_that_was_killed_before_its_first_stay_has_no_stretches(tmp_path: Path) -> None:
    assert msgspec.structs.replace(gather(whole(tmp_path / "s")), switches=[]).stretches() == []


def test_a_misspelt_file_names_the_nearest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / f"local-0{figures_file.SUFFIX}").touch()
    assert cli.main(["report", str(tmp_path / f"locl-0{figures_file.SUFFIX}")]) == 2
    assert f"did you mean {tmp_path / f'local-0{figures_file.SUFFIX}'}?" in capsys.readouterr().err
