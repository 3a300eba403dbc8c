"""Invariant 6: every wait has a deadline, and a stall names who waits for which message from whom since when."""

from __future__ import annotations

import ast
import asyncio
import math
import time
from datetime import UTC, datetime, timedelta

import pytest

from runtime.errors import DeadlineExceeded, ProtocolError
from runtime.logs.reader import read_logs
from runtime.system import ActorSpec, ActorSystem
from runtime.waits import waiting, waits_now
from tests.invariants.product_code import ancestors, called, naming, place, tree_of
from tests.runtime.example_actors import Counter, Sleep

# Calls that end only when somebody else does something.
WAITS = {
    *("wait", "get", "join", "acquire", "communicate", "shield", "recv", "receive"),
    *("readexactly", "readline", "readuntil", "read", "drain", "wait_closed"),
    *("connect", "sock_connect", "open_connection", "open_unix_connection", "create_connection"),
    *("create_process", "create_subprocess_exec"),
}
BLOCKS = {"join", "wait", "acquire", "get"}  # of those, what holds a thread
BOUNDS = frozenset({"waiting", "timeout", "timeout_at", "deadline"})

IDLE = "waits for work, and nobody waits for it"
STOP = "waits to be told to stop"
CALLER = "its caller bounds it"
DISK = "waits for a thread of this process, never for a peer"
WITHOUT = {
    "runtime/messaging/node.py:Mailbox.get": IDLE,
    "runtime/cell.py:Cell._serve": IDLE,
    "actors/desktop/mcp.py:_held": STOP,
    "runtime/cell.py:Cell._one_life": STOP,
    "runtime/hosts/launch.py:Launched.until_exit_or": STOP,
    "runtime/hosts/placer.py:PlacedHost.output": STOP,
    "runtime/hosts/placer.py:PlacedHost.until_exit_or.to_the_end": STOP,
    "runtime/hosts/placer.py:Placer._read": IDLE,
    "runtime/hosts/placer.py:Placer.order": "wait_s bounds a first life; a later one waits for its machine",
    "runtime/hosts/ray.py:_Serving.run": IDLE,
    "runtime/hosts/launch.py:Child.output": IDLE,
    "runtime/hosts/process.py:ProcessHost._read": IDLE,
    "runtime/hosts/frames.py:Link.receive": IDLE,
    "runtime/hosts/frames.py:Link.of_socket": "the socket is connected already",
    "runtime/messaging/node.py:Node.ask": CALLER,
    "runtime/actor.py:Context.shared": "Shared.get bounds it",
    "runtime/system.py:ActorSystem.failed": STOP,
    "actors/cluster/runs/trackers.py:_event_file": DISK,
    "runtime/disk.py:DiskGate.passed": "a run waits for room on its disk as long as that takes",
    "policy/engine/__main__.py:_serve": STOP,
    "policy/engine/control.py:_read": "the HTTP server drops clients that don't send",
    "actors/sampler/engine.py:StartedEngine.up": "the first token's own limit ends it",
    "actors/sampler/engine.py:StartedEngine._start": "waits for the kernel, never for a peer",
    "actors/sampler/engine.py:StartedEngine._exited": STOP,
    "actors/sampler/engine.py:StartedEngine.down": "it was killed, the task was cancelled",
    "actors/sampler/engine.py:StartedEngine._keep_output": IDLE,
    "actors/desktop/memo.py:Memo.close": DISK,
    "actors/desktop/network.py:Network._answers": CALLER,
    "actors/desktop/network.py:Network._asked": "the client's limit of a request",
    "actors/desktop/network.py:_body": CALLER,
    "actors/desktop/network.py:_pass": CALLER,
    "actors/desktop/providers/ssh.py:read_home": CALLER,
    "actors/desktop/providers/e2b.py:_Sandbox._send": IDLE,
    "actors/desktop/providers/e2b.py:_Sandbox._started": "the client's limits of a request",
    "actors/desktop/providers/e2b.py:_Sandbox._through": "the client's limit between two pieces of a stream",
    "actors/desktop/providers/e2b.py:_events": "the client's limit between two pieces of a stream",
    "actors/front/package/computerrl_verifiers/__init__.py:DesktopEnv.run": CALLER,
    "actors/sampler/health.py:Gate.through": CALLER,
    "actors/sampler/health.py:EngineRecord.change": CALLER,
    "actors/sampler/weights.py:SamplerWeights.verify_answer": CALLER,
    "actors/sampler/weights.py:SamplerWeights.follow": IDLE,
    "actors/sampler/actor.py:EngineSupervisor._silence": "a load ends within its own limits",
    "policy/engine/generate.py:GenerateHandler.__call__": "the HTTP server drops clients that don't send",
    "policy/engine/worker.py:Subscription.next": "the engine's loop ends or fails every sequence",
    "policy/engine/worker.py:EngineThread.call": DISK,
    "policy/engine/worker.py:EngineThread.stop": DISK,
    "actors/desktop/link.py:connect": CALLER,
    "actors/desktop/link.py:GuestLink._read": IDLE,
    "actors/desktop/link.py:GuestLink.close": "a cancelled task of its own",
    "actors/desktop/providers/sandbox/trial.py:_Trial._spoken": "waits for the kernel, never for a peer",
    "actors/desktop/files/read_home.py:as_wanted": "each program inside has a limit",
    "actors/desktop/providers/sandbox/provider.py:SandboxProvider.boot": "each kill inside is bounded",
    "actors/desktop/providers/sandbox/provider.py:SandboxProvider.destroy": "each kill inside is bounded",
    "actors/desktop/providers/qemu/monitor.py:Monitor.sync": "each part inside is bounded",
    "actors/desktop/providers/qemu/provider.py:QemuProvider._launch": "each tool inside is bounded",
    "actors/desktop/providers/qemu/provider.py:QemuProvider._run": "each part inside is bounded",
    "actors/desktop/providers/qemu/provider.py:QemuProvider._stored": "each part inside is bounded",
    "actors/desktop/providers/qemu/provider.py:QemuProvider.freeze": "each part inside is bounded",
    "actors/desktop/providers/qemu/provider.py:QemuProvider.read_home": "each part inside is bounded",
    "actors/replay/actor.py:ReplayActor._collect": IDLE,
    "actors/replay/actor.py:ParkingLot.park": DISK,
    "actors/replay/actor.py:ParkingLot.run": IDLE,
    "actors/replay/ledger/store.py:Store.do": DISK,
    "actors/replay/ledger/store.py:Store.serve": IDLE,
    "runtime/http.py:joined": CALLER,
    "policy/engine/control.py:Control.update": "the one before it loads from a disk",
    "policy/engine/control.py:Control.pin": "the one before it loads from a disk",
    "actors/front/library.py:_PolicyAnswers.answer": CALLER,
    "actors/front/library.py:EpisodeByTurns.look": "the episode's own limits end it",
    "actors/front/environment.py:DesktopEnvironment._found": CALLER,
    "actors/cluster/runs/trackers.py:_process": STOP,
    "actors/front/command.py:WatchedPolicy.__call__": "a person, a server and an answer have their own limits",
    "actors/cluster/web/serve.py:serve": STOP,
    "actors/cluster/web/server.py:LiveServer._live": IDLE,
    "actors/cluster/web/shared_look.py:SharedLook._go_on": DISK,
    "actors/cluster/web/shared_look.py:SharedLook.watch": IDLE,
    "actors/cluster/web/shared_look.py:Thumbnails.of": DISK,
    "policy/engine/chat.py:ChatHandler._answered": "the HTTP server drops clients that don't send",
    "policy/engine/chat.py:ChatHandler._pieces": "the engine's loop ends or fails every sequence",
    "policy/engine/chat.py:_stream": "the engine's loop ends or fails every sequence",
    "actors/cluster/runs/apply.py:LivePlan._command": "each part of a change has a limit of its own",
    "actors/cluster/runs/execute.py:execute": "the run itself: its time limit or a signal ends it",
    "actors/cluster/runs/execute.py:LiveRun.follow": "the run itself: its time limit or a signal ends it",
    "actors/cluster/runs/execute.py:LiveRun.until": "the run itself: its time limit or a signal ends it",
    "actors/desktop/endpoint.py:Endpoint.complete": "each try inside is bounded",
    "actors/learner/rank.py:Peers._all": "the own part and each ask inside are bounded",
    "actors/learner/rank.py:RankActor._all": "the own part is bounded: rank 0 ends the ranks that come apart",
    "actors/sampler/health.py:Gate.closed": "the load inside is bounded",
    "actors/learner/folders.py:Exports.take": "each export inside is bounded",
    "actors/learner/folders.py:Exports.written": "each export inside is bounded",
    "actors/learner/folders.py:Exports.on_disk": "each export inside is bounded",
}


def is_none(node: ast.AST) -> bool:
    """Whether it is the word None."""
    return isinstance(node, ast.Constant) and node.value is None


def handed(call: ast.Call) -> list[str]:
    """The names of what is called by way of it: within `gather(...)`, or by the thread of `to_thread(f, ...)`."""
    if called(call) == "gather":
        return [called(part) for part in ast.walk(call) if isinstance(part, ast.Call)]
    if called(call) == "to_thread":
        name = ast.unparse(call.args[0]).rpartition(".")[2]
        limits = [a for a in call.args[1:] if not is_none(a)] or call.keywords
        return [name] if name in BLOCKS and not limits else []
    return []


def has_limit(node: ast.Await) -> bool:
    """Whether a time limit is an argument of what is awaited."""
    if not isinstance(node.value, ast.Call):
        return False
    arguments = [ast.unparse(a) for a in node.value.args]
    arguments += [f"{k.arg}={ast.unparse(k.value)}" for k in node.value.keywords if not is_none(k.value)]
    return any(word in text for text in arguments for word in ("timeout", "deadline", "wait_s"))


def bounded(tree: ast.Module, node: ast.AST, seen: frozenset[str] = frozenset()) -> bool:
    """Whether a time limit stands around `node`: in its function, or around every call of its private function."""
    for outer in ancestors(node):
        if isinstance(outer, ast.AsyncWith):
            managers = [item.context_expr for item in outer.items]
            limits = [m for m in managers if isinstance(m, ast.Call) and called(m) in BOUNDS]
            if any(not (m.args and is_none(m.args[0])) for m in limits):
                return True
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            name = getattr(outer, "name", "")
            if not name.startswith("_") or name in seen:
                return False
            calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and called(n) == name]
            return bool(calls) and all(bounded(tree, call, seen | {name}) for call in calls)
    return False


@pytest.mark.slow
def test_every_wait_has_a_deadline_in_the_code():
    found: set[str] = set()
    for path in naming("async"):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Await):
                call = node.value
                waits = not isinstance(call, ast.Call) or not {called(call), *handed(call)}.isdisjoint(WAITS)
                if waits and not has_limit(node) and not bounded(tree_of(path), node):
                    found.add(place(path, node))
            # A lock or a semaphore is entered by its name; an opened stream gives what somebody else sends.
            held = [i.context_expr for i in node.items] if isinstance(node, ast.AsyncWith) else []
            held += [node.iter] if isinstance(node, ast.AsyncFor) else []
            if any(isinstance(one, ast.Name | ast.Attribute) for one in held) and not bounded(tree_of(path), node):
                found.add(place(path, node))
    assert sorted(found - WITHOUT.keys()) == [], "wrap these in waiting(...) or asyncio.timeout(...)"
    assert sorted(WITHOUT.keys() - found) == [], "these exceptions are not needed any more"


@pytest.mark.slow
def test_every_wait_has_a_deadline_in_asks():
    for path in naming(".ask("):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "ask":
                receiver = ast.unparse(node.func.value)  # these two have their limits inside
                given = {k.arg for k in node.keywords}
                assert "timeout_s" in given or receiver in ("self", "self._node") or "session" in receiver, place(
                    path, node
                )


@pytest.mark.parametrize("forever", [math.inf, math.nan])
async def test_every_wait_has_a_deadline_that_is_finite(tmp_path, forever):
    async with ActorSystem(tmp_path) as system:
        await system.spawn(ActorSpec(name="a", factory=Counter))
        with pytest.raises(ProtocolError):
            async with asyncio.timeout(50):
                await system.ref("a").ask(Sleep(seconds=60), timeout_s=forever)
        with pytest.raises(TypeError):
            await system.ref("a").ask(Sleep(seconds=60))  # type: ignore[call-arg]


async def test_every_wait_has_a_deadline_that_ends_it(tmp_path):
    async with ActorSystem(tmp_path) as system:
        await system.spawn(ActorSpec(name="a", factory=Counter))
        for limit in (0.05, 0.2):
            began = time.monotonic()
            with pytest.raises(DeadlineExceeded):
                async with asyncio.timeout(50):
                    await system.ref("a").ask(Sleep(seconds=60), timeout_s=limit)
            assert limit * 0.9 <= time.monotonic() - began < limit + 30
        with pytest.raises(DeadlineExceeded, match=r"x waited 0.1 s for Ping from y"):
            async with asyncio.timeout(50), waiting("x", "y", "Ping", 0.1):
                await asyncio.get_running_loop().create_future()
        assert waits_now() == []


async def test_every_wait_has_a_deadline_and_a_stall_says_who_waits_for_what(tmp_path):
    async with ActorSystem(tmp_path, stall_after_s=0.2) as system:
        await system.spawn(ActorSpec(name="sampler/0", factory=Counter))
        ref = system.ref("sampler/0", sender="desktop/3")
        before = datetime.now(UTC)
        asking = asyncio.ensure_future(ref.ask(Sleep(seconds=1.0), timeout_s=30, trace="g1.0"))
        await asking
        ended = datetime.now(UTC)
    (stall,) = (line for line in read_logs(tmp_path, event="stall") if line["what"] == "Sleep")
    assert (stall["who"], stall["what"], stall["whom"]) == ("desktop/3", "Sleep", "sampler/0")
    assert (stall["cause"], stall["trace"]) == ("busy", "g1.0")
    assert before - timedelta(seconds=1) <= datetime.fromisoformat(stall["since"]) <= ended - timedelta(seconds=0.9)
    assert stall["waited_s"] >= 0.2
