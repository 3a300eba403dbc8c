"""An end state that was kept says all that its verdict was made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.desktop import recorder
from actors.desktop.files.read_home import FileSeen, ReadRefusal
from actors.desktop.recorder import EndState
from apis.tasks.verify.manifest import FILE, FOLDER, Entry, Manifest
from runtime.errors import PayloadLost

PATHS = st.text(min_size=1, max_size=6)
ENTRIES = st.builds(Entry, st.sampled_from((FILE, FOLDER)), st.integers(0, 9), st.just(0o644), st.text(max_size=2))
MANIFESTS = st.builds(Manifest, st.dictionaries(PATHS, ENTRIES, max_size=5), st.text(max_size=3))
FILES = st.one_of(
    st.builds(FileSeen, path=PATHS, data=st.binary(max_size=20)),
    st.builds(FileSeen, path=PATHS, names=st.lists(PATHS, max_size=3)),
    st.builds(FileSeen, path=PATHS, refusal=st.sampled_from(ReadRefusal)),
)


@given(st.lists(FILES, max_size=4), MANIFESTS, MANIFESTS, st.dictionaries(PATHS, PATHS, max_size=2))
def test_what_was_kept_comes_back(
    files: list[FileSeen], before: Manifest, after: Manifest, told: dict[str, str]
) -> None:
    end = EndState(files, before, after, "/home/agent", told)
    assert EndState.of(end.parts()) == end
    assert end.parts()[2:] == [file.data for file in files if file.data is not None]  # stored by their content


def test_a_large_end_state_is_not_kept_and_half_of_it_is_none() -> None:
    large = EndState([FileSeen(path="a", data=bytes(recorder.MOST_BYTES + 1))], Manifest(), Manifest(), "/home/agent")
    assert large.parts() == []
    whole = EndState([FileSeen(path="a", data=b"x")], Manifest(), Manifest(), "/home/agent").parts()
    for torn in ([], whole[:2], [b"?", *whole[1:]]):
        with pytest.raises(PayloadLost):
            EndState.of(torn)
