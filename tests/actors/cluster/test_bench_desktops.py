"""`bench desktops` and `bench typing` on one real desktop, and what they refuse."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import pytest

from actors.cluster import cli
from actors.cluster.bench import corpus, fields, lives, reference, stage, typing
from actors.desktop.config import SandboxConfig
from actors.desktop.providers.sandbox import grouping
from actors.errors import GuestRefused


@pytest.mark.skipif(os.geteuid() != 0, reason="processes of other users are measured")
@pytest.mark.timeout(300)
@pytest.mark.proof
def test_a_desktop_is_measured(state_dir: str) -> None:
    counts = [
        "--actions",
        "2",
        "--boots",
        "1",
        "--episodes",
        "1",
        "--hold",
        "1",
        "--hold-app",
        "terminal",
        "--kinds",
        "light",
    ]
    command = [
        sys.executable, "-P", "-m", "actors.cluster.cli", "bench", "desktops", "--apps", "text_editor", *counts,
        "--set", f"desktops.provider.state_dir={state_dir}", "--no-targets", "--json",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    click, typed = found["actions"]
    assert (click["action"], click["n"], typed["n"]) == ("click", 2, 2)
    assert click["p50_ms"] >= sum(click["parts_p50_ms"].values()) * 0.5 > 0
    assert click["guest_cpu_ms"]["agent"] > 0
    assert click["cpu_p50_ms"] > click["observe_cpu_p50_ms"] > 0
    assert click["reference"]["cpu_ms"] > 0
    assert found["boots"]["cpu_s"] > found["boots"]["guest_cpu_s"] > 0
    (light,) = found["episodes"]
    assert (light["kind"], light["screen"], light["n"], light["faults"]) == ("light", "1280x720", 1, 0)
    assert light["cpu_s"] > light["play_cpu_s"] > 0
    assert light["reference"]["wall_ms"] > 0
    assert (found["held"]["held"], found["held"]["answering"]) == (1, 1)
    assert found["held"]["pss_median_bytes"] > 20 << 20
    assert found["targets"] == []
    assert "2 x click" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="processor time of other users is measured")
@pytest.mark.proof
async def test_what_is_typed_is_read_back_and_what_differs_is_wrong(
    state_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = typing.TypingOptions(
        apps="text_editor", signs=60, tries=1, load=1, overrides=[f"desktops.provider.state_dir={state_dir}"]
    )
    found = await typing.measure(wanted, lambda _: None)
    (one,) = found.apps
    assert (one.exact, one.told, one.wrong, one.corpus, found.met) == (1, 0, [], "", True)
    assert one.latin_cpu_ms is not None
    assert one.latin_keys_s > 0
    monkeypatch.setattr(typing, "text_of", lambda rng, signs, lines: "ab\x0bc" if lines else "")
    with pytest.raises(GuestRefused, match="no key types"):
        await typing.measure(wanted, lambda _: None)


def test_texts_have_distinct_signs_and_their_first_difference_is_told() -> None:
    text = typing.text_of(random.Random(1), 100, lines=True)
    assert len(set(text) - {"\n"}) == 100
    assert [len(line) for line in text.split("\n")] == [40, 40, 20]
    assert "\n" not in typing.text_of(random.Random(1), 100, lines=False)
    assert typing.difference("abc", "abd") == "at 2: 'c' became 'd', 3 and 3 characters"
    assert typing.difference("abc", "ab") == "at 2: 'c' became '', 3 and 2 characters"


def test_lines_that_editors_correct_are_typed_in_texts_that_the_field_shows() -> None:
    for field in fields.FIELDS.values():
        texts = typing.corpus_of(field)
        assert max(map(len, texts)) <= field.most
        assert "\n".join(texts) == ("\n".join(corpus.CORPUS) if field.lines else corpus.ONE_LINE)


@pytest.mark.proof
async def test_where_nothing_counts_processor_time_no_target_is_met(
    state_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grouping, "mounted", dict)
    async with stage.provider(SandboxConfig(state_dir=state_dir)) as made:
        async with reference.opened(made) as beside:
            found = await lives.boots(made, 1, beside, lambda _: None)
    assert found.reference.cpu_ms is None
    assert (found.n, found.guest_cpu_s, found.cpu_s) == (1, None, None)
    assert found.wall_p50_s is not None


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["desktops", "--apps", "text_edit"], "did you mean text_editor?"),
        (["desktops", "--hold", "100000"], "at most"),
        (["desktops", "--hold-app", "calc"], "libreoffice_calc"),
        (["desktops", "--actions", "-1"], "counts start at 0"),
        (["desktops", "--kinds", "Chromum"], "did you mean Chromium?"),
        (["desktops", "--screens", "1280x720,1920"], "desktops.screen is '1920'"),
        (["soak", "--file", "soka"], "did you mean soak?"),
        (["soak", "--minutes", "0.1"], "--minutes"),
        (["soak", "--set", "run.limit_s=60"], "run.limit_s"),
        (["typing", "--apps", "text_edit"], "did you mean text_editor?"),
        (["typing", "--signs", "0"], "--signs is 1 to"),
        (["desktop"], "did you mean desktops?"),
    ],
)
def test_bad_input_is_one_line(args: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        status = cli.main(["bench", *args])
    except SystemExit as ended:
        status = int(ended.code or 0)
    shown = capsys.readouterr().err
    assert status == 2
    assert shown.count("\n") == 1
    assert expected in shown


@pytest.mark.parametrize("kind", ["desktops", "soak", "startup"])
def test_help_says_what_decides_the_exit_status(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["bench", kind, "--help"])
    shown = capsys.readouterr().out
    assert "examples:" in shown
    assert kind == "startup" or "Exit status 1" in shown.replace("\n", " ")
