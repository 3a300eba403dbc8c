"""Who is taken for dead: by /proc in the same process namespace, by a lock from another, and never by a guess."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from actors.cluster.runs.doctor import check_state
from actors.desktop.config import SandboxConfig
from actors.desktop.providers.sandbox import cgroups, ending, owners, shares
from actors.desktop.providers.sandbox import owners as identity
from actors.desktop.providers.sandbox.owners import SandboxOwner
from actors.desktop.providers.sandbox.provider import SandboxProvider
from actors.errors import DesktopFault
from runtime.errors import ConfigError

ROOT = Path(__file__).resolve().parents[3]
APART = ["unshare", "--pid", "--mount-proc", "--fork", "--kill-child"]

NEIGHBOUR = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from actors.desktop.config import SandboxConfig
from actors.desktop.link import GuestLink
from actors.desktop.provider import DesktopSpec
from actors.desktop.providers.sandbox import ending
from actors.desktop.providers.sandbox.provider import SandboxProvider

async def main():
    provider = await SandboxProvider.start(SandboxConfig(state_dir=sys.argv[2]), "neighbour")
    desktop = await provider.boot(DesktopSpec())
    link = await GuestLink.open(desktop, timeout_s=30)
    print("owns", flush=True)
    for line in sys.stdin:
        if line == "reap\\n":
            print(ending.reap(sys.argv[2]).folders, flush=True)
        else:
            print(await link.call("ping", timeout_s=10), flush=True)

asyncio.run(main())
"""


class Neighbour:
    """Another program, with a desktop, in a process namespace of its own or in this one."""

    def __init__(self, state_dir: str, *become: str) -> None:
        command = [*become, sys.executable, "-c", NEIGHBOUR, str(ROOT), state_dir]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.hears() == "owns"

    def hears(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def asks(self, word: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.hears()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


def test_programs_of_two_containers_that_share_a_state_folder_reap_nothing_that_lives(state_dir: str) -> None:
    if subprocess.run([*APART, "true"], capture_output=True, check=False).returncode:
        pytest.skip("process namespaces may not be made here")
    apart, beside = Neighbour(state_dir, *APART), Neighbour(state_dir)
    try:
        assert ending.reap(state_dir).folders == 0
        assert apart.asks("reap") == "0"
        assert (apart.asks("ping"), beside.asks("ping")) == ("pong", "pong")
        beside.end()
        in_time(lambda: apart.asks("reap") == "1")  # its sandbox, which nobody there sees, has yet to end
        assert apart.asks("ping") == "pong"
    finally:
        apart.end()
        beside.end()
    in_time(lambda: ending.reap(state_dir).folders == 1)
    assert [path.name for path in Path(state_dir).iterdir()] == [owners.LOCK]


def in_time(met: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not met():
        assert time.monotonic() < give_up
        time.sleep(0.05)


def foreign(base: Path) -> tuple[SandboxOwner, int]:
    """An owner of another process namespace with the process id of a program that has ended, and its lock."""
    owner = msgspec.structs.replace(SandboxOwner.this_process("far"), namespace="0" * 8, pid=2**22)
    return owner, owner.settle(base)


def test_an_owner_of_another_namespace_is_dead_once_its_folder_can_be_locked(tmp_path: Path) -> None:
    owner, held = foreign(tmp_path)
    assert not owner.dead(tmp_path)
    assert ending.reap(str(tmp_path)).folders == 0
    assert not owner.dead(tmp_path / "elsewhere"), "whose folder is not seen is not judged"
    os.close(held)
    assert owner.dead(tmp_path)
    assert ending.reap(str(tmp_path)).folders == 1


def test_an_owner_that_died_while_it_made_its_folder_leaves_none(tmp_path: Path) -> None:
    gone = msgspec.structs.replace(SandboxOwner.this_process("gone"), started=1)
    (tmp_path / f".{gone.name}").mkdir()
    assert ending.reap(str(tmp_path)).folders == 1


@pytest.fixture
def leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Users are leased in a folder of the test's own, by a process that may lend them."""
    monkeypatch.setattr(identity, "LEASES", tmp_path / "users")
    monkeypatch.setattr(identity, "lends_users", lambda: True)
    monkeypatch.setattr(identity, "LAST_UID", identity.FIRST_UID + 2)
    return tmp_path / "users"


def test_a_user_is_leased_once_until_it_is_let_go(leases: Path) -> None:
    taken = [identity.lease_user(1) for _ in range(3)]
    assert [lease.uid - identity.FIRST_UID for lease in taken] == [1, 2, 0]
    with pytest.raises(DesktopFault, match="are taken"):
        identity.lease_user()
    taken[1].release()
    again = identity.lease_user()
    assert again.uid == taken[1].uid
    for lease in (taken[0], taken[2], again):
        lease.release()


def test_another_process_takes_none_of_the_users_that_are_leased(leases: Path) -> None:
    lease = identity.lease_user()
    program = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "from actors.desktop.providers.sandbox import owners as identity\n"
        "identity.LEASES, identity.lends_users = Path(sys.argv[2]), lambda: True\n"
        "print(identity.lease_user().uid)"
    )
    command = [sys.executable, "-c", program, str(ROOT), str(leases)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) == lease.uid + 1
    lease.release()


def test_no_name_that_another_user_of_the_machine_can_take_denies_a_user(leases: Path) -> None:
    identity.lease_user().release()
    assert (leases / owners.LOCK).stat().st_mode & 0o777 == 0o600
    abstract = {line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if "@computerrl" in line}
    lease = identity.lease_user()
    now = {line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines() if "@computerrl" in line}
    lease.release()
    assert now <= abstract


def test_where_others_may_write_to_the_locks_nothing_is_started(leases: Path, state_dir: str) -> None:
    leases.mkdir()
    leases.chmod(0o777)
    with pytest.raises(ConfigError, match=f"other users may write to {leases}; chmod go-w {leases}"):
        asyncio.run(SandboxProvider.start(SandboxConfig(state_dir=state_dir), "open"))


def test_locks_and_their_folders_are_safe_whatever_was_there_and_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        os.close(owners.locked_file(tmp_path / "a" / "b"))
    finally:
        os.umask(before)
    assert [(tmp_path / path).stat().st_mode & 0o777 for path in ("a", "a/b")] == [0o755, 0o755]
    (tmp_path / owners.LOCK).touch()
    (tmp_path / owners.LOCK).chmod(0o666)
    os.close(owners.locked_file(tmp_path))
    assert (tmp_path / owners.LOCK).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
@pytest.mark.parametrize("below", ["", "deep/state"])
def test_a_state_folder_that_others_may_change_is_refused(tmp_path: Path, mode: int, below: str) -> None:
    place = tmp_path / "state"
    place.mkdir()
    place.chmod(mode)
    if mode == 0o1777 and below:  # as /tmp: there others can't replace what is not theirs
        assert ending.reap(str(place / below)).folders == 0
        return
    with pytest.raises(PermissionError, match=f"other users may write to {place}; chmod go-w {place}"):
        ending.reap(str(place / below))
    assert list(place.iterdir()) == []
    if os.geteuid() == 0:
        place.chmod(0o755)
        os.chown(place, 31_000, -1)
        assert owners.unsafe(place / "state") == f"{place} belongs to user 31000; chown 0 {place}"


def test_so_is_a_link_that_others_can_turn(tmp_path: Path) -> None:
    (tmp_path / "safe").mkdir()
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "link").symlink_to(tmp_path / "safe")
    (tmp_path / "open").chmod(0o777)
    assert owners.unsafe(tmp_path / "safe") is None
    assert f"other users may write to {tmp_path / 'open'}" in str(owners.unsafe(tmp_path / "open" / "link"))


def test_doctor_says_that_others_may_write_there_and_what_to_do(state_dir: str) -> None:
    assert check_state(f"{state_dir}/in").ok
    Path(state_dir).chmod(0o777)
    check = check_state(f"{state_dir}/in")
    assert (check.ok, check.found) == (False, f"other users may write to {state_dir}")
    assert check.mend == f"chmod go-w {state_dir}"


def test_processes_of_a_run_share_what_other_runs_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert owners.sharing(tmp_path / "none") == (frozenset(), 1)
    mine = SandboxOwner.this_process("run")
    parent = msgspec.structs.replace(mine, pid=os.getppid(), started=identity.started_at(os.getppid()))
    ended = msgspec.structs.replace(parent, started=parent.started - 1)
    again, stranger = msgspec.structs.replace(parent, token="0" * 8), msgspec.structs.replace(parent, run="play", pid=1)
    stranger = msgspec.structs.replace(stranger, started=identity.started_at(1))
    for owner in (mine, ended, parent, again, stranger):
        (tmp_path / owner.name).mkdir()
    (tmp_path / "other").mkdir()
    assert owners.sharing(tmp_path) == ({"run"}, 2)
    groups = {f"{parent.name}.1": 100, f"{stranger.name}.1": 40}

    def held(counts: Callable[[str], bool]) -> cgroups.GroupBounds:
        return cgroups.GroupBounds(0, sum(ids for name, ids in groups.items() if counts(name)))

    monkeypatch.setattr(shares, "held", held)
    whole, part = shares.room(), shares.of_this_process(tmp_path)
    assert (part.processes, part.terminals) == ((whole.processes - 40) // 2, whole.terminals // 2)
