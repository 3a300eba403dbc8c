"""Tasks: OSWorld's form, generated families, their split, their verifiers."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apis import tasks
from apis.execute import data_of, setup
from apis.tasks import file_manager, osworld, text_editor
from apis.tasks.osworld import in_home
from apis.tasks.verify import CHECKS, FileView, Verdict, paths, verify
from apis.tasks.words import HELD_OUT, SPLITS, TRAIN, split_of
from runtime.errors import ConfigError

OSWORLD = Path(__file__).resolve().parents[3] / "shared" / "data" / "osworld"
IDS = st.builds(
    "{}/{}/{}".format, st.sampled_from(sorted(tasks.FAMILIES)), st.sampled_from(SPLITS), st.integers(0, 10**6)
)


def test_osworlds_own_files_load_and_survive_a_round_trip() -> None:
    if not OSWORLD.is_dir():
        pytest.skip("OSWorld's task files do not lie beside this checkout")
    files = sorted(OSWORLD.glob("*/*.json"))
    assert len(files) == 222
    for file in files:
        task = osworld.load(file.read_bytes())
        assert osworld.load(osworld.dump(task)) == task
        assert task.id == file.stem


def test_an_unknown_key_or_step_is_an_error() -> None:
    good = msgspec.json.decode(osworld.dump(tasks.task("text_editor/train/1")))
    for bad in (good | {"colour": 1}, good | {"config": [{"type": "reboot", "parameters": {}}]}):
        with pytest.raises(msgspec.ValidationError):
            osworld.load(msgspec.json.encode(bad))


@given(IDS)
def test_an_id_always_means_the_same_task(task_id: str) -> None:
    family = tasks.FAMILIES[task_id.split("/", maxsplit=1)[0]]
    task = tasks.task(task_id)
    assert family.task(task_id) == task == osworld.load(osworld.dump(task))
    assert task.feasible
    assert setup(task, "/home/agent")


@pytest.mark.parametrize(
    "task_id",
    ["text_editor", "text_editor/train", "x/train/1", "text_editor/test/1", "text_editor/train/-1", "a/b/c/d"],
)
def test_an_unknown_id_is_an_error(task_id: str) -> None:
    with pytest.raises(ConfigError, match="FAMILY/SPLIT/SEED"):
        tasks.task(task_id)


@pytest.mark.parametrize("family", [text_editor, file_manager])
def test_held_out_instances_share_nothing_with_training_ones(family: object) -> None:
    templates: dict[str, set[str]] = {split: set() for split in SPLITS}
    for by_split in family.TEMPLATES.values():  # type: ignore[attr-defined]
        for split, texts in by_split.items():
            templates[split] |= set(texts)
    assert templates[TRAIN].isdisjoint(templates[HELD_OUT])
    values: dict[str, set[str]] = {split: set() for split in SPLITS}
    instructions: dict[str, set[str]] = {split: set() for split in SPLITS}
    for split in SPLITS:
        for seed in range(1500):
            goal = tasks.goal(f"{family.NAME}/{split}/{seed}")  # type: ignore[attr-defined]
            instructions[split].add(goal.instruction)
            contents = " ".join(text for _, text in goal.files)
            stems = {name.partition(".")[0] for name in (goal.target, *(name for name, _ in goal.files))}
            values[split] |= {*contents.split(), *stems, *goal.wanted.partition(".")[0].split()} - {""}
    assert values[TRAIN].isdisjoint(values[HELD_OUT])
    assert all(split_of(value) == split for split in SPLITS for value in values[split])
    assert instructions[TRAIN].isdisjoint(instructions[HELD_OUT])
    assert len(instructions[TRAIN]) > 1400


def solved(task_id: str) -> dict[str, FileView]:
    """The files as they are when the task is done."""
    goal = tasks.goal(task_id)
    files = {name: text for name, text in goal.files if name != goal.target}
    views = {f"Documents/{name}": FileView("file", text.encode()) for name, text in files.items()}
    if goal.family == "text_editor":
        views[f"Documents/{goal.target}"] = FileView("file", goal.wanted.encode() + b"\n")
    elif goal.kind == "rename":
        views[f"Documents/{goal.wanted}"] = FileView("file", dict(goal.files)[goal.target].encode())
    elif goal.kind == "folder":
        views[f"Documents/{goal.wanted}"] = FileView("folder")
    return views


def judged(task_id: str, views: dict[str, FileView]) -> Verdict:
    task = tasks.task(task_id)
    assert set(views) <= set(paths(task))
    return verify(task, lambda path: views.get(path, FileView("missing")))


@given(IDS, st.randoms())
def test_the_verifier_accepts_the_solution_and_nothing_less(task_id: str, random: object) -> None:
    views = solved(task_id)
    verdict = judged(task_id, views)
    assert verdict.success, verdict.reason
    path = random.choice(sorted(views))  # type: ignore[attr-defined]
    for other in (FileView("missing"), FileView("file", b"other"), FileView("refused", reason="link")):
        assert not judged(task_id, views | {path: other}).success
    start = {f"Documents/{name}": FileView("file", text.encode()) for name, text in tasks.goal(task_id).files}
    assert not judged(task_id, start).success


@pytest.mark.parametrize("func", sorted(CHECKS))
def test_a_file_that_was_not_read_is_never_a_success(func: str) -> None:
    for view in (FileView("refused", reason="link"), FileView("file", b"\xff\xfe")):
        assert not CHECKS[func](view, {"expected": ["x"]}, {}).success


def test_lists_are_joined_as_osworld_does() -> None:
    task = tasks.task("file_manager/train/1")
    one = msgspec.structs.replace(task.evaluator, conj="or")
    some = msgspec.structs.replace(task, evaluator=one)
    assert verify(some, lambda _: FileView("missing")).success
    assert not verify(task, lambda _: FileView("missing")).success


def test_a_task_that_cannot_be_judged_or_prepared_is_at_fault() -> None:
    task = tasks.task("text_editor/train/1")
    strange = msgspec.structs.replace(task, evaluator=osworld.Evaluator(func="is_utc_0"))
    with pytest.raises(ConfigError, match="is_utc_0"):
        verify(strange, lambda _: FileView("missing"))
    step = osworld.Execute(osworld.CommandParameters(command=["reboot"]))
    with pytest.raises(ConfigError, match="Execute"):
        setup(msgspec.structs.replace(task, config=[step]), "/home/agent")
    remote = osworld.Download(osworld.DownloadParameters([osworld.Source("https://example.org/a", "/home/user/a")]))
    with pytest.raises(ConfigError, match="no network"):
        setup(msgspec.structs.replace(task, config=[remote]), "/home/agent")


def test_paths_and_urls() -> None:
    assert in_home("/home/user/Documents/a.txt") == "Documents/a.txt"
    assert in_home("/home/user") == ""
    for outside in ("/etc/passwd", "/home/username/a"):
        with pytest.raises(ValueError, match="not below"):
            in_home(outside)
    assert data_of("data:text/plain;base64,aGk=") == b"hi"
    assert data_of("data:,a%20b") == b"a b"
