"""The files for Kubernetes: each fits its schema, and what they say of desktops works without a cluster."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncssh
import kubernetes_validate
import msgspec
import pytest
import yaml

from actors.cluster.config import deploy_files
from actors.desktop.config import SshConfig
from actors.desktop.link import GuestLink
from actors.desktop.provider import DesktopSpec
from actors.desktop.providers.ssh import SshProvider

FOLDER = deploy_files.locate("local").parent / "kubernetes"
VERSION = "1.34"
ACCOUNTS = "root:x:0:0::/:/bin/sh\ncomputerrl:*:1000:1000::/home/computerrl:/bin/bash\nsshd:*:100:65534::/:/bin/false\n"
OUTSIDE = 29_996 if os.geteuid() == 0 else os.geteuid()


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def named(name: str, kind: str) -> dict[str, Any]:
    return next(one for one in documents(name) if one["kind"] == kind)


def pods(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The pods that a document makes, as documents of their own."""
    spec = document["spec"]
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]] if document["kind"] == "RayCluster" else [spec]
    templates = [group["template"] for group in groups if "template" in group]
    return [{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": one["spec"]} for one in templates]


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.yaml")))
def test_each_document_fits_its_schema(name: str) -> None:
    for document in documents(name):
        if document["kind"] == "RayCluster":  # KubeRay's own kind has no schema here, its pods have
            for pod in pods(document):
                kubernetes_validate.validate(pod, VERSION, strict=True)
        else:
            kubernetes_validate.validate(document, VERSION, strict=True)
            changed = document | {"spec": {"nonsense": 1}}
            with pytest.raises(kubernetes_validate.ValidationError):
                kubernetes_validate.validate(changed, VERSION, strict=True)


def deploy_file(tmp_path: Path, host_key: str) -> SshConfig:
    text = named("run.yaml", "ConfigMap")["data"]["run.yaml"].replace("HOST_KEY", host_key)
    file = tmp_path / "run.yaml"
    file.write_text(text)
    deploy, _ = deploy_files.load(str(file))
    provider = deploy.desktops.provider
    assert isinstance(provider, SshConfig)
    return provider


def test_the_run_names_each_desktop_and_each_port_and_secret_is_one_that_is_made(tmp_path: Path) -> None:
    key = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode().strip()
    machines = deploy_file(tmp_path, key).machines
    desktops = named("desktops.yaml", "StatefulSet")
    service, replicas = desktops["spec"]["serviceName"], desktops["spec"]["replicas"]
    assert [machine.host for machine in machines] == [f"desktop-{n}.{service}" for n in range(replicas)]
    (container,) = desktops["spec"]["template"]["spec"]["containers"]
    settings = named("desktops.yaml", "ConfigMap")["data"]["sshd_config"]
    assert {machine.port for machine in machines} == {container["ports"][0]["containerPort"]} == {2222}
    assert "Port 2222" in settings
    page = (FOLDER.parent / "kubernetes.md").read_text()
    made = {"computerrl-ssh", "computerrl-engine"}
    for file in ("run.yaml", "desktops.yaml", "engines.yaml"):
        text = (FOLDER / file).read_text()
        for secret in made:
            assert secret not in text or f"secret generic {secret}" in page
    for document in (*documents("run.yaml"), *documents("desktops.yaml"), *documents("engines.yaml")):
        for pod in pods(document) if "template" in document.get("spec", {}) else []:
            volumes = {volume["name"] for volume in pod["spec"]["volumes"]}
            mounts = {mount["name"] for one in pod["spec"]["containers"] for mount in one["volumeMounts"]}
            assert mounts == volumes


def answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def pod(tmp_path: Path, state_dir: str) -> Iterator[SshConfig]:
    """A machine of one desktop, by the command and mounts of its pod."""
    base = Path(state_dir) / ".lock"  # the one name that the fixture of the folder lets be
    keys, settings = base / "keys", base / "settings"
    for folder in (base, keys, settings):
        folder.mkdir()
        folder.chmod(0o755)
    host_key, client_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    host_key.write_private_key(keys / "host_key")
    client_key.write_public_key(keys / "authorized_keys")
    client_key.write_private_key(tmp_path / "id")
    for name, text in named("desktops.yaml", "ConfigMap")["data"].items():
        (settings / name).write_text(text)
    (base / "passwd").write_text(ACCOUNTS)
    for path in (*keys.iterdir(), *settings.iterdir(), base / "passwd"):
        path.chmod(0o444)
    (spec,) = pods(named("desktops.yaml", "StatefulSet"))
    (container,) = spec["spec"]["containers"]
    sources = {"keys": ["--ro-bind", str(keys)], "settings": ["--ro-bind", str(settings)], "tmp": ["--tmpfs"]}
    mounts = [word for one in container["volumeMounts"] for word in (*sources[one["name"]], one["mountPath"])]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        "bwrap", "--unshare-user", "--uid", "1000", "--gid", "1000", "--unshare-pid", "--die-with-parent",
        "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/run", "--dir", "/run/sshd", *mounts,
        "--ro-bind", str(base / "passwd"), "/etc/passwd", *container["command"], "-p", str(port),
    ]  # fmt: skip
    identity = OUTSIDE if os.geteuid() == 0 else None
    server = subprocess.Popen(command, user=identity, group=identity, extra_groups=None if identity is None else [])
    until = time.monotonic() + 60
    while not answers(port):
        assert time.monotonic() < until
        assert server.poll() is None
        time.sleep(0.05)
    machine = deploy_file(tmp_path, host_key.export_public_key().decode().strip()).machines[0]
    here = msgspec.structs.replace(machine, host="127.0.0.1", port=port, client_key=str(tmp_path / "id"))
    yield SshConfig(machines=[here])
    server.kill()
    server.wait()
    subprocess.run(["rm", "-rf", str(base)], check=True)


@pytest.mark.desktop
async def test_a_desktop_boots_by_the_command_of_its_pod(pod: SshConfig) -> None:
    provider = SshProvider(pod)
    desktop = await provider.boot(DesktopSpec())
    link = await GuestLink.open(desktop, timeout_s=40)
    await link.call("launch", argv=["mousepad"], timeout_s=30)
    await link.call("wait_window", title="Mousepad", timeout_s=30)
    await link.close()
    await provider.destroy(desktop)
    await provider.close()
