"""One rank: the process that holds the tensors, or its part of them.

Invariant: tensor work runs in one dedicated thread, one piece at a time, so the process keeps answering. A plan is
carried out once. Weights are saved and exported only under their own version. The learner asks rank 0 alone; all ranks
do the same things in the same order. Ranks that may have come apart never go on: their processes end, and their
successors meet again.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

import msgspec

from actors.learner import batches, messages
from actors.learner.broadcast import Sender
from actors.learner.config import RankSettings
from actors.sampler.messages import Canary
from policy import checkpoints
from policy.errors import LearnerError, NoModel
from policy.packing import MicroBatch, PackedSample
from runtime import disk
from runtime.actor import Actor, Context, handles
from runtime.errors import (
    ActorFailed,
    ActorGone,
    ComputerRLError,
    ConfigError,
    DeadlineExceeded,
    DiskRefuses,
    MailboxFull,
    StoreError,
)
from runtime.hosts import door
from runtime.messaging.message import Done, Request, Version
from runtime.messaging.refs import Ref

if TYPE_CHECKING:
    from policy.megatron.trainer import Trainer


T = TypeVar("T")
MEET_S = 300.0  # for all to meet: a rank whose process or machine was lost starts again meanwhile
AGAIN_S = 0.2
GRACE_S = 10.0  # after one rank has failed, for the others to fail alike
WORK_S = 4 * 3600.0  # a whole model from a slow disk; a lost rank is noticed long before
TELL_S = 2.0
APART = (ActorGone, ActorFailed, DeadlineExceeded, MailboxFull)  # of a rank that did not say what it did


def meeting_s(ranks: int) -> float:
    """Seconds that so many ranks may take to meet: all are ready first, and then they join."""
    return 2 * MEET_S if ranks > 1 else 0.0


class Peers:
    """Ranks 1 and up, by their actors' names in order."""

    def __init__(self, names: Sequence[str], ctx: Context) -> None:
        self._refs = [ctx.ref(name) for name in names]
        self._ctx = ctx
        self.met = False

    async def meet(self, address: str, port: int, join: Callable[[messages.JoinRanks], Awaitable[None]]) -> None:
        """Once in this process's life: all ranks meet at this rank's store; `join` is this rank's part.

        Ranks of one machine have numbers in a row, this rank's machine first: Megatron's tensor groups are such rows.
        """
        places = [place.address for place in await asyncio.gather(*map(self._ready, self._refs))]
        order = sorted(range(len(places)), key=lambda k: (places[k] != address, places[k], k))
        self._refs = [self._refs[k] for k in order]
        mine, *theirs = (
            messages.JoinRanks(address=address, port=port, rank=rank, ranks=len(order) + 1)
            for rank in range(len(order) + 1)
        )
        joined = [ref.ask(msg, timeout_s=MEET_S) for ref, msg in zip(self._refs, theirs, strict=True)]
        await self._all("meeting", join(mine), joined)
        self.met = True

    async def together(self, msg: Request[Any], own: Awaitable[T]) -> T:
        """Have every rank carry out `msg`, of which `own` is this rank's part; its result.

        What all ranks refuse alike is raised, as this rank raised it.
        """
        return await self._all(type(msg).__name__, own, [ref.ask(msg, timeout_s=WORK_S) for ref in self._refs])

    async def _ready(self, ref: Ref) -> messages.RankPlace:
        """A process that has met other ranks ends when it is asked, and its successor is asked again.

        Raises NoModel where none comes in time: the learner asks again, as long as it takes.
        """
        deadline = self._ctx.clock.now() + MEET_S
        while True:
            try:
                return await ref.ask(messages.GetReady(), timeout_s=max(1.0, deadline - self._ctx.clock.now()))
            except (ActorGone, DeadlineExceeded) as error:
                if self._ctx.clock.now() >= deadline:
                    raise NoModel(f"another rank has not come within {MEET_S:g} s: {error}") from error
                await self._ctx.clock.sleep(AGAIN_S)  # asks wait for its process, unless that is never started again

    async def _all(self, what: str, own: Awaitable[T], asked: Sequence[Coroutine[Any, Any, Any]]) -> T:
        mine = asyncio.ensure_future(own)
        theirs = [asyncio.ensure_future(coroutine) for coroutine in asked]
        done, pending = await asyncio.wait([mine, *theirs], return_when=asyncio.FIRST_EXCEPTION)
        if pending and not any(isinstance(task.exception(), APART) for task in done):
            more, pending = await asyncio.wait(pending, timeout=GRACE_S)
            done |= more
        failures = [error for task in done if (error := task.exception()) is not None]
        alike = [error for error in failures if isinstance(error, ComputerRLError) and not isinstance(error, APART)]
        if pending or len(alike) != len(failures) or len(failures) not in {0, len(done)}:
            await self._end(f"{what}: {', '.join(map(repr, failures))}")
        return mine.result()

    async def _end(self, cause: str) -> NoReturn:
        await asyncio.gather(
            *(ref.tell(messages.EndRank(cause=cause), timeout_s=TELL_S) for ref in self._refs), return_exceptions=True
        )
        end_process(self._ctx, cause)


def end_process(ctx: Context, cause: str) -> NoReturn:
    """End this process, and let its supervisor start another: a thread that waits for other ranks can't be stopped."""
    ctx.log.emit(messages.RANK_ENDS, cause=cause)
    os._exit(1)


ANSWERS_KEPT = 16
LONG_WORK_S = 3600.0
CANARY_TOKENS, CANARY_FIRST, CANARY_STRIDE = 128, 5, 7919  # the stride is prime: neighbours are far apart


class RankActor(Actor):
    """Carries out plans on the model that it was asked to load."""

    config: RankSettings
    met: ClassVar[bool] = False  # whether this process has begun to meet other ranks: once in its life

    def __init__(self, config: RankSettings) -> None:
        super().__init__(config)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="tensors")
        self._trainer: Trainer | None = None
        self._version = Version(lineage=0, step=0)
        self._answers: OrderedDict[str, messages.StepResult] = OrderedDict()
        self._doing = "no model"
        self._shared: object = None

    async def on_start(self) -> None:
        self._sender = Sender(self.ctx)
        first, *others = self.config.ranks
        self._first = self.ctx.name == first
        self._peers = Peers(others, self.ctx) if others and self._first else None

    async def on_stop(self) -> None:
        await asyncio.to_thread(self._thread.shutdown, wait=True, cancel_futures=True)

    def doing(self) -> str:
        return self._doing

    @handles(messages.LoadModel, slow_after_s=LONG_WORK_S)
    async def load(self, msg: messages.LoadModel) -> messages.ModelLoaded:
        """Replace the model. Raises ConfigError or StoreError when the location can't be loaded.

        Raises NoModel in a process that has met no other ranks. Rank 0 had met its predecessor, and ends too.
        """
        if not self._first and not RankActor.met:  # a process that has loaded alone could meet no others
            raise NoModel(f"{self.ctx.name} has met no other ranks yet")
        self._trainer = None
        self._answers.clear()
        if self._peers is not None and not self._peers.met:
            address, port = await self._run("waiting for the other ranks", self._listen)
            await self._peers.meet(address, port, self._meet)
        loaded = await self._all(msg, self._run(f"loading {msg.location}", lambda: self._load(msg)))
        self._version = msg.version
        return loaded

    @handles(messages.StepPlan, slow_after_s=LONG_WORK_S)
    async def step(self, msg: messages.StepPlan) -> messages.StepResult:
        """One optimizer step. Raises NoModel when the rank does not hold the version that the plan starts from.

        Raises StoreError when a file does not hold the micro-batches that the plan says it does.
        """
        if (known := self._answers.get(msg.plan_id)) is not None:
            return known
        trainer = self._holding(Version(lineage=msg.version.lineage, step=msg.version.step - 1))
        # The other ranks get the micro-batches from this one's memory.
        bare = msgspec.structs.replace(msg, micro_batches=[], rehearsal=[], plan_file=None)
        result = await self._all(bare, self._run(f"step {msg.version} ({msg.kind})", lambda: self._step(trainer, msg)))
        self._version = msg.version
        self._answers[msg.plan_id] = result
        while len(self._answers) > ANSWERS_KEPT:
            self._answers.popitem(last=False)
        return result

    @handles(messages.LookAt, slow_after_s=LONG_WORK_S)
    async def look(self, msg: messages.LookAt) -> messages.ProbeFigures:
        """Raises NoModel when the rank is not at that version."""
        trainer = self._holding(msg.version)
        work = self._run(f"looking with {msg.version}", lambda: trainer.evaluate(msg.micro_batches))
        return messages.ProbeFigures(figures=await self._all(msg, work))

    @handles(messages.ExportWeights, slow_after_s=LONG_WORK_S)
    async def export(self, msg: messages.ExportWeights) -> messages.Saved:
        """Raises NoModel when the rank is not at that version."""
        trainer = self._holding(msg.version)
        began = time.monotonic()

        def export() -> tuple[str, Canary, str]:
            canary = _canary(trainer)
            tensors = trainer.snapshot(on_host=self.config.turns) if msg.keep else None
            if tensors is not None and self._first:
                self._sender.keep(msg.version, tensors)
            written = ""
            if msg.write:
                written = _written(Path(msg.location), lambda where: trainer.export(where, tensors))
            return written, canary, _written(Path(msg.adapter), trainer.export_adapter) if msg.adapter else ""

        digest, canary, adapter = await self._all(msg, self._run(f"exporting {msg.version}", export))
        seconds = time.monotonic() - began
        return messages.Saved(
            location=msg.location, digest=digest, seconds=seconds, canary=canary, adapter_digest=adapter
        )

    @handles(messages.WriteKept, concurrent=True)
    async def write(self, msg: messages.WriteKept) -> messages.Saved:
        """Raises NoModel when that version is not kept."""
        tensors, trainer = self._sender.kept(msg.version), self._trainer
        if trainer is None:
            raise NoModel(f"{self.ctx.name} is loading a model")
        began = time.monotonic()
        # Not in the tensors' thread: what was kept does not change, and a step may take long.
        digest = await asyncio.to_thread(_written, Path(msg.location), lambda where: trainer.write(where, tensors))
        return messages.Saved(location=msg.location, digest=digest, seconds=time.monotonic() - began)

    @handles(messages.Broadcast, concurrent=True)
    async def broadcast(self, msg: messages.Broadcast) -> messages.Broadcasting:
        """Raises NoModel when that version was not kept, LearnerError while another is sent."""
        return await self._sender.begin(msg)

    @handles(messages.ShareKept, concurrent=True)
    async def share(self, msg: messages.ShareKept) -> messages.SharedWeights:
        """Raises NoModel when that version is not kept."""
        from policy import broadcast

        tensors = self._sender.kept(msg.version)
        parts = await asyncio.to_thread(broadcast.handles, tensors)
        self._shared = tensors  # until others are: an engine may still read
        return messages.SharedWeights(parts=parts)

    @handles(messages.SaveCheckpoint, slow_after_s=LONG_WORK_S)
    async def save(self, msg: messages.SaveCheckpoint) -> messages.Saved:
        """Raises NoModel when the rank is not at that version."""
        trainer = self._holding(msg.version)
        began = time.monotonic()

        def save() -> str:
            return _written(Path(msg.location), lambda where: trainer.save(where, str(msg.version)))

        digest = await self._all(msg, self._run(f"saving {msg.version}", save))
        return messages.Saved(location=msg.location, digest=digest, seconds=time.monotonic() - began)

    @handles(messages.Rest, slow_after_s=LONG_WORK_S)
    async def rest(self, _: messages.Rest) -> Done:
        if self._trainer is not None:
            await self._run("making room on the card", self._trainer.updater.rest)
        return Done()

    @handles(messages.GetReady, concurrent=True)
    async def ready(self, _: messages.GetReady) -> messages.RankPlace:
        """Where this rank is. A process that has met others ends: its successor is asked again."""
        if RankActor.met:
            end_process(self.ctx, "this process has met other ranks already")
        return messages.RankPlace(address=await asyncio.to_thread(self.ctx.address))

    @handles(messages.JoinRanks, concurrent=True, slow_after_s=LONG_WORK_S)
    async def join(self, msg: messages.JoinRanks) -> Done:
        await self._meet(msg)
        return Done()

    @handles(messages.EndRank, concurrent=True)
    async def end(self, msg: messages.EndRank) -> None:
        """End this process, unless it is one that has met no ranks yet."""
        if RankActor.met:
            end_process(self.ctx, msg.cause)

    def _listen(self) -> tuple[str, int]:
        import torch.distributed as dist

        address, ranks = self.ctx.address(), len(self.config.ranks)
        heard = socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
        port = int(heard.getsockname()[1])
        self._store = dist.TCPStore(
            address, port, ranks, is_master=True, wait_for_workers=False, master_listen_fd=heard.detach()
        )
        return address, port

    async def _meet(self, msg: messages.JoinRanks) -> None:
        if RankActor.met:
            end_process(self.ctx, "this process has met other ranks already")
        RankActor.met = True

        def meet() -> None:
            import torch.distributed as dist

            from policy.megatron import ranks

            store = dist.TCPStore(msg.address, msg.port, msg.ranks, is_master=False)
            if self.ctx.apart:  # one may write a whole model while the others wait for it
                interface = door.interface_of(self.ctx.address())
                ranks.meet(store, msg.rank, msg.ranks, interface, WORK_S)
            else:
                ranks.meet(store, msg.rank, msg.ranks)

        await self._run("meeting the other ranks", meet)

    def _holding(self, version: Version) -> Trainer:
        if self._trainer is None or self._version != version:
            version_here = "no model" if self._trainer is None else str(self._version)
            raise NoModel(f"{self.ctx.name} holds {version_here}, not {version}")
        return self._trainer

    async def _all(self, msg: Request[Any], own: Coroutine[Any, Any, T]) -> T:
        if self._peers is not None:
            return await self._peers.together(msg, own)
        try:
            return await own
        except ComputerRLError:
            raise
        except Exception as error:
            if not self._first:  # most likely another rank has died
                end_process(self.ctx, f"{type(msg).__name__}: {error!r}")
            raise

    async def _run(self, what: str, work: Callable[[], T]) -> T:
        self._doing = what
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._doing = f"at {self._version}"

    def _load(self, msg: messages.LoadModel) -> messages.ModelLoaded:
        from policy.megatron.ranks import on_all, on_first
        from policy.megatron.trainer import Trainer

        optim, parallel, where = self.config.learner.optim(), self.config.learner.parallel, Path(msg.location)

        def look() -> bytes:
            if not where.is_dir():
                raise ConfigError(f"{socket.gethostname()} has no folder {where}: share it (deploy/machines.md)")
            return b""

        def verify() -> bytes:
            checkpoints.verify(where, msg.digest)
            return b""

        if self.ctx.apart:  # all are to learn of it before they wait for the one that lacks it
            on_all(look)
        if msg.checkpoint:
            on_first(verify)
            trainer = Trainer.resume(where, optim, reference=self.config.learner.rl.kl_coef > 0, parallel=parallel)
        else:
            trainer = Trainer(where, optim, parallel=parallel)
        self._trainer = trainer
        if msg.checkpoint and Version.parse(trainer.loaded_version).step != msg.version.step:
            self._trainer = None
            raise StoreError(f"{msg.location} is a checkpoint of {trainer.loaded_version}, not of {msg.version}'s step")
        return messages.ModelLoaded(parameters=trainer.parameters)

    def _step(self, trainer: Trainer, msg: messages.StepPlan) -> messages.StepResult:
        import torch

        if msg.kind not in {"grpo", "cross_entropy"}:
            raise LearnerError(f"a plan's kind is grpo or cross_entropy, not {msg.kind!r}")
        micro_batches, rehearsal = self._batches(msg)
        sft = msg.kind == "cross_entropy"
        learner = self.config.learner
        torch.set_num_threads(learner.sft.threads if sft else learner.rl.threads)
        now = self.ctx.clock.now  # the learner logs these with moments of other hosts
        t0 = now()
        if msg.fresh_optimizer:
            trainer.fresh_optimizer()
        # A resume may set a coefficient that was 0: the KL then counts from the weights of that moment.
        if msg.new_reference or (msg.objective.kl_coef and trainer.reference is None):
            trainer.new_reference()
        try:
            if sft:
                figures = trainer.cross_entropy_step(micro_batches, msg.lr, rehearsal)
            else:
                figures = trainer.grpo_step(micro_batches, msg.lr, msg.objective, msg.epochs, rehearsal)
        except BaseException:  # earlier passes may be in the weights, which are no version's then
            self._trainer = None
            raise
        ok = figures.pop("ok") > 0
        return messages.StepResult(plan_id=msg.plan_id, version=msg.version, figures=figures, ok=ok, t0=t0, t1=now())

    def _batches(self, msg: messages.StepPlan) -> tuple[list[MicroBatch], list[list[MicroBatch]]]:
        """The micro-batches of a plan and what it rehearses, which rank 0 alone has got."""
        if len(self.config.ranks) == 1:
            return batches.micro_batches_of(msg), msg.rehearsal
        from policy.megatron.ranks import on_first

        content = on_first(lambda: msgspec.msgpack.encode((batches.micro_batches_of(msg), msg.rehearsal)))
        return msgspec.msgpack.decode(content, type=tuple[list[MicroBatch], list[list[MicroBatch]]])


def _written(where: Path, write: Callable[[Path], str]) -> str:
    """The digest of what `write` wrote to the folder `where`. Raises DiskRefuses where the disk is why it failed."""
    try:
        return write(where)
    except Exception as error:  # libraries call a full disk by many names: the disk itself is asked
        if cause := disk.refusal(where.parent):
            raise DiskRefuses(f"can't write {where}: {cause}") from error
        raise


def _canary(trainer: Trainer) -> Canary:
    """A prompt over the whole vocabulary but its last id, the same for every version, and its log-probabilities.

    The pad of a picture is left out, for there is none.

    SGLang 0.5.23 names the last id of the vocabulary 0 where it scores a prompt.
    """
    vocab = trainer.shape.vocab - 1
    length = min(CANARY_TOKENS, trainer.shape.context - 1)  # an engine draws a token behind it
    ids = [(CANARY_FIRST + CANARY_STRIDE * place) % vocab for place in range(length)]
    pad = None if trainer.style is None else trainer.style.pad_id
    ids = [0 if token == pad else token for token in ids]
    sample = PackedSample(ids=ids, response_len=len(ids) - 1, weight=1.0)
    logprobs = trainer.logprobs(MicroBatch(samples=[sample]))[0]
    return Canary(ids=ids, logprobs=logprobs, dtype=trainer.config.dtype)
