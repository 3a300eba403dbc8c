"""A real SGLang server reads every version from memory that it shares with the learner's rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.sampler.config import SamplersConfig, SamplerSettings, WeightSyncConfig
from runtime.program import TOKEN_ENV
from runtime.system import ActorSpec
from tests.actors.learner.test_learner_actor import FAST, running
from tests.sglang.conftest import sglang_server
from tests.sglang.test_real_collective import PATIENT, check, loads, two_versions

pytestmark = pytest.mark.real_sglang


@pytest.mark.parametrize("update", ["drain", "in_place"])
async def test_a_server_reads_each_version_from_shared_memory(tmp_path: Path, models: list[Path], update: str) -> None:
    with sglang_server(models[0], tmp_path) as server:
        sampler = SamplerSettings(
            samplers=SamplersConfig(attach=[server.url], api_key_env=TOKEN_ENV),
            weight_sync=WeightSyncConfig(transport="shared", in_flight=update),  # type: ignore[arg-type]
            model=str(models[0]),
            attach=server.url,
            hung_after_s=60.0,
            restart=PATIENT,
        )
        spec = ActorSpec(name="sampler/0", factory="actors.sampler.actor:SamplerActor", config=sampler, restart=FAST)
        folder = tmp_path / "run"
        async with running(folder, models[0], apart=True, shared=True, samplers=[spec], checkpoint_every=1000) as run:
            await check(run, "sampler/0", await two_versions(run))
        assert loads(run, "sampler/0") == [("0.1", "shared"), ("0.2", "shared")]
        assert all(line["off_by"] < 1e-4 for line in run.logged("weights_loaded", "sampler/0"))
        assert not run.logged("weights_not_received", "sampler/0")
