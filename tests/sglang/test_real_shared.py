"""A real SGLang server reads every version from memory that it shares with the learner's rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.learner.messages import WriteWeights
from actors.replay.messages import Phase, Sampling
from actors.sampler.config import SamplersConfig, SamplerSettings, WeightSyncConfig
from actors.sampler.messages import Generate, Generated, Weights
from runtime.messaging.message import Version
from runtime.program import TOKEN_ENV
from runtime.system import ActorSpec
from tests.actors.learner.test_learner_actor import FAST, running
from tests.policy.engine_tools import VOCAB, reference_logprobs
from tests.sglang.conftest import sglang_server
from tests.sglang.test_real_collective import PATIENT

pytestmark = pytest.mark.real_sglang
PROMPT = [(3 + 7 * i) % VOCAB for i in range(24)]
WAIT_S = 240.0


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
            await run.seats.play(2, None)
            await run.enter(Phase.BC, steps=1)
            first, second = Version(lineage=0, step=1), Version(lineage=0, step=2)
            await run.until(lambda figures: figures.served == first)
            await run.enter(Phase.RL)
            await run.seats.play(2, first)
            await run.until(lambda figures: figures.served == second)
            assert not (run.folder / "weights" / str(second)).exists(), "written before anybody needs it on disk"
            weights: Weights = await run.system.ref("learner").ask(WriteWeights(version=second), timeout_s=WAIT_S)
            wish = Generate(rid="one", prompt_ids=PROMPT, sampling=Sampling(temperature=1.0, max_new_tokens=6))
            found: Generated = await run.system.ref("sampler/0").ask(wish, timeout_s=WAIT_S)
            assert {span.version for span in found.spans} == {second}
            expected = reference_logprobs(Path(weights.location), PROMPT, found.output_ids, 1.0)
            assert found.logprobs == pytest.approx(expected, abs=1e-4)
        loads = run.logged("weights_loaded", "sampler/0")
        assert [(line["version"], line["way"]) for line in loads] == [("0.1", "shared"), ("0.2", "shared")]
        assert all(line["off_by"] < 1e-4 for line in loads)
        assert not run.logged("weights_not_received", "sampler/0")
