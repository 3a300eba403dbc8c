"""What doctor says of applications that are not installed."""

import pytest

from actors.cluster import doctor


def test_missing_applications_are_a_warning_that_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "absent", lambda wanted: [name for name in wanted if name == "chromium"])
    check = doctor.check_applications()
    assert not check.ok
    assert not check.fatal
    assert check.found == "missing for chromium (chromium)"
    assert check.mend is not None
    assert "make setup" in check.mend


def test_nothing_missing_names_the_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "absent", lambda wanted: [])
    check = doctor.check_applications()
    assert check.ok
    assert check.found == "chromium, office, vlc"
