"""A fabricated run with hostile texts, and a reader that finds what a page would run or fetch."""

from __future__ import annotations

import hashlib
import json
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any

import msgspec
from PIL import Image

from actors.cluster.config import deploy_files
from actors.cluster.config.schema import Deploy, RunConfig
from actors.cluster.runs import run_folder
from actors.replay.database.ledger_file import connect
from actors.replay.messages import PictureRef, StepPayload, StepRef
from runtime.segments import SegmentStore

HOSTILE = '</pre><script>alert(1)</script><img src="http://evil.example/x.png" onerror=alert(2)>&amp;\x1b[2J\u202e'
GOES_ON = "goes on"  # in place of a verdict: the run has an owner
VOID = {"meta", "img", "br", "link"}


class Reader(HTMLParser):
    """Checks that elements nest and keeps what the page would run or fetch."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.ids: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, name: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(name)
        if name not in VOID:
            self.open.append(name)
        self.attributes += [(key, value or "") for key, value in attrs]
        self.ids += [value or "" for key, value in attrs if key == "id"]

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, words: str) -> None:
        self.words.append(words)

    def refuse_outside(self) -> None:
        assert "script" not in self.tags
        for key, value in self.attributes:
            assert not key.startswith("on")
            if key in ("src", "href", "action", "data", "srcset", "poster"):
                assert value.startswith(("data:image/", "#"))


def jpeg(kind: str = "JPEG") -> bytes:
    buffer = BytesIO()
    Image.new("RGB", (8, 6), "teal").save(buffer, kind)
    return buffer.getvalue()


PICTURED = 202  # token of an episode whose model saw pictures


MEASURED = {"forward_s": 1.5, "rehearsal_s": 0.25, "mismatch_mean": 1e-6}


def record(name: str, started_s: float = 1.0, file: str = "local", **more: Any) -> run_folder.RunRecord:
    """A run's record, but for what is named."""
    plain: dict[str, Any] = {"seed": 0, "build": "b", "versions": {}, "started": run_folder.iso(started_s)}
    return run_folder.RunRecord(name=name, file=file, started_s=started_s, **plain | more)


class Fabricated:
    """A run folder with a ledger filled by hand."""

    def __init__(self, folder: Path, *, seed: int = 0, arm: str = "", verdict: str | None = "ok") -> None:
        self.path = folder
        run = run_folder.claim(folder, record(folder.name, seed, seed=seed, experiment=arm), resume=False)
        rate = 1e-3 * len(arm)
        deploy = Deploy(run=RunConfig(seed=seed))
        rl = msgspec.structs.replace(deploy.learner.rl, lr=rate or 1e-4)
        deploy = msgspec.structs.replace(deploy, learner=msgspec.structs.replace(deploy.learner, rl=rl))
        (folder / "deploy.yaml").write_text(deploy_files.dump(deploy))
        (folder / "logs").mkdir()
        self.db, _ = connect(folder / "ledger.sqlite")
        self.put("stays", idx=0, root=0, phase="demo", start="0.0", seq_bound=0, cause="begin", evidence="{}", wall=0.0)
        self.owner = run
        if verdict is None:
            run._lock.close()  # as a kill does
        elif verdict != GOES_ON:
            run.end(verdict, None)

    def put(self, table: str, **values: Any) -> None:
        marks = ", ".join("?" * len(values))
        self.db.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", tuple(values.values()))

    def learn(self, steps: int = 6, shift: float = 0.0) -> None:
        evidence = json.dumps({"rise": 0.5})
        self.put("stays", idx=1, root=1, phase="rl", start="0.2", seq_bound=0, cause="<b>", evidence=evidence, wall=0.0)
        for number in range(3, 3 + steps):
            figures = {"loss": 0.5, "entropy": 1.0 / number + shift, "kl": 0.01, "clip_fraction": 0.0}
            self.put(
                "leases", id=number, request_id=str(number), learner="l", stay=1, state="trained", made=f"0.{number}",
                success=0.5, entropy=0.5, figures=json.dumps(figures | MEASURED),
            )  # fmt: skip
            body = {
                "lease": number, "action_entropy_nats": 1.0, "distinct_trajectories": 0.5, "coverage": 0.1 * number,
                "staleness": {"0": 3, "1": 1}, "wasted": {"zero_variance": 1},
                "all_right": {"a": 0.5, "b": 0.0}, "all_wrong": {"a": (number - 3) / 4, "b": 1.0},
            }  # fmt: skip
            self.put("evidence", lease=number, wasted="{}", body=json.dumps(body))
        self.put("groups", id=1, task="a/train/1", stay=1, state="ended", ending="zero_variance")

    def play(self, round_id: int, name: str, version: str, wins: list[bool]) -> None:
        self.put(
            "rounds", id=round_id, name=name, version=version, temperature=1.0, max_new_tokens=64, task_set="abc",
            tasks=len(wins), closed=1,
        )  # fmt: skip
        segments = SegmentStore(self.path / "segments", "test") if round_id == 2 else None
        for number, success in enumerate(wins):
            token = round_id * 100 + number
            self.put(
                "reservations", token=token, request_id=str(token), seat="desktop/0", lane="eval", stay=1, slot=number,
                task=f"file_manager/held-out/{number}", round_id=round_id, state="committed", expires=0.0, reply=b"",
            )  # fmt: skip
            self.put(
                "episodes", token=token, lane="eval", task=f"file_manager/held-out/{number}", stay=1, round_id=round_id,
                success=success, feasible=1, reason=HOSTILE if not success else "verified", wall_s=1.0, busy_s=1.0,
                ended_step=5,
            )  # fmt: skip
            if segments is not None:
                self._step(segments, token)
        if segments is not None:
            segments.close()

    def _step(self, segments: SegmentStore, token: int, refusal: str | None = HOSTILE) -> None:
        shot, pictures = segments.append(jpeg()), list[PictureRef]()
        if token == PICTURED:
            png = jpeg("PNG")
            digest = hashlib.sha256(png).hexdigest()
            pictures = [PictureRef(blob=segments.append(png), digest=digest, width=8, height=6, at=0)]
        payload = StepPayload(
            prompt_ids=[1], response_ids=[2], logprobs=[0.0], spans=[], temperature=1.0, observation=HOSTILE,
            response=HOSTILE, action=None, refusal=refusal, result=HOSTILE, screenshot=shot, observe_ms=0.0,
            generate_ms=0.0, act_ms=0.0, pictures=pictures,
        )  # fmt: skip
        blob = segments.append(msgspec.msgpack.encode(payload))
        ref = StepRef(
            blob=blob, prompt_tokens=1, response_tokens=1, well_formed=True, oldest=None, screenshot=shot,
            pictures=[one.blob for one in pictures],
        )  # fmt: skip
        self.put("steps", token=token, n=1, well_formed=1, ref=msgspec.msgpack.encode(ref))

    def log(self, event: str, **fields: Any) -> None:
        line = {"ts": "2026-01-01T00:00:00+00:00", "t": 1.0, "level": "info", "event": event, "actor": "x", **fields}
        with (self.path / "logs" / "x.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    def done(self) -> Path:
        self.db.close()
        return self.path


def gained(folder: Path, first: list[bool], last: list[bool], **more: Any) -> Fabricated:
    """A run that learned between its first round and its last."""
    run = Fabricated(folder, **more)
    run.learn()
    run.play(1, "after_bc", "0.2", first)
    run.play(2, "final", "0.8", last)
    return run


def whole(folder: Path, *, seed: int = 0, arm: str = "", shift: float = 0.0) -> Path:
    run = Fabricated(folder, seed=seed, arm=arm)
    run.learn(shift=shift)
    run.play(1, "after_bc", "0.2", [True, False, False, False, True, False])
    run.play(2, "final", "0.8", [True, True, True, False, True, True])
    run.log("episode_ended", token=203, detail=HOSTILE, lane="eval", t0=0.0, t1=1.0)
    return run.done()
