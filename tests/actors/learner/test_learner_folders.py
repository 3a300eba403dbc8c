"""What stays on the disk."""

from pathlib import Path

import pytest

from actors.learner.folders import RunFolders, checkpoint_of, weights_of
from policy import checkpoints
from runtime.messaging.message import Version


def v(text: str) -> Version:
    return Version.parse(text)


def checkpoint(run_dir: Path, version: str) -> Path:
    folder = checkpoint_of(run_dir, v(version))
    folder.mkdir()
    info = f'{{"version": "{version}", "has_reference": false, "dtype": "float32"}}'
    (folder / checkpoints.MARKER).write_text(info)
    return folder


def test_the_newest_complete_checkpoint_counts(tmp_path: Path) -> None:
    folders = RunFolders(tmp_path)
    assert folders.checkpoints() == []
    for version in ("0.2", "0.10", "1.3"):
        checkpoint(tmp_path, version)
    checkpoint_of(tmp_path, v("2.0")).mkdir()  # without its marker
    checkpoint(tmp_path, "1.9").rename(tmp_path / "checkpoints" / ".1.9.partial")
    assert folders.checkpoints()[0] == (v("1.3"), tmp_path / "checkpoints" / "1.3")


def test_checkpoints_past_the_one_that_was_loaded_and_half_exports_go(tmp_path: Path) -> None:
    folders = RunFolders(tmp_path)
    for version in ("0.10", "0.20", "0.25", "1.20"):
        checkpoint(tmp_path, version)
    assert folders.forget_after(v("0.20")) == [v("0.25"), v("1.20")]
    assert folders.checkpoints()[0] == (v("0.20"), tmp_path / "checkpoints" / "0.20")
    (tmp_path / "weights" / ".0.25.partial").mkdir()
    weights_of(tmp_path, v("0.20")).mkdir()
    assert folders.forget_after(v("0.20")) == []
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["0.10", "0.20"]
    assert [path.name for path in (tmp_path / "weights").iterdir()] == ["0.20"], "no half export of a killed rank"


def test_a_removal_that_is_cut_short_is_ended_by_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = RunFolders(tmp_path)
    for version in ("0.2", "0.10"):
        checkpoint(tmp_path, version)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("policy.checkpoints.shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            folders.prune_checkpoints(1)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] != ["0.10"]
    assert folders.checkpoints()[0] == (v("0.10"), tmp_path / "checkpoints" / "0.10")
    folders.prune_checkpoints(1)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["0.10"]


def test_the_newest_weights_and_those_of_open_rounds_stay(tmp_path: Path) -> None:
    folders = RunFolders(tmp_path)
    for version in ("0.1", "0.2", "0.9", "0.10", "1.10"):
        weights_of(tmp_path, v(version)).mkdir()
    folders.prune_weights(2, {v("0.2")})
    assert sorted(path.name for path in (tmp_path / "weights").iterdir()) == ["0.10", "0.2", "1.10"]
