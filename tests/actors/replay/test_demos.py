"""Demonstrations that travel as Parquet and in run folders, and the observation that they say they show."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import LedgerError
from actors.replay.database import queries
from actors.replay.database.ledger_file import reading
from actors.replay.demos import demo_files
from actors.replay.demos import format as demo_format
from actors.replay.demos.format import KEY, Demo, DemoStep, RecordingHeader, digest_of_step
from actors.replay.ledger import demo_tasks
from actors.replay.messages import Phase, StepPayload
from apis.observation import OBSERVATION_VERSION
from runtime.errors import StoreError
from runtime.segments import read_blob
from tests.actors.replay.ledger_tools import Play, StoredPlay, payload, settings, step

ROUTES = {"a": ["api", "gui"], "b": ["gui"]}
TASKS = [f"{family}/train/{n}" for n in range(4) for family in "ab"]


class Recorder(StoredPlay):
    """A run that records demonstrations with payloads and pictures."""

    def __init__(self, folder: Path, count: int) -> None:
        folder.mkdir()
        config = msgspec.structs.replace(
            settings(demos=count), demo_tasks=TASKS, demo_routes=ROUTES, tokenizer="t1", format="compact"
        )
        super().__init__(folder, config)
        self.do(demo_tasks.label)

    def record(self, successes: int) -> Counter[str]:
        """Play until so many succeeded; every third attempt fails."""
        made: Counter[str] = Counter()
        attempt = 0
        while made.total() < successes:
            attempt += 1
            work = self.reserve()
            success = attempt % 3 != 0
            shown = [f"{work.task} {n} \x1b é 🙂" for n in range(2)]
            self.commit(work, success, [self.stored(None, text, text.encode()) for text in shown])
            made[f"{work.task[0]}/{work.route}"] += success
        return made

    def take_in(self, path: Path) -> int:
        return int(self.do(lambda tx: demo_tasks.import_demos(tx, path, self.store, self.folder)))


def digests(path: Path) -> list[str]:
    return [demo.digest for demo in demo_files.read(path)[1]]


def export(recorded: Recorder, path: Path) -> None:
    """What `computerrl demos export` writes."""
    demo_files.write(path, *demo_files.read(recorded.folder))


def test_they_are_recorded_evenly_and_travel_byte_for_byte(tmp_path: Path) -> None:
    one = Recorder(tmp_path / "one", 9)
    made = one.record(9)
    assert made == {"a/api": 3, "a/gui": 3, "b/gui": 3}
    assert one.figures().demo_strata == dict(made)
    file = tmp_path / "out" / "demos.parquet"
    export(one, file)
    wanted = digests(one.folder)
    assert len(set(wanted)) == 9
    for number, source in enumerate([file, one.folder]):
        assert digests(source) == wanted
        assert demo_files.read(source)[0] == RecordingHeader(
            format=demo_format.FORMAT, tokenizer="t1", form="compact", demos=9, observations=(OBSERVATION_VERSION,)
        )
        other = Recorder(tmp_path / f"other{number}", 6)
        assert other.take_in(source) == 6, "no more than wanted"
        assert other.take_in(source) == 0
        assert digests(other.folder) == wanted[:6]
        assert (other.figures().demos, other.figures().demo_attempts) == (6, 0)
        again = tmp_path / f"again{number}.parquet"
        export(other, again)
        assert digests(again) == wanted[:6]
        other.phase(Phase.BC)
        for sample in other.batch().samples:
            content = msgspec.msgpack.decode(read_blob(other.folder / "segments", sample.blob), type=StepPayload)
            assert content.screenshot is None
            assert content.observation.endswith("🙂")


def test_one_that_is_held_is_not_taken_in_again_whatever_file_it_comes_in(tmp_path: Path) -> None:
    one = Recorder(tmp_path / "one", 4)
    one.record(2)
    early, late = tmp_path / "early.parquet", tmp_path / "late.parquet"
    export(one, early)
    one.record(2)
    export(one, late)
    other = Recorder(tmp_path / "other", 99)
    assert [other.take_in(path) for path in (early, late, one.folder, late)] == [2, 2, 0, 0]
    more = Recorder(tmp_path / "more", 99)
    more.record(1)
    mine = tmp_path / "mine.parquet"
    export(more, mine)
    assert more.take_in(mine) == 0, "its own recording"


def test_of_a_run_what_can_be_read_is_taken_in(tmp_path: Path) -> None:
    one = Recorder(tmp_path / "one", 3)
    one.record(3)
    wanted = digests(one.folder)
    segment = one.folder / "segments" / one.store.name
    text = segment.read_bytes()
    segment.write_bytes(text.replace(b"Agent.wait", b"Agent.wart", 1))
    other = Recorder(tmp_path / "other", 3)
    assert other.take_in(one.folder) == 2
    assert digests(other.folder) == wanted[1:]
    (told,) = other.events("demos_unreadable")
    assert (told["demos"], told["path"]) == (1, str(one.folder))
    with pytest.raises(StoreError, match="does not hold"):
        digests(one.folder)
    segment.unlink()
    with pytest.raises(StoreError, match=r"none of its demonstrations can be read: can't read seat-000000\.seg"):
        Recorder(tmp_path / "third", 3).take_in(one.folder)
    assert one.take_in(tmp_path / "other") == 0, "its own that are gone stop nothing"


def test_what_was_thought_only_is_not_what_was_done() -> None:
    said = "<think>Agent.exit(success=True)</think>Agent.wait()"
    for action, response, acted in (
        ('{"function":"wait"}', said, True),
        ('{"function":"exit","success":true}', said, False),
        ('{"function":"exit","success":true}', "<think>so</think>DONE", True),
        ('{"function":"tool","owner":"CalcTools","name":"save","arguments":{}}', "a</think>CalcTools.save()", True),
        (None, said, False),
        (None, "Agent.wait()", True),
    ):
        assert demo_files.acts(payload(observation="x", action=action, response=response)) is acted


def foreign(demo: Demo, **changed: object) -> DemoStep:
    """The first step of it with another payload, and the digest of that."""
    content = msgspec.structs.replace(demo.steps[0].payload, **changed)
    digest = digest_of_step(content)
    return msgspec.structs.replace(demo.steps[0], digest=digest, payload=content)


def test_what_is_not_sound_or_not_alike_adds_nothing(tmp_path: Path) -> None:
    one = Recorder(tmp_path / "one", 3)
    one.record(3)
    header, found = demo_files.read(one.folder)
    first, *rest = found
    bad, other = tmp_path / "bad.parquet", Recorder(tmp_path / "other", 3)

    def refused(error: type[Exception], said: str, changed: Demo = first, others: Sequence[Demo] = rest, **of: object):
        demo_files.write(bad, msgspec.structs.replace(header, **of), [changed, *others])
        with pytest.raises(error, match=said) as caught:
            other.take_in(bad)
        assert "\n" not in str(caught.value)
        assert other.figures().demos == 0

    refused(LedgerError, "tokenizer t2, the model has t1: record again", tokenizer="t2")
    refused(LedgerError, "form published, prompt.format is compact", form="published")
    refused(StoreError, "format 'computerrl-demos-9'", format="computerrl-demos-9")
    refused(StoreError, "2 of the 3 demonstrations", others=rest[:1])
    wrong = msgspec.structs.replace(first.steps[0], digest="00")
    refused(StoreError, "is not what its digest", msgspec.structs.replace(first, steps=[wrong, *first.steps[1:]]))
    for said, changed in (
        ("response_ids of step 0 are empty", foreign(first, response_ids=[])),
        ("step 0 did what its answer only thought of: None", foreign(first, response="<think>Agent.wait()")),
        ("prompt_ids of step 0 are -5 to 3", foreign(first, prompt_ids=[3, -5])),
    ):
        refused(StoreError, f"{first.task}: {said}", msgspec.structs.replace(first, steps=[changed]))
    for name in ("absent.parquet", "demos.csv"):
        with pytest.raises(StoreError):
            other.take_in(tmp_path / name)
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(StoreError, match=r"torn\.parquet"):
        other.take_in(tmp_path / "torn.parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match=r"empty holds no ledger"):
        other.take_in(tmp_path / "empty")


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ids = st.lists(st.integers(0, 2**31 - 1), max_size=5)
reals = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.slow
@given(st.lists(st.tuples(texts, ids, reals, st.none() | texts, st.booleans()), min_size=1, max_size=4))
def test_any_step_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple]) -> None:
    folder = tmp_path_factory.mktemp("trip")
    steps = []
    for text, numbers, real, maybe, well_formed in rows:
        content = payload(
            observation=text, prompt_ids=numbers, act_ms=real, temperature=real, refusal=maybe, result=maybe
        )
        digest = digest_of_step(content)
        steps.append(DemoStep(digest=digest, well_formed=well_formed, payload=content))
    made = [Demo(task="a/train/1", route="", reason="verified", wall_s=0.1, busy_s=0.2, steps=steps)] * 2
    header = RecordingHeader(format=demo_format.FORMAT, tokenizer="", form="", demos=2)
    demo_files.write(folder / "x.parquet", header, made)
    assert list(demo_files.read(folder / "x.parquet")[1]) == made


def test_seats_that_ask_at_once_are_spread_over_a_pools_members(tmp_path: Path) -> None:
    config = msgspec.structs.replace(
        settings(demos=12), demo_tasks=["a/train/0", "a/train/1"], demo_members={"a": ["gui", "hasty", "slow"]}
    )
    play = Play(tmp_path, config=config)
    for work in [play.reserve() for _ in range(3)]:
        play.commit(work, work.member != "slow", [step(None)])
    assert Counter(play.reserve().member for _ in range(7)) == {"slow": 3, "gui": 2, "hasty": 2}
    play.ledger.close()


def shown(path: Path) -> tuple[int, ...]:
    return demo_files.read(path)[0].observations


def played(run: Recorder) -> tuple[int, ...]:
    with reading(run.folder) as database:
        return queries.observations_of_episodes(database)


def recorded(folder: Path, version: int, monkeypatch: pytest.MonkeyPatch, successes: int) -> Recorder:
    monkeypatch.setattr(demo_tasks, "OBSERVATION_VERSION", version)
    run = Recorder(folder, 99)
    run.record(successes)
    return run


def test_a_recording_says_which_observation_it_shows_wherever_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (recorded(tmp_path / f"v{version}", version, monkeypatch, version) for version in (5, 7))
    files = {run: tmp_path / f"{run.folder.name}.parquet" for run in (old, new)}
    for run, file in files.items():
        export(run, file)
    assert [shown(file) for file in files.values()] == [(5,), (7,)]
    other = Recorder(tmp_path / "other", 99)
    assert (played(other), shown(other.folder)) == ((7,), (7,))
    other.take_in(files[old])
    assert shown(other.folder) == (5,), "nothing of its own desktops is in it"
    other.take_in(files[new])
    assert (played(other), shown(other.folder)) == ((7,), (5, 7))
    old.do(demo_tasks.label)  # another build goes on with it
    old.record(1)
    assert played(old) == shown(old.folder) == (5, 7)


@pytest.mark.parametrize("bad", [[], [0], ["2"], 2, list(range(1, 99))])
def test_versions_that_are_none_are_refused(bad: object, tmp_path: Path) -> None:
    plain = {"format": demo_format.FORMAT, "tokenizer": "", "form": "", "demos": 0, "observations": bad}
    pq.write_table(pa.table({}).replace_schema_metadata({KEY: json.dumps(plain)}), tmp_path / "demos.parquet")
    with pytest.raises(StoreError, match="observations"):
        demo_files.read(tmp_path / "demos.parquet")


def test_the_recording_that_comes_with_the_program_loads_whatever_is_renamed_in_the_code() -> None:
    header, found = demo_files.read(Path(demo_files.__file__).parents[3] / "deploy" / "demos" / "local.parquet")
    assert header.demos > 0
    assert header.observations == (OBSERVATION_VERSION,)
    demo = next(iter(found))
    assert demo.steps
    assert demo_files.unfit(demo) == ""
    largest = max(max(step.payload.prompt_ids + step.payload.response_ids) for step in demo.steps)
    assert demo_files.unfit(demo, largest + 1) == ""
    assert f"to {largest}, of {largest} that a model has" in demo_files.unfit(demo, largest)
