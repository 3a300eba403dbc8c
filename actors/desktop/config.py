"""The deploy file's sections about desktops, prompts, seats, endpoints and demonstrators. Imports nothing that acts.

A key of an endpoint is named by its environment variable and is in no file or log.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import msgspec

from apis.actions.arguments import Unit
from apis.actions.spaces import ActionSpace
from apis.observation import SCREEN
from apis.prompts import USUAL, Form, Observed, Sight
from apis.prompts.template import Template
from runtime.errors import ConfigError
from runtime.settings import Section, key, refuse_bad_url, tuning
from runtime.supervision import QuarantinePolicy

# An idle desktop takes about 54 MiB of its own, one with Calc about 148 (deploy/results/desktops.md): less than this
# leaves no room to start a desktop and an application.
MEMORY_LEAST_MIB = 128
MEMORY_MOST_MIB = 1 << 20
DISK_LEAST_MIB = 32  # 0 would mean no limit to the kernel
PROCESSES_LEAST = 50  # threads count
# Of those measured Chromium has most, 184 with a handful of pages.
OPEN_FILES_LEAST = 256
TERMINALS_LEAST = 4
# Of a process with seats: an arena of memory for each thread that encodes prompts would keep what they free.
SEATS_ENV = {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
SCREEN_LEAST, SCREEN_MOST = (224, 224), 4096  # pixels
_ALLOWED = re.compile(r"\*|(?:\*\.)?(?:[a-z0-9_-]{1,63}\.)+[a-z][a-z0-9-]{0,62}")  # in desktops.network.allow
SCREEN_OF_APPS = (800, 600)  # dialogs of applications need so many; a window with a picture alone needs fewer


def own_state_dir() -> str:
    """Where this process's user keeps sandboxes, unless a deploy file says so: root in /run, others in their HOME."""
    if os.geteuid() == 0 and os.access("/run", os.W_OK):
        return "/run/computerrl"
    return str(Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "computerrl")


class SandboxConfig(Section, frozen=True, kw_only=True, tag="sandbox"):
    """Desktops as sandboxes on the machine of the actor process."""

    AT: ClassVar[str] = "desktops.provider"

    state_dir: Annotated[
        str,
        tuning(
            "Keeps the sockets of running desktops here. A Unix socket's path holds 107 bytes, so keep it short. Empty"
            " is /run/computerrl for root, and for another user ~/.local/state/computerrl."
        ),
    ] = ""
    memory_mib: Annotated[
        int,
        tuning(
            "Limits the memory of one desktop, in MiB. Programs above it are killed.",
            ge=MEMORY_LEAST_MIB,
            le=MEMORY_MOST_MIB,
        ),
    ] = 1500
    disk_mib: Annotated[int, tuning("Limits the files of one desktop, in MiB.", ge=DISK_LEAST_MIB)] = 512
    max_processes: Annotated[
        int, tuning("Limits the processes and threads of one desktop at the same time.", ge=PROCESSES_LEAST)
    ] = 600
    open_files: Annotated[int, tuning("Limits the open files of one process of a desktop.", ge=OPEN_FILES_LEAST)] = 512
    terminals: Annotated[int, tuning("Limits the terminals of one desktop at the same time.", ge=TERMINALS_LEAST)] = 64

    @property
    def folder(self) -> str:
        return self.state_dir or own_state_dir()


class ContainerConfig(SandboxConfig, frozen=True, kw_only=True, tag="container"):
    """Desktops as containers of podman or docker on the machine of the actor process."""

    program: Annotated[
        Literal["podman", "docker"], tuning("Chooses the program that runs containers, by its command line.")
    ] = "podman"
    runtime: Annotated[str, tuning("Names the OCI runtime, as in runc. Empty leaves it to the program.")] = ""
    image: Annotated[
        str, tuning("Names an image that holds the guest packages. Empty shows this machine's programs, read-only.")
    ] = ""


class QemuConfig(SandboxConfig, frozen=True, kw_only=True, tag="qemu"):
    """Desktops as virtual machines of qemu on the machine of the actor process."""

    image: Annotated[str, tuning("Names the image's folder, as `make vm-image` makes it. Empty is its own place.")] = ""
    memory_mib: Annotated[
        int, tuning("Limits the memory of one machine, in MiB: 512 are qemu's own, the others the guest's.", ge=1024)
    ] = 2048
    cpus: Annotated[int, tuning("Sets the processors of one machine.", ge=1, le=64)] = 2
    accelerator: Annotated[
        Literal["auto", "kvm", "tcg"],
        tuning("Chooses how machines run. auto takes kvm where a Linux boots with it, else tcg, many times slower."),
    ] = "auto"
    client_password: Annotated[
        str, tuning("Sets the guest's password, by which it may become root, as some published tasks need it.")
    ] = ""

    PATIENCE: ClassVar[float] = 6.0  # how many times as long a guest may take whose instructions are translated

    @property
    def image_folder(self) -> str:
        return self.image or str(Path(__file__).resolve().parents[2] / ".cache" / "vm")


class MachineConfig(Section, frozen=True, kw_only=True):
    """One machine that is reached by SSH and has the guest packages."""

    AT: ClassVar[str] = "desktops.provider.machines"
    OSWORLD_PASSWORD: ClassVar[str] = "password"  # noqa: S105 - of the user of the published images

    host: Annotated[str, tuning("Names the machine, or gives its address.")]
    user: Annotated[str, tuning("Names the user who logs in.")]
    client_key: Annotated[str, tuning("Names the file of the OpenSSH private key.")] = ""
    host_key: Annotated[str, tuning("Gives the machine's public key, as in known_hosts without the names.")] = ""
    port: Annotated[int, tuning("Gives the port of its SSH server.", ge=1, le=65_535)] = 22
    desktops: Annotated[int, tuning("Limits its desktops at the same time.", ge=0)] = 1
    folder: Annotated[str, tuning("Keeps the sessions' folders here, on the machine itself.")] = "/tmp"  # noqa: S108 - the machine's own place for folders of sessions
    client_password: Annotated[str, tuning("Gives the user's password, by which published tasks become root.")] = ""
    display: Annotated[str, tuning("Names a display there to play on, as in :0. Empty makes one for each.")] = ""
    container: Annotated[str, tuning("Gives each desktop a container there, by podman or docker, as named.")] = ""
    image: Annotated[str, tuning("Names the containers' image there, which holds the guest packages.")] = ""
    osworld_port: Annotated[
        int,
        tuning(
            "Gives the port of OSWorld's server. By it an SSH server is started at port, with keys of its own.",
            ge=0,
            le=65_535,
        ),
    ] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        at = f"{self.AT} {self.host}"
        if not self.osworld_port and not (self.client_key and self.host_key):
            raise ConfigError(f"{at}: client_key and host_key are needed where osworld_port is not set")
        if self.osworld_port and (self.client_key or self.host_key):
            raise ConfigError(f"{at}: client_key and host_key are made where osworld_port is set")
        if (self.osworld_port or self.display) and self.desktops > 1:
            raise ConfigError(f"{at}: desktops is {self.desktops}, and a display is one desktop's")
        if bool(self.container) is not bool(self.image) or (self.container and (self.osworld_port or self.display)):
            raise ConfigError(f"{at}: container and image go together, and have displays of their own")

    @property
    def shown_at(self) -> str:
        return self.display or (":0" if self.osworld_port else "")

    @property
    def password(self) -> str:
        return self.client_password or (self.OSWORLD_PASSWORD if self.osworld_port else "")


class SshConfig(Section, frozen=True, kw_only=True, tag="ssh"):
    """Desktops as sessions of an ordinary user on machines that were set up by hand."""

    AT: ClassVar[str] = "desktops.provider"

    machines: Annotated[list[MachineConfig], tuning("Lists the machines that are reached by SSH.")]

    @property
    def desktops(self) -> int:
        return sum(machine.desktops for machine in self.machines)

    def share(self, index: int, of: int) -> SshConfig:
        """What process `index` of `of` may use: together they use no machine beyond its desktops."""
        parts = [
            (machine, machine.desktops // of + ((index + number) % of < machine.desktops % of))
            for number, machine in enumerate(self.machines)
        ]
        return SshConfig(
            machines=[msgspec.structs.replace(machine, desktops=desktops) for machine, desktops in parts if desktops]
        )


class E2bConfig(Section, frozen=True, kw_only=True, tag="e2b"):
    """Desktops in sandboxes at a URL that speaks the E2B protocol."""

    AT: ClassVar[str] = "desktops.provider"

    template: Annotated[str, tuning("Names the template of its sandboxes. It holds the guest packages.")]
    url: Annotated[str, tuning("Gives the service's URL.")] = "https://api.e2b.app"
    sandbox_url: Annotated[
        str, tuning("Gives a sandbox's URL. {id} and {domain} are filled in as the service answers.")
    ] = "https://49983-{id}.{domain}"
    key_env: Annotated[str, tuning("Names the environment variable that holds the service's key.")] = "E2B_API_KEY"
    user: Annotated[str, tuning("Names the user whose session a desktop is.")] = "user"
    desktops: Annotated[int, tuning("Limits its desktops at the same time.", ge=0)] = 1
    lifetime_s: Annotated[
        int, tuning("Ends a sandbox so many seconds after the program last asked for it.", ge=30, le=86_400)
    ] = 300

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("url", "sandbox_url"):
            refuse_bad_url(
                getattr(self, name), f"{self.AT}.{name}", "name the environment variable of a key by key_env"
            )

    @property
    def at(self) -> str:
        return self.AT

    def share(self, index: int, of: int) -> E2bConfig:
        """What process `index` of `of` may use: together they have no more desktops than this."""
        return msgspec.structs.replace(self, desktops=self.desktops // of + (index < self.desktops % of))


RemoteConfig = SshConfig | E2bConfig  # sessions elsewhere, whose limits are not set here
ProviderConfig = SandboxConfig | ContainerConfig | QemuConfig | RemoteConfig


class NetworkConfig(Section, frozen=True, kw_only=True):
    """What desktops reach of the network."""

    AT: ClassVar[str] = "desktops.network"

    allow: Annotated[
        list[str],
        tuning("Lists names that desktops may reach: example.org, *.example.org for all below it, * for any."),
    ] = []
    mode: Annotated[
        Literal["live", "record", "replay"],
        tuning("Chooses who answers: the network, the network with each answer kept on tape, or the tape alone."),
    ] = "live"
    tape: Annotated[str, tuning("Names the folder of recorded answers, a file for each request.")] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.allow:
            if not _ALLOWED.fullmatch(name):
                raise ConfigError(f"{self.AT}.allow: {name!r} is no name: example.org, *.example.org or *")
        if self.mode != "replay" and not self.allow:
            raise ConfigError(f"{self.AT}.allow is empty: nothing could be reached; leave {self.AT} out, or name some")
        if (self.mode != "live") is not bool(self.tape):
            raise ConfigError(f"{self.AT}.tape names a folder where mode is record or replay, and there alone")

    def allows(self, host: str) -> bool:
        return any(name in (host, "*") or (name[:1] == "*" and host.endswith(name[1:])) for name in self.allow)


class PoolConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Desktops booted ahead."""

    warm_pool: int = 1
    boots_at_once: int | None = None  # of this process; None: by what it has (`pool.boots_at_once`)
    processes: int = 1  # that share the machine or machines with this process, itself among them
    boot_timeout_s: float = 30.0
    first_backoff_s: float = 0.5
    longest_backoff_s: float = 30.0
    lease_s: float = 900.0  # a desktop that was not given back by then is taken back
    quarantine: QuarantinePolicy = QuarantinePolicy()  # of this host and of its image


def screen_of(text: str) -> tuple[int, int]:
    """`1920x1080` as pixels. Raises ConfigError, naming the key."""
    width, _, height = text.partition("x")
    if not (width.isdecimal() and height.isdecimal() and len(text) <= 11):
        raise ConfigError(f"desktops.screen is {text!r}: it is WIDTHxHEIGHT in pixels, such as 1280x720 or 1920x1080")
    size = int(width), int(height)
    if not all(low <= pixels <= SCREEN_MOST for low, pixels in zip(SCREEN_LEAST, size, strict=True)):
        least, most = "x".join(map(str, SCREEN_LEAST)), f"{SCREEN_MOST}x{SCREEN_MOST}"
        raise ConfigError(f"desktops.screen is {text!r}: it is from {least} to {most} pixels")
    return size


class ScreenConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The desktops' screen and HOME."""

    width: int = SCREEN[0]
    height: int = SCREEN[1]
    # A folder copied to every HOME; empty: the program's settings, LibreOffice's as set-up made them.
    home_template: str = ""


USUAL_SCREEN = ScreenConfig()


class DesktopsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that one actor process needs to have desktops."""

    provider: ProviderConfig = SandboxConfig()
    pool: PoolConfig = PoolConfig()
    screen: ScreenConfig = ScreenConfig()
    network: NetworkConfig | None = None


# Which of an episode's screenshots are kept: the last, and with "some" all of one episode in `WHOLE_ONE_IN`, so that a
# report has whole episodes to show.
Screenshots = Literal["none", "last", "some", "all"]
WHOLE_ONE_IN = 16


class PromptConfig(Section, frozen=True, kw_only=True):
    """The deploy file's `prompt`: what the model reads and what it may answer."""

    AT: ClassVar[str] = "prompt"

    format: Annotated[Form, key("Chooses the format of prompts and answers: the short one, or the published one.")] = (
        "compact"
    )
    action_space: Annotated[
        ActionSpace,
        key("Limits what the agent and demonstrators may do: gui is mouse and keyboard, api is application functions."),
    ] = "both"
    observation: Annotated[
        Observed, key("Chooses what the model sees: the tree as text, the screen as a picture, or both.")
    ] = "text"
    coordinates: Annotated[
        Unit | None,
        tuning(
            "Chooses the unit of places that the model reads and writes; thousandths are from 0 to 1000. null takes"
            " pixels with text alone, thousandths with a picture."
        ),
    ] = None
    noise: Annotated[
        bool, tuning("Shows noise in place of the screen's picture, to measure what a policy does without its eyes.")
    ] = False
    template: Template = Template()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.format == "compact" and self.template.worded:
            raise ConfigError(
                "prompt.template has words of the published form, and prompt.format is compact: set it to published"
            )

    @property
    def sight(self) -> Sight:
        unit = self.coordinates or ("pixels" if self.observation == "text" else "thousandths")
        return Sight(observed=self.observation, unit=unit, template=self.template, noise=self.noise)


MemoUse = Literal["off", "on", "only"]


class SeatConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a seat plays episodes."""

    format: Form = "compact"  # of prompts and answers
    action_space: ActionSpace = "both"  # that the agent has
    sight: Sight = USUAL
    published_metrics: bool = False  # judge where none here does
    screenshots: Screenshots = "some"  # of an episode's steps, kept with their payloads
    memo: MemoUse = "off"  # whether what desktops have shown before is remembered, or is all there is
    memo_file: str = ""  # empty: next to the runs
    settle_ms: int = 1500  # the longest wait for a desktop to come to rest after an action
    patience: float = 1.0  # how many times as long as usual the waits in a call last
    call_timeout_s: float = 20.0  # one call of the guest agent; typing takes at most 16 s of it
    lease_timeout_s: float = 60.0  # for a booted desktop
    setup_timeout_s: float = 30.0
    verify_timeout_s: float = 30.0
    generate_timeout_s: float = 60.0
    quarantine: QuarantinePolicy = QuarantinePolicy()

    def slower(self, times: float) -> SeatConfig:
        """The same, with so many times the time for what a desktop does."""
        names = ("call_timeout_s", "lease_timeout_s", "setup_timeout_s", "verify_timeout_s")
        longer = {name: getattr(self, name) * times for name in names}
        return msgspec.structs.replace(self, settle_ms=int(self.settle_ms * times), patience=times, **longer)


STOPS_MOST = 4  # what such servers take
TopP = Annotated[float, msgspec.Meta(gt=0, le=1)]


class EndpointConfig(Section, frozen=True, kw_only=True):
    """A server, what it is asked for and how long."""

    AT: ClassVar[str] = "model.endpoint"

    url: Annotated[str, tuning("Gives the server's URL with its version, as in https://example.org/v1.")]
    model: Annotated[str, tuning("Names the model as the endpoint calls it.")]
    key_env: Annotated[str, tuning("Names the environment variable that holds the key. Empty sends none.")] = ""
    top_p: Annotated[
        TopP | None, tuning("Draws from the likeliest tokens of this share together. null leaves it to the server.")
    ] = None
    stop: Annotated[list[str], tuning("Lists texts that end an answer, four at most.")] = []
    stream: Annotated[
        bool, tuning("Asks for the answer piece by piece, for proxies that cut what is silent for long.")
    ] = False
    length_key: Annotated[
        Literal["max_tokens", "max_completion_tokens"],
        tuning("Chooses the request's field for an answer's limit. Newer OpenAI models take only the second."),
    ] = "max_tokens"
    timeout_s: Annotated[float, tuning("Limits one try, in seconds.", gt=0)] = 60.0
    retries: Annotated[int, tuning("Limits the tries after a failed one.", ge=0)] = 3
    first_backoff_s: Annotated[
        float, tuning("Waits this long before the second try, in seconds. Each later wait doubles.", ge=0)
    ] = 0.5
    longest_backoff_s: Annotated[float, tuning("Limits the wait between two tries, in seconds.", ge=0)] = 20.0
    concurrent: Annotated[int, tuning("Limits the requests at the same time from one process of desktops.", ge=1)] = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_bad_url(self.url, f"{self.at}: url", "name the environment variable of a key by key_env")
        if self.first_backoff_s > self.longest_backoff_s:
            raise ConfigError(f"{self.at}: first_backoff_s is from 0 to longest_backoff_s")
        if len(self.stop) > STOPS_MOST or not all(self.stop):
            raise ConfigError(f"{self.at}: stop lists at most {STOPS_MOST} texts, none of them empty")

    @property
    def at(self) -> str:
        return self.AT

    @property
    def answer_s(self) -> float:
        """Seconds that one answer takes at the most, all tries and waits together."""
        return (self.retries + 1) * self.timeout_s + self.retries * self.longest_backoff_s


def key_of(endpoint: EndpointConfig | E2bConfig, environment: Mapping[str, str]) -> str:
    """The endpoint's key, "" when it needs none. Raises ConfigError naming the variable that is not set."""
    if not endpoint.key_env:
        return ""
    key = environment.get(endpoint.key_env, "")
    if not key:
        raise ConfigError(f"{endpoint.at}: key_env names {endpoint.key_env}, which is not set: export it first")
    return key


RESERVED = ("mixed", "policy", "")  # what the ledger says in place of a member's name


class OracleMember(Section, frozen=True, kw_only=True, tag="oracle"):
    """The program that knows the task, sound or careless."""

    AT: ClassVar[str] = "demos.demonstrators"

    name: Annotated[str, tuning("Names the demonstrator in logs and strata.")]
    route: Annotated[
        Literal["", "gui", "api", "mixed"],
        tuning("Chooses the route of its actions: gui, api or mixed. Empty draws one per attempt."),
    ] = ""
    noise: Annotated[
        float, tuning("Sets the share of steps before which it takes a harmless wrong step.", ge=0, lt=1)
    ] = 0.0
    haste: Annotated[float, tuning("Sets the share of steps before which it claims to be done.", ge=0, lt=1)] = 0.0


class EndpointMember(EndpointConfig, frozen=True, kw_only=True, tag="endpoint"):
    """A model behind a server that speaks the OpenAI chat completions protocol."""

    AT: ClassVar[str] = "demos.demonstrators"

    name: Annotated[str, tuning("Names the demonstrator in logs and strata.")]
    temperature: Annotated[float, tuning("Sets the temperature of its answers.", ge=0)] = 1.0
    max_tokens: Annotated[int, tuning("Limits one answer, in tokens.", ge=1)] = 1024
    format: Annotated[Form, tuning("Chooses the format of its prompts. Its answers are put into prompt.format.")] = (
        "published"
    )

    @property
    def at(self) -> str:
        return f"{self.AT}: {self.name}"


Member = OracleMember | EndpointMember


def refuse_bad_pool(pool: Sequence[Member]) -> None:
    """Raise ConfigError for a name that comes twice or that the ledger uses itself."""
    seen: set[str] = set()
    for member in pool:
        if member.name in RESERVED or "/" in member.name:
            raise ConfigError(
                f"demos.demonstrators: {member.name!r} names no member: not mixed or policy, and no slash in it"
            )
        if member.name in seen:
            raise ConfigError(f"demos.demonstrators: {member.name} is there twice")
        seen.add(member.name)


def who(names: Sequence[str], seed: int, step: int) -> str:
    """Which of `names` takes step `step` of an attempt that all share: drawn again for each step."""
    return random.Random(f"{seed} {step}").choice(sorted(names))  # noqa: S311 - repeatable, nothing secret


def hasty(haste: float, seed: int, step: int) -> bool:
    """Whether a careless member claims at this step that it is done."""
    return random.Random(f"{seed} {step} haste").random() < haste  # noqa: S311 - as above
