"""A leased desktop: what a policy sees and does on it, and its files once it is frozen.

Invariant: no action is carried out that the grammar did not type. Every call has a deadline and checks the lease first.
The end of a desktop is judged here from what the host saw: AgentBrokeDesktop for the policy's doing, DesktopFault for a
fault of the infrastructure, LeaseLost for a desktop that was taken back. A call's only other errors are the agent's own
refusals.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from actors.desktop.config import SeatConfig
from actors.desktop.faults import BrokenBy, FaultCause, LinkState, error_for
from actors.desktop.files.read_home import FileSeen, ReadLimits, ReadRefusal, as_wanted, read_home
from actors.desktop.link import LinkDown, evidence_of, is_jpeg, png_of
from actors.desktop.pool.desktops import BootedDesktop
from actors.desktop.providers.sandbox.trial import Tried, held
from actors.errors import AgentBrokeDesktop, DesktopFault, GuestRefused
from apis.actions.grammar import RefusedAnswer, parse
from apis.actions.gui import Action
from apis.observation import Observation, from_guest
from apis.plans.action import ActionPlan, Call, plan
from apis.plans.setup import setup
from apis.prompts.compact import element_names, window_names
from apis.tasks.osworld import Task
from apis.tasks.verify.manifest import MANIFEST, Manifest
from apis.tasks.verify.verify import KINDS, FileView, WantedFile
from apis.tasksets import store
from apis.tasksets.commands import PASSWORD, by_password
from apis.tasksets.judge import NOTHING, Judging
from policy.errors import PictureError
from policy.pictures import refuse_damaged
from runtime.errors import ConfigError, ProtocolError

T = TypeVar("T")
FAILED = "Failed: "  # begins what a policy reads of an action that the guest has refused
CALLS_SHARE = 0.75  # of a lease, for all calls after the policy's first action: what a slow agent may take


class Frozen(msgspec.Struct, frozen=True):
    """What was read of a desktop in one go: the files that were wanted, and the manifest of its HOME.

    `files` are the same files with their bytes, documents unparsed; None where not all of them could be had so.
    """

    read: Callable[[str], FileView]
    manifest: Manifest
    files: list[FileSeen] | None = None
    outputs: Mapping[str, str] = {}  # what commands wrote over a copy of HOME, by the names that they are kept under
    trouble: str = ""  # why none could be tried


class LeasedDesktop:
    """One desktop, from lease to retirement. Raises ProtocolError for a desktop without a lease."""

    def __init__(self, booted: BootedDesktop) -> None:
        if booted.lease is None:
            raise ProtocolError(f"desktop {booted.desktop.name} is a spare: acquire it from its pool")
        self._lives = booted.lives
        self._lease = booted.lease
        self._provider = booted.provider
        self._desktop = booted.desktop
        self._link = booted.link
        self.home = booted.desktop.home
        self.screen = booted.desktop.screen
        self._acted = False
        self._all = WantedFile("", MANIFEST)
        self._left_s = CALLS_SHARE * (booted.lease.until - booted.lease.since)

    @property
    def acted(self) -> bool:
        return self._acted

    @acted.setter
    def acted(self, acted: bool) -> None:
        if acted:
            self._lives.act(self._lease, time.monotonic())
            self._acted = True

    async def call(self, method: str, args: dict[str, Any], timeout_s: float) -> Any:
        """Call the in-guest agent. Raises GuestRefused, AgentBrokeDesktop, DesktopFault (LeaseLost among them)."""
        began = time.monotonic()
        self._lives.may_call(self._lease, began)
        if self._left_s <= 0:
            raise AgentBrokeDesktop(BrokenBy.TOO_SLOW, f"calls took over {100 * CALLS_SHARE:.0f} % of the lease's time")
        try:
            return await self._link.call(method, timeout_s=timeout_s, **self._filled(args))
        except LinkDown as down:
            self._lives.may_call(self._lease, time.monotonic())  # taken back and killed under the call
            health = await self._provider.probe(self._desktop)
            raise error_for(evidence_of(health, down, acted=self.acted, ready=True)) from down
        finally:
            if self.acted:
                self._left_s -= time.monotonic() - began

    def _filled(self, args: dict[str, Any]) -> dict[str, Any]:
        """A call's arguments with the password of the guest's user, where a command asks for that."""
        if not by_password(argv := args.get("argv", ())):
            return args
        if not self._desktop.password:
            where = f"{self._desktop.provider} has none: client_password of qemu and of SSH machines sets one"
            raise GuestRefused("run", f"it becomes root by the password of the desktop's user, and {where}")
        return args | {"argv": [word.replace(PASSWORD, self._desktop.password) for word in argv]}

    async def manifest(self, timeout_s: float, sought: tuple[str, ...] = ()) -> Manifest:
        """What lies in its HOME, from outside and while its programs run; nothing is asked of them.

        This and the one in the end say of each file whether it holds what is `sought`, as `WantedFile` has it.
        Raises DesktopFault, for a HOME that is too large to be looked at, too.
        """
        self._lives.may_call(self._lease, time.monotonic())
        self._all = WantedFile("", MANIFEST, sought)
        try:
            async with asyncio.timeout(timeout_s):
                (seen,) = await self._provider.read_home(self._desktop, [self._all], ReadLimits())
        except TimeoutError:
            raise DesktopFault("verify_timeout", f"not looked at within {timeout_s:g} s", "verifier") from None
        manifest = _manifest_of(seen)
        if manifest.cut:
            raise DesktopFault("home_too_large", f"HOME at the start: {manifest.cut}", "task")
        return manifest

    @property
    def tries(self) -> bool:
        """Whether commands that judge can be tried over a copy of its HOME."""
        return self._desktop.outside is not None and bool(self._desktop.outside.trial)

    async def frozen_files(self, wanted: list[WantedFile], timeout_s: float, judging: Judging = NOTHING) -> Frozen:
        """Freeze the desktop for good and read what is `wanted` of its HOME, and its manifest, from outside.

        What `judging` has for a copy of HOME is carried out there, before the files are read. Its commands' own limits
        come on top of `timeout_s`.
        Raises DesktopFault, and AgentBrokeDesktop where the policy has ended what would freeze it.
        """
        try:
            self._lives.freeze(self._lease, time.monotonic())
            async with asyncio.timeout(timeout_s + judging.limit_s):
                await self._freeze()
                self._lives.may_read(self._lease, time.monotonic())
                seen = await self._seen(wanted, judging)
        except TimeoutError:
            raise DesktopFault("verify_timeout", f"not read within {timeout_s:g} s", "verifier") from None
        return await self._compared(wanted, seen)  # nothing is asked of the desktop any more

    async def look(self, wanted: list[WantedFile], judging: Judging = NOTHING) -> Frozen:
        """What is `wanted` of HOME, and its manifest, from outside as they are now. Raises DesktopFault.

        The files are those of the copy where `judging` changes some there; the manifest is always HOME's own.
        """
        return await self._compared(wanted, await self._seen(wanted, judging))

    async def _seen(self, wanted: list[WantedFile], judging: Judging) -> tuple[list[FileSeen], Tried]:
        """Its manifest, what is wanted, and documents once more as they are: what these take of the bounds is taken
        from nothing that decides."""
        outside = self._desktop.outside
        tried = await held(outside, judging.trial) if judging.trial and outside is not None else Tried()
        if tried.trouble:
            return [], tried
        again = [WantedFile(want.path) for want in wanted if want.as_ in KINDS]
        asked = [self._all, *wanted, *again]
        seen = await self._provider.read_home(self._desktop, asked, ReadLimits())
        if judging.rewrites and outside is not None:
            seen[1:] = await read_home(tried.home, outside.uid, asked[1:], ReadLimits())
        return seen, tried

    async def _compared(self, wanted: list[WantedFile], looked: tuple[list[FileSeen], Tried]) -> Frozen:
        everything, tried = looked
        if tried.trouble:
            return Frozen(views([], self.home), Manifest(), trouble=tried.trouble)
        all_of_it, *files = everything
        seen = await as_wanted(wanted, files[: len(wanted)], ReadLimits())
        unparsed = _unparsed(seen, files[len(wanted) :])
        return Frozen(views(seen, self.home), _manifest_of(all_of_it), unparsed, tried.outputs)

    async def _freeze(self) -> None:
        try:
            await self._provider.freeze(self._desktop)
        except DesktopFault as error:
            self._lives.may_read(self._lease, time.monotonic())  # taken back and killed meanwhile: LeaseLost
            health = await self._provider.probe(self._desktop)
            if health.alive and self.acted and error.cause == FaultCause.STILL_RUNNING:
                raise AgentBrokeDesktop(BrokenBy.STILL_RUNNING, error.detail) from error
            if health.alive:
                raise
            down = LinkDown(LinkState.LOST, error.detail)
            raise error_for(evidence_of(health, down, acted=self.acted, ready=True)) from error


def views(seen: Sequence[FileSeen], home: str) -> Callable[[str], FileView]:
    """What verifiers read files by, each by its path; any other one is refused."""
    by_path = {file.path: view_of(file, home) for file in seen}
    unasked = FileView(kind="refused", reason="it was not asked for beforehand")
    return lambda path: by_path.get(path, unasked)


def _unparsed(seen: Sequence[FileSeen], again: Sequence[FileSeen]) -> list[FileSeen] | None:
    plain = {file.path: file for file in again}
    if any(plain[file.path].data is None and file.refusal is None for file in seen if file.path in plain):
        return None
    return [plain.get(file.path, file) for file in seen]


def _manifest_of(seen: FileSeen) -> Manifest:
    return Manifest(cut=f"it was not looked at: {seen.refusal}") if seen.manifest is None else seen.manifest


def view_of(file: FileSeen, home: str) -> FileView:
    """What the host saw of a path, as verifiers want it; `home` is HOME as the desktop's programs call it."""
    for kind in KINDS:
        document: Any = getattr(file, kind)
        if document is not None:
            return FileView(kind=kind, **{kind: document})
    if file.data is not None:
        return FileView(kind="file", data=file.data, home=home)
    if file.names is not None:
        return FileView(kind="folder", names=tuple(file.names))
    if file.refusal is ReadRefusal.MISSING:
        return FileView(kind="missing")
    return FileView(kind="refused", reason=str(file.refusal))


def parsed(text: str, observation: Observation, config: SeatConfig, cut: str = "") -> Action | RefusedAnswer:
    """The action that an answer to `observation` means; `cut` says why the answer is not whole."""
    return parse(
        text,
        observation.app,
        element_names(observation) if config.sight.tree else (),
        window_names(observation),
        config.format,
        space=config.action_space,
        cut=cut,
        screen=observation.screen,
        unit=config.sight.unit,
    )


class DesktopControl:
    """What a policy does on one desktop."""

    def __init__(self, desktop: LeasedDesktop, config: SeatConfig) -> None:
        self._desktop = desktop
        self._config = config

    async def set_up(self, task: Task) -> None:
        """Set `task` up. Raises DesktopFault, AgentBrokeDesktop."""
        try:
            at, fixture = self._desktop, store.Fixtures(task).content
            calls = await asyncio.to_thread(setup, task, at.home, fixture, at.screen)  # it reads fixtures
            await self.carry_out(calls, self._config.setup_timeout_s)
        except (GuestRefused, ConfigError) as refused:
            raise DesktopFault("setup_failed", str(refused), "task") from refused

    async def observe(self) -> Observation:
        """What shows now. Raises DesktopFault, and AgentBrokeDesktop after the first action; so does `picture`."""
        return await self._looked("observe", {}, from_guest)

    async def picture(self) -> bytes:
        """The screen as PNG for a model. A picture of another size than the screen's is refused, or a damaged one."""
        png = await self._looked("screenshot", {"format": "png"}, png_of)
        try:
            await asyncio.to_thread(refuse_damaged, png)
        except PictureError as error:
            raise self._not_observed(error) from error
        return png

    async def _looked(self, method: str, args: dict[str, Any], made: Callable[[Any, tuple[int, int]], T]) -> T:
        try:
            return made(await self._desktop.call(method, args, self._config.call_timeout_s), self._desktop.screen)
        except (ProtocolError, GuestRefused) as error:
            raise self._not_observed(error) from error

    def _not_observed(self, error: Exception) -> AgentBrokeDesktop | DesktopFault:
        """The policy has broken the desktop once it has acted."""
        if self._desktop.acted:
            return AgentBrokeDesktop("not_observed", str(error))
        return DesktopFault("not_observed", str(error), "seat")

    def parse(self, text: str, observation: Observation) -> Action | RefusedAnswer:
        return parsed(text, observation, self._config)

    async def act(self, action: Action, observation: Observation) -> tuple[str, bool | None]:
        """What the policy reads of `action`, chosen while `observation` was shown, and the claim of `Agent.exit`.

        Raises AgentBrokeDesktop, DesktopFault.
        """
        todo: ActionPlan = plan(action, observation)
        self._desktop.acted = True
        try:
            answers = await self.carry_out(list(todo.calls), self._config.call_timeout_s)
        except GuestRefused as refused:
            return FAILED + refused.text, todo.ends
        return todo.result if todo.answer is None else answers[todo.answer], todo.ends

    async def carry_out(self, calls: list[Call], timeout_s: float) -> list[Any]:
        """The guest's answers to `calls`, each within `timeout_s`; None for what was optional and refused, or left out.

        Raises like `LeasedDesktop.call`.
        """
        answers: list[Any] = []
        for place, call in enumerate(calls):
            if place < len(answers):
                continue  # left out with the one before it
            args: dict[str, Any] = dict(call.args)
            if "timeout_ms" in args:
                args["timeout_ms"] = int(args["timeout_ms"] * self._config.patience)
            if call.method == "settle":
                args["timeout_ms"] = min(args["timeout_ms"], self._config.settle_ms)
            try:
                answers.append(await self._desktop.call(call.method, args, timeout_s))
            except GuestRefused:
                if call.optional is None:
                    raise
                answers += [None] * (1 + call.optional)
        return answers

    async def screenshot(self) -> bytes:
        """The screen as JPEG. Raises like `LeasedDesktop.call`, and GuestRefused where another thing was sent."""
        asked = {"format": "jpeg", "quality": 60}
        picture: object = await self._desktop.call("screenshot", asked, self._config.call_timeout_s)
        if not is_jpeg(picture):
            raise GuestRefused("screenshot", "what the guest sent is no JPEG of sane size")
        return picture
