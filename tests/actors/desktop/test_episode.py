"""Whole episodes on real desktops: what the policy is shown, what it may do, and how it can fail."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from actors.cluster.checks.played import judged_again
from actors.desktop.answers import PromptTooLong
from actors.desktop.config import WHOLE_ONE_IN, DesktopsConfig, PoolConfig, SandboxConfig, ScreenConfig, SeatConfig
from actors.desktop.demonstrators import PoolAnswers, of_oracle
from actors.desktop.episode import (
    BUSY,
    Episode,
    EpisodeEnding,
    PlayedEpisode,
    Stage,
    StageClock,
    needs_verifier,
    outcome_of,
)
from actors.desktop.files.read_home import FileSeen
from actors.desktop.memo import Memo
from actors.desktop.player import Player
from actors.desktop.pool.leased import LeasedDesktop
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.recorder import EndState, Recorder
from actors.desktop.scene import DesktopScene
from actors.errors import AgentBrokeDesktop, DesktopFault, GuestRefused
from actors.replay.messages import Reservation, StepPayload
from apis.prompts import Sight
from apis.tasks.verify.verify import TaskVerdict
from policy.base import MODEL
from policy.pictures import noise, picture_ids, picture_size
from policy.tokenizer import Tokenizer
from runtime.errors import ConfigError, ProtocolError
from runtime.segments import SegmentStore, read_blob
from tests.actors.desktop.offices import Scripted, reservation
from tests.policy.vision_model import style, tiny_vision_folder

TASK = "text_editor/train/100"


class Stand:
    """A pool with one spare and a segment store."""

    def __init__(self, pool: DesktopPool, folder: Path) -> None:
        self.pool = pool
        self.segments = folder / "segments"
        self.recorder = Recorder(SegmentStore(self.segments, "test"))

    async def play(
        self,
        answerer: Scripted | PoolAnswers,
        work: Reservation | None = None,
        body: type[LeasedDesktop] = LeasedDesktop,
    ) -> PlayedEpisode:
        work = work or reservation()
        booted = await self.pool.acquire(60.0)
        clock = StageClock(0.0)
        try:
            episode = Episode(
                work,
                DesktopScene(work, body(booted), SeatConfig()),
                answerer=answerer,
                recorder=self.recorder,
                config=SeatConfig(),
                enter=lambda stage: clock.enter(stage, 0.0),
            )
            clock.enter(Stage.LEASING, 0.0)
            return await episode.play()
        finally:
            self.pool.retire(booted)

    def payload(self, played: PlayedEpisode, step: int) -> StepPayload:
        blob = read_blob(self.segments, played.steps[step].blob)
        return msgspec.msgpack.decode(blob, type=StepPayload)


class Forging(LeasedDesktop):
    """A desktop whose policy got at its agent's answers: no screenshot, and in the second look what no agent says."""

    looks = 0

    async def call(self, method: str, args: dict[str, Any], timeout_s: float) -> Any:
        if method == "screenshot":
            raise GuestRefused("failed", "no")
        answer = await super().call(method, args, timeout_s)
        if method == "observe":
            self.looks += 1
            answer = answer if self.looks == 1 else {"windows": [], "elements": msgspec.msgpack.Ext(7, b"x")}
        return answer


class Fading(LeasedDesktop):
    """A desktop that ends after its policy's last word, before the host could take a picture of it."""

    async def call(self, method: str, args: dict[str, Any], timeout_s: float) -> Any:
        if method == "screenshot":
            raise AgentBrokeDesktop("session_ended", "nobody is left")
        return await super().call(method, args, timeout_s)


@pytest_asyncio.fixture
async def stand(tmp_path: Path, state_dir: str) -> AsyncIterator[Stand]:
    desktops = DesktopsConfig(provider=SandboxConfig(state_dir=state_dir), pool=PoolConfig(warm_pool=0))
    pool = await DesktopPool.open(desktops, tmp_path / "episodes")
    made = Stand(pool, tmp_path)
    yield made
    await made.recorder.close()
    await pool.close()


async def test_a_demonstrator_succeeds_and_its_steps_can_be_read_back(stand: Stand) -> None:
    tokenizer = Tokenizer.load(MODEL)
    played = await stand.play(of_oracle(reservation(), tokenizer, "compact", 0.0))
    assert played.outcome.success, played.detail
    assert all(step.well_formed and step.oldest is None for step in played.steps)
    end = EndState.of([read_blob(stand.segments, blob) for blob in played.steps[-1].end])
    assert (await judged_again(TASK, end)).success
    spoilt = [FileSeen(path=one.path, data=b"another") for one in end.files]
    assert not (await judged_again(TASK, msgspec.structs.replace(end, files=spoilt))).success
    with pytest.raises(ConfigError, match="was not kept"):
        await judged_again(TASK, msgspec.structs.replace(end, files=[]))
    last = stand.payload(played, -1)
    assert tokenizer.decode(last.response_ids[:-1]) == last.response
    assert last.response_ids[-1] == tokenizer.eos_id
    assert last.screenshot is not None
    assert read_blob(stand.segments, last.screenshot).startswith(b"\xff\xd8")


@pytest.mark.parametrize(("token", "kept"), [(WHOLE_ONE_IN - 1, [False, True]), (WHOLE_ONE_IN, [True, True])])
async def test_of_one_episode_in_so_many_every_screenshot_is_kept(stand: Stand, token: int, kept: list[bool]) -> None:
    work = reservation(token=token)
    played = await stand.play(Scripted("Agent.wait(seconds=1)", "Agent.exit(success=False)"), work)
    assert [stand.payload(played, n).screenshot is not None for n in range(len(played.steps))] == kept


async def test_a_refusal_is_told_in_the_very_next_observation(stand: Stand) -> None:
    script = Scripted("Agent.clik(e1)", "Agent.exit(success=True)")
    played = await stand.play(script)
    assert "last: None" in script.prompts[0]
    assert "last: there is no function Agent.clik: did you mean Agent.click?" in script.prompts[1]
    assert "did: refused" in script.prompts[1]
    assert [step.well_formed for step in played.steps] == [False, True]
    assert played.outcome.reason == "not_verified"


@pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
async def test_what_a_tool_says_is_the_result_of_the_action(stand: Stand) -> None:
    script = Scripted(
        "Agent.open_app(app_name='libreoffice calc')",
        "CalcTools.set_cell_value(cell='B3', value='=6*7')",
        "CalcTools.set_cell_value(cell='B3', value='=6*(')",
        "Agent.exit(success=False)",
    )
    played = await stand.play(script)
    assert "last: B3 = 42" in script.prompts[2]
    assert "table-cell B3 42" in script.prompts[2]
    assert "last: Failed: value: Calc does not understand the formula '=6*('" in script.prompts[3]
    assert stand.payload(played, 1).result == "B3 = 42"
    assert '"name":"set_cell_value"' in (stand.payload(played, 1).action or "")


async def test_a_policy_that_ends_its_session_has_failed(stand: Stand) -> None:
    killing = "Agent.type(text='kill -9 -1', enter=True)"
    script = Scripted("Agent.open_app(app_name='terminal')", "Agent.wait()", killing, "Agent.wait()")
    played = await stand.play(script)
    assert (played.outcome.success, played.outcome.reason) == (False, "agent_broke_desktop"), played.detail
    shown = [stand.payload(played, at) for at in range(len(played.steps))]
    assert killing in [step.response for step in shown[2:]], "what did it is not forgotten"
    assert len(shown) <= 4, "a busy machine's shell obeys during the next step at the latest"
    assert shown[-1].screenshot is None
    assert played.steps[-1].well_formed
    again = await stand.play(Scripted("Agent.exit(success=False)"))
    assert again.outcome.reason == "agent_gave_up", "the next desktop is none the worse"


@pytest.mark.proof
async def test_answers_that_a_policy_forged_are_its_failure(stand: Stand) -> None:
    played = await stand.play(Scripted("Agent.wait()"), body=Forging)
    assert (played.outcome.success, played.outcome.reason) == (False, "agent_broke_desktop"), played.detail
    played = await stand.play(Scripted("Agent.exit(success=False)"), body=Forging)
    assert played.outcome.reason == "agent_gave_up"
    assert stand.payload(played, -1).screenshot is None


@pytest.mark.proof
async def test_an_agent_that_breaks_under_the_last_picture_takes_no_claim_back(stand: Stand) -> None:
    played = await stand.play(Scripted("Agent.exit(success=False)"), body=Fading)
    assert (played.outcome.success, played.outcome.reason) == (False, "agent_gave_up"), played.detail
    assert [stand.payload(played, 0).response] == ["Agent.exit(success=False)"]
    assert (len(played.steps), stand.payload(played, 0).screenshot) == (1, None)


async def test_a_prompt_that_outgrows_the_model_fails_the_episode(stand: Stand) -> None:
    refused = await stand.play(Scripted("not an action", PromptTooLong("600 tokens")))
    assert (refused.outcome.success, refused.outcome.reason, len(refused.steps)) == (False, "out_of_steps", 1)
    grown = Scripted("Agent.hotkey(keys=['esc'])", PromptTooLong("600 tokens"))
    played = await stand.play(grown)
    assert (played.outcome.success, played.outcome.reason, len(played.steps)) == (False, "out_of_steps", 1)


async def test_a_first_prompt_that_the_model_can_not_take_is_no_failure_of_the_policy(stand: Stand) -> None:
    with pytest.raises(DesktopFault, match="prompt_refused: 600 tokens"):
        await stand.play(Scripted(PromptTooLong("600 tokens")))


async def test_a_fault_is_retried_and_counted_and_never_becomes_an_outcome(stand: Stand) -> None:
    gone = DesktopFault("sampler_unavailable", "gone", "sampler")
    flaky = Scripted(gone, "Agent.exit(success=False)")
    play = await Player(stand.pool).play(TASK, lambda _: flaky)
    assert [fault.cause for fault in play.faults] == ["sampler_unavailable"]
    assert play.outcome is not None
    assert play.outcome.reason == "agent_gave_up"
    broken = await Player(stand.pool, retries=1).play(TASK, lambda _: Scripted(gone))
    assert (broken.outcome, len(broken.faults), broken.success) == (None, 2, False)


async def test_what_a_memo_knows_is_played_without_a_desktop(stand: Stand, tmp_path: Path) -> None:
    memo = Memo("of/this/test", tmp_path / "memo.parquet")
    first, again = [
        await Player(stand.pool, memo=memo).play(TASK, lambda _: Scripted("Agent.exit(success=False)"))
        for _ in range(2)
    ]
    await memo.close()
    assert first.cpu_s > 0.0
    assert (again.boot_cpu_s, again.cpu_s) == (0.0, 0.0)
    assert again.outcome == first.outcome
    assert [step.observation for step in again.steps] == [step.observation for step in first.steps]


def test_only_a_verified_claim_is_a_success_on_a_feasible_task() -> None:
    for ending in EpisodeEnding:
        for verdict in (TaskVerdict(True, ""), TaskVerdict(False, "", 0.5), TaskVerdict(False, ""), None):
            outcome = outcome_of(ending, True, verdict)
            assert outcome.success == (ending is EpisodeEnding.CLAIMED and verdict is not None and verdict.success)
            assert outcome.score == (None if verdict is None else verdict.points)


def test_the_end_state_of_a_time_out_is_judged_where_it_is_scored() -> None:
    scored = {ending for ending in EpisodeEnding if needs_verifier(ending, True, scored=True)}
    assert scored == {EpisodeEnding.CLAIMED, EpisodeEnding.OUT_OF_STEPS}
    assert not any(needs_verifier(ending, False, scored=True) for ending in EpisodeEnding)
    assert not needs_verifier(EpisodeEnding.OUT_OF_STEPS, True)


def test_only_giving_up_is_a_success_on_an_infeasible_task() -> None:
    for ending in EpisodeEnding:
        outcome = outcome_of(ending, False, None)
        assert outcome.success == (ending is EpisodeEnding.GAVE_UP)
        assert not outcome.feasible
        assert not needs_verifier(ending, False)


@given(st.lists(st.tuples(st.sampled_from(list(Stage)), st.floats(0.0, 10.0)), max_size=60))
def test_stage_seconds_add_up_and_forbidden_moves_are_refused(moves: list[tuple[Stage, float]]) -> None:
    clock, now = StageClock(0.0), 0.0
    for stage, passed in moves:
        now += passed
        before = clock.stage
        try:
            clock.enter(stage, now)
        except ProtocolError:
            assert clock.stage is before
    total = sum(clock.seconds.values()) + (now - clock.since)
    assert total == pytest.approx(now)
    assert clock.busy_s(now) <= total + 1e-9


def test_a_frozen_desktop_never_acts_again() -> None:
    clock = StageClock(0.0)
    for stage in (Stage.LEASING, Stage.SETUP, Stage.OBSERVING, Stage.VERIFYING):
        clock.enter(stage, 1.0)
    with pytest.raises(ProtocolError, match="verifying to acting"):
        clock.enter(Stage.ACTING, 2.0)
    assert Stage.IDLE not in BUSY


SIDE = 224  # pixels


def test_noise_is_a_small_picture_of_the_screen_s_size() -> None:
    one, other = noise((1280, 720), "1 0"), noise((1280, 720), "1 1")
    assert picture_size(one) == (1280, 720)
    assert one == noise((1280, 720), "1 0") != other
    assert len(one) < 120_000


@pytest.mark.parametrize("task", ["picture_colour/train/7", "picture_word/held-out/7"])
async def test_an_oracle_shows_what_a_policy_that_sees_would_do(tmp_path: Path, state_dir: str, task: str) -> None:
    folder = tiny_vision_folder(tmp_path / "model")
    tokenizer, sight = Tokenizer.load(folder), Sight(observed="picture", unit="thousandths")
    screen = ScreenConfig(width=SIDE, height=SIDE)
    desktops = DesktopsConfig(provider=SandboxConfig(state_dir=state_dir), pool=PoolConfig(warm_pool=0), screen=screen)
    pool, work = await DesktopPool.open(desktops, tmp_path / "episodes"), reservation(task, max_turns=4)
    recorder, config = Recorder(SegmentStore(tmp_path / "segments", "test")), SeatConfig(sight=sight)
    try:
        booted = await pool.acquire(60.0)
        scene = DesktopScene(work, LeasedDesktop(booted), config)
        oracle = of_oracle(work, tokenizer, "compact", 0.0, sight=sight)
        episode = Episode(work, scene, answerer=oracle, recorder=recorder, config=config, enter=lambda _: None)
        played = await episode.play()
        pool.retire(booted)
    finally:
        await recorder.close()
        await pool.close()
    assert played.outcome.success, played.detail
    ids = picture_ids(SIDE, SIDE, style(folder))
    for ref in played.steps:
        step = msgspec.msgpack.decode(read_blob(tmp_path / "segments", ref.blob), type=StepPayload)
        (seen,) = step.pictures
        assert (seen.width, seen.height, ref.screenshot, ref.pictures) == (SIDE, SIDE, None, [seen.blob])
        assert step.prompt_ids[seen.at - 1 : seen.at - 1 + len(ids)] == ids, "it comes before the text"
        assert "e1 " not in step.observation, "no element has a name"
        png = read_blob(tmp_path / "segments", seen.blob)
        assert hashlib.sha256(png).hexdigest() == seen.digest
        assert len(png) <= 120_000
