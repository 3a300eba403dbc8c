"""What others wrote: files are bounded, regular and never waited for, addresses hold no secret."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from actors.cluster.config import typed_yaml
from actors.cluster.config.schema import Deploy
from runtime import disk
from runtime.errors import ConfigError
from runtime.settings import masked, refuse_bad_url

MAKERS: dict[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo,
    "a folder": Path.mkdir,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_what_is_no_regular_file_is_refused_at_once(tmp_path: Path, maker: str) -> None:
    MAKERS[maker](tmp_path / "x")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="no regular file") as caught:
        disk.read_bytes(tmp_path / "x")
    assert caught.value.errno == errno.EINVAL
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_is_read_to_its_bound(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("ä" * 4)
    (tmp_path / "y").symlink_to("x")
    assert disk.read_text(tmp_path / "y", 8) == "ä" * 4
    with pytest.raises(OSError, match="it has more than 7 bytes"):
        disk.read_bytes(tmp_path / "x", 7)
    os.truncate(tmp_path / "x", 1 << 40)
    with pytest.raises(OSError, match="it has more than 1048576 bytes"):
        disk.read_bytes(tmp_path / "x")
    with pytest.raises(FileNotFoundError):
        disk.opened(tmp_path / "z")


@pytest.mark.parametrize("url", ["http://h:1", "https://example.org/v1", "http://[::1]:30000/", "http://10.0.0.1"])
def test_an_address_is_taken(url: str) -> None:
    refuse_bad_url(url, "--attach", "use a key")


@pytest.mark.parametrize(
    "url",
    [
        "https://user:secret@h/v1",
        "http://:secret@h",
        "ftp://user:secret@h",
        "https://user:secret@h:port",
        "http://user:secret@[::1",
        "http://h:99999",
        "http://h/v1?key=1",
        "http://h/#x",
        "h:30000",
        "http://",
        "",
    ],
)
def test_another_is_refused_and_what_is_secret_is_not_repeated(url: str) -> None:
    with pytest.raises(ConfigError, match="--attach") as refused:
        refuse_bad_url(url, "--attach", "use a key")
    assert "secret" not in str(refused.value)


def test_an_override_is_held_to_it_and_its_error_hides_what_was_given() -> None:
    for override in (
        'samplers.attach=["http://user:secret@h:1"]',
        'demos.demonstrators=[{type: endpoint, name: a, url: "https://user:secret@h/v1", model: m}]',
    ):
        with pytest.raises(ConfigError, match="user name or password") as refused:
            typed_yaml.build({}, Deploy, [override], source="file")
        assert "secret" not in str(refused.value)


def test_every_address_in_a_text_is_masked() -> None:
    assert masked("a http://u:p@h/x and https://k@g") == "a http://***@h/x and https://***@g"
    assert masked("mail me@example.org") == "mail me@example.org"
