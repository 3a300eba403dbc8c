"""Addresses that a person names."""

from __future__ import annotations

import pytest

from actors.cluster.config import typed_yaml
from actors.cluster.config.schema import Deploy
from runtime.errors import ConfigError
from runtime.settings import masked, refuse_bad_url


@pytest.mark.parametrize("url", ["http://h:1", "https://example.org/v1", "http://[::1]:30000/", "http://10.0.0.1"])
def test_an_address_is_taken(url: str) -> None:
    refuse_bad_url(url, "--attach", "use a key")


@pytest.mark.parametrize(
    "url",
    [
        "https://user:secret@h/v1",
        "https://secret@h",
        "http://:secret@h",
        "ftp://user:secret@h",
        "https://user:secret@h:port",
        "https://a@secret@h",
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


def test_keys_of_a_deploy_file_are_held_to_it_and_errors_hide_what_was_given() -> None:
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
