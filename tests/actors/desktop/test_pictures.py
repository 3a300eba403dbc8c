"""A policy that sees, on a real desktop with a small screen: its picture goes into prompt, segments and sample."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec
import pytest

from actors.desktop.config import DesktopsConfig, PoolConfig, SandboxConfig, ScreenConfig, SeatConfig
from actors.desktop.demonstrators import of_oracle
from actors.desktop.episode import Episode
from actors.desktop.pool.leased import LeasedDesktop
from actors.desktop.pool.pool import DesktopPool
from actors.desktop.recorder import Recorder
from actors.desktop.scene import DesktopScene
from actors.replay.messages import Lane, Phase, PhaseRef, Reservation, Sampling, StepPayload
from apis.prompts import Sight
from policy.pictures import noise, picture_ids, picture_size
from policy.tokenizer import Tokenizer
from runtime.segments import SegmentStore, read_blob
from tests.policy.vision_model import style, tiny_vision_folder

SIDE = 224  # pixels


def reservation(task: str) -> Reservation:
    return Reservation(
        token=1, lane=Lane.DEMO, task=task, group="", slot=0, seed=1, max_turns=4, pin=None,
        sampling=Sampling(temperature=1.0, max_new_tokens=64), phase=PhaseRef(phase=Phase.DEMO, index=0),
    )  # fmt: skip


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
    pool, work = await DesktopPool.open(desktops, tmp_path / "episodes"), reservation(task)
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
