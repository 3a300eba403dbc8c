"""The pure parts of the benches: percentiles, targets, who used the processor, what a click hits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.cluster import cli
from actors.cluster.bench import desktops, hold, lives, stage
from actors.cluster.bench.actions import PARTS, ActionTimes, places, summed
from actors.cluster.bench.processes import KINDS, kind_of, spent
from actors.cluster.bench.reference import ReferenceRound, middle, multiple
from actors.cluster.bench.report import Target, median, percentile
from actors.cluster.runs.cpu import CpuMeter, part_of
from apis.observation import Element, Observation, Window
from runtime.errors import ConfigError


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1.0))
def test_a_percentile_is_a_measured_value_that_its_share_does_not_exceed(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9
    assert sum(value < found for value in values) < share * len(values)


def test_nothing_measured_is_no_figure_and_misses_its_target() -> None:
    assert median([]) is None
    assert median([3.0, 1.0, 2.0, 9.0]) == 2.0
    assert not Target(name="x", measured=None, bound=1.0, unit="s").met
    assert Target(name="x", measured=1.0, bound=1.0, unit="s").met
    assert not Target(name="x", measured=1.1, bound=1.0, unit="s").met
    assert not Target(name="x", measured=127.0, bound=128.0, unit="", at_least=True).met


@pytest.mark.parametrize(
    ("name", "words", "kind"),
    [
        ("Xvfb", ["Xvfb", "-screen"], "X server"),
        ("python3", ["/usr/bin/python3", "-I", "/opt/computerrl/guest", "agent", "--run", "/run"], "agent"),
        ("python3", ["/usr/bin/python3", "-I", "-S", "/opt/computerrl/guest", "session"], "other"),
        ("sshd", ["sshd: agent@notty"], "sshd"),
        ("soffice.bin", ["/usr/lib/libreoffice/program/soffice.bin"], "application"),
        ("openbox", ["openbox"], "other"),
    ],
)
def test_a_guest_process_has_a_kind(name: str, words: list[str], kind: str) -> None:
    assert kind_of(name, words) == kind


READING = st.fixed_dictionaries({kind: st.floats(0, 1e5) for kind in (*KINDS, "all")})


@given(READING, READING)
@pytest.mark.slow
def test_parts_add_up_to_the_group_or_to_what_threads_used(a: dict[str, float], b: dict[str, float]) -> None:
    parts = spent(a, b)
    living = sum(max(0.0, b[kind] - a[kind]) for kind in KINDS)
    assert sum(parts.values()) == pytest.approx(max(living, b["all"] - a["all"]), abs=1e-6)
    assert all(value >= 0 for value in parts.values())


def test_the_mean_of_actions_keeps_every_part() -> None:
    guest = {part: {**dict.fromkeys(KINDS, 0.0), "agent": 2.0} for part in PARTS}
    wall = {"act": 1.0, "settle": 60.0, "observe": 9.0}
    one = ActionTimes(wall_ms=wall, host_cpu_ms=dict.fromkeys(PARTS, 0.5), guest_cpu_ms=guest, calls=3, ping_ms=0.2)
    beside = ReferenceRound(cpu_ms=50.0, wall_ms=80.0)
    cost = summed("terminal", "click", [one, one], beside)
    assert (cost.p50_ms, cost.n, cost.transport_p50_ms) == (70.0, 2, pytest.approx(0.6))
    assert cost.cpu_ms == dict.fromkeys(PARTS, 2.5)
    assert (cost.guest_cpu_ms["agent"], cost.host_cpu_ms) == (6.0, 1.5)
    assert (cost.cpu_p50_ms, cost.observe_cpu_p50_ms) == (7.5, 2.5)
    assert summed("terminal", "click", [], beside).p50_ms is None


def test_a_bound_holds_on_a_machine_that_is_slower_throughout() -> None:
    def bounds(times: float) -> list[tuple[float, bool]]:
        beside = ReferenceRound(cpu_ms=100.0 * times, wall_ms=100.0 * times)
        boots = lives.Boots(
            n=1, guest_cpu_s=0.2 * times, host_cpu_s=0.05 * times, cpu_s=0.25 * times, wall_p50_s=1.0, wall_p95_s=1.0,
            reference=beside,
        )  # fmt: skip
        return [(pytest.approx(one.measured), one.met) for one in desktops.targets_of([], boots, [], None)]

    assert bounds(1.0) == bounds(7.0) == [(2.5, True)]


def test_an_episode_on_a_larger_screen_is_held_against_the_first() -> None:
    def played(screen: str, cpu_s: float, reference_ms: float) -> lives.OracleEpisodes:
        beside = ReferenceRound(cpu_ms=reference_ms, wall_ms=reference_ms)
        return lives.OracleEpisodes(
            kind="VLC", screen=screen, n=1, successes=1, faults=0, families=[], boot_cpu_s=0.2, play_cpu_s=0.5,
            host_cpu_s=0.1, cpu_s=cpu_s, wall_p50_s=1.0, steps=3.0, reference=beside,
        )  # fmt: skip

    found = [played("1280x720", 1.0, 100.0), played("1920x1080", 3.2, 200.0)]
    targets = desktops.targets_of([], None, found, None)
    assert [(one.measured, one.met) for one in targets] == [(10.0, True), (pytest.approx(1.6), False)]
    assert all(lives.families(kind) for kind in lives.EPISODES)
    assert not set(lives.families("light")) & set(lives.families("office"))


def test_a_reference_that_nothing_counts_gives_no_multiple() -> None:
    counted, uncounted = ReferenceRound(cpu_ms=90.0, wall_ms=100.0), ReferenceRound(cpu_ms=None, wall_ms=300.0)
    assert middle([counted, ReferenceRound(cpu_ms=110.0, wall_ms=200.0), counted]) == counted
    assert middle([counted, uncounted, uncounted]) == ReferenceRound(cpu_ms=None, wall_ms=300.0)
    assert (multiple(45.0, 90.0), multiple(45.0, None), multiple(None, 90.0)) == (0.5, None, None)


def test_two_clicks_go_to_two_places() -> None:
    window = Window(number=1, wm_class="pcmanfm", title="Documents", active=True)
    icons = tuple(Element("icon", name, "", 10, y, 20, 20, (), 0) for y, name in enumerate(stage.NAMES))
    for app, elements in (("file_manager", icons), ("text_editor", icons[:1]), ("terminal", ())):
        first, second = places(Observation((window,), elements), app)
        assert first != second


def test_what_does_not_fit_or_does_not_exist_is_refused_in_words() -> None:
    with pytest.raises(ConfigError, match=r"at most \d+"):
        hold.refuse_unless_fits("libreoffice_calc", 1_000_000)
    with pytest.raises(ConfigError, match="did you mean terminal"):
        stage.known("text_editor,termnal")


@pytest.mark.parametrize(
    "words",
    [
        ["publish", "--widths", ","],
        ["soak", "--minutes", "nan"],
        ["soak", "--minutes", "inf"],
        ["soak", "--every", "nan"],
    ],
)
def test_a_bench_that_could_measure_nothing_is_refused(words: list[str], tmp_path: Path) -> None:
    assert cli.main(["bench", *words, "--runs", str(tmp_path)]) == 2
    assert list(tmp_path.iterdir()) == []


def test_every_part_of_a_run_is_told_by_its_command_line() -> None:
    assert part_of(["python", "-m", "runtime.hosts.child", "--name=desktops/3"]) == "desktop hosts"
    assert part_of(["python", "-m", "runtime.hosts.child", "--name=ranks/0"]) == "rank"
    assert part_of(["python", "-P", "-m", "policy.engine"]) == "engine"
    assert part_of(["nice", "python", "-P", "/x/actors/sampler/engine/sglang_launch.py", "7"]) == "engine"
    assert [part_of(["python", f"--name={name}"]) for name in ("router", "learner")] == ["router", "learner"]
    assert part_of(["bash"]) == "other"
    used = CpuMeter().read()
    assert used.span_s > 0
    assert used.seconds["entry point"] >= 0


def test_what_placed_processes_use_is_added_up_over_their_lives() -> None:
    placed = {"desktops/0": (5.0, True), "samplers/0": (1.0, True), "ranks/0": (2.0, False)}
    meter = CpuMeter(lambda: placed)
    placed |= {"desktops/0": (7.0, True), "desktops/1": (3.0, True), "ranks/0": (6.0, False)}
    used = meter.read()
    assert used.elsewhere == {"desktop hosts": 5.0, "engine": 0.0}
    assert used.seconds["rank"] == 4.0, "the cluster has placed it on this machine"
    del placed["desktops/1"]
    meter.read()
    placed |= {"desktops/1": (0.5, True)}  # its name was free again
    used = meter.read()
    assert (used.elsewhere, used.seconds["rank"]) == ({"desktop hosts": 0.5, "engine": 0.0}, 0.0)


@pytest.mark.slow
def test_what_a_servers_own_processes_use_is_the_engines(tmp_path: Path) -> None:
    burn = "import time\nt = time.process_time()\nwhile time.process_time() - t < 0.3: pass\nprint(flush=True); input()"
    (tmp_path / "sglang_launch.py").write_text(
        f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}], check=True)"
    )
    meter = CpuMeter()
    words = [sys.executable, str(tmp_path / "sglang_launch.py")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        server.stdout.readline()
        assert meter.read().seconds["engine"] >= 0.3
        server.stdin.write(b"\n")
