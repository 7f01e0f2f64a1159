"""Each role runs with the command and environment that the image, Compose, Kubernetes and systemd give it.

Only what belongs to another machine is exchanged: addresses of stores, ports, folders, and the program.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from dev import ROOT
from support.notify_socket import NotifySocket, notify_socket
from support.urls import with_database
from support.waiting import wait_until
from weir.embedded.ports import free_port

DEPLOY = ROOT / "deploy"
WEIR = (sys.executable, "-m", "weir.cli")
ROLES = ("serve", "worker", "pipeline")
STORES = {"WEIR_REDIS_URL", "WEIR_POSTGRES_URL", "WEIR_CLICKHOUSE_URL"}


@dataclass(frozen=True, kw_only=True)
class Role:
    """What a file says of a role."""

    command: tuple[str, ...]
    """With the program at its beginning."""
    environment: Mapping[str, str]
    probes: tuple[tuple[str, ...], ...] = ()
    """Commands that succeed while it is healthy."""
    settings: Mapping[str, str] = field(default_factory=dict)


class Image:
    """The instructions of the last stage of the Dockerfile."""

    def __init__(self) -> None:
        text = (DEPLOY / "Dockerfile").read_text().replace("\\\n", " ")
        self.lines = [line for line in text.rpartition("\nFROM ")[2].splitlines() if line[:1].isupper()]

    def value(self, instruction: str) -> str:
        (found,) = [line for line in self.lines if line.split()[0] == instruction]
        return found.partition(" ")[2].strip()

    @property
    def environment(self) -> dict[str, str]:
        return dict(word.partition("=")[::2] for word in shlex.split(self.value("ENV")))

    @property
    def entrypoint(self) -> tuple[str, ...]:
        return tuple(json.loads(self.value("ENTRYPOINT")))

    @property
    def healthcheck(self) -> tuple[str, ...]:
        return tuple(json.loads(self.value("HEALTHCHECK").partition("CMD ")[2]))


IMAGE = Image()


def of_image() -> Role:
    command = (*IMAGE.entrypoint, *json.loads(IMAGE.value("CMD")))
    # Whoever runs the image names the stores.
    environment = {**IMAGE.environment, **dict.fromkeys(STORES, "")}
    return Role(command=command, environment=environment, probes=(IMAGE.healthcheck,))


def of_compose(name: str) -> Role:
    service = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"][name]
    check = service.get("healthcheck", {}).get("test")
    kinds = {"CMD": lambda words: tuple(words), "CMD-SHELL": lambda words: ("sh", "-c", *words)}
    probes = (kinds[check[0]](word.replace("$$", "$") for word in check[1:]),) if check else ()
    given = {name: value for name, value in service["environment"].items() if value is not None}
    return Role(
        command=(*IMAGE.entrypoint, *service["command"]),
        environment={**IMAGE.environment, **given},
        probes=probes or ((IMAGE.healthcheck,) if name == "serve" else ()),
    )


def of_kubernetes(name: str) -> Role:
    documents = yaml.safe_load_all((DEPLOY / "kubernetes" / f"{name}.yaml").read_text())
    pod = next(one for one in documents if one["kind"] in ("Deployment", "StatefulSet", "Job"))
    (container,) = pod["spec"]["template"]["spec"]["containers"]
    kinds = ("startupProbe", "livenessProbe", "readinessProbe")
    return Role(
        command=(*IMAGE.entrypoint, *container["args"]),
        environment={**IMAGE.environment, **dict.fromkeys(STORES, "")},
        probes=tuple(_probe(container[kind]) for kind in kinds if kind in container),
    )


def _probe(probe: Mapping[str, Any]) -> tuple[str, ...]:
    if "exec" in probe:
        return tuple(probe["exec"]["command"])
    url = f"http://127.0.0.1:8420{probe['httpGet']['path']}"
    return ("python", "-c", f"import urllib.request as r; r.urlopen('{url}', timeout=4)")


def of_unit(name: str) -> Role:
    unit = read_unit(name)
    example = (DEPLOY / "systemd" / "weir.env.example").read_text()
    return Role(
        command=tuple(shlex.split(unit["ExecStart"])),
        environment=dict(re.findall(r"^(\w+)=(.*)$", example, re.MULTILINE)),
        settings=unit,
    )


def read_unit(name: str) -> dict[str, str]:
    text = (DEPLOY / "systemd" / f"weir-{name}.service").read_text()
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


AS_SANDBOXED = """
import ctypes, os, sys
# PR_SET_MDWE, as MemoryDenyWriteExecute sets it; kernels before 6.3 do not know it.
ctypes.CDLL(None).prctl(65, 1, 0, 0, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Stage:
    """The exchange of what belongs to another machine."""

    def __init__(self, folder: Path, stores: Mapping[str, str]) -> None:
        self.folder = folder
        self._stores = stores
        (folder / "data").mkdir()
        api = free_port()
        self._exchanged = {
            "/opt/weir/bin/weir": "weir",
            "/var/lib/weir": str(folder / "data"),
            "/tmp/weir-alive": str(folder / "alive"),
            "0.0.0.0": "127.0.0.1",
            "8420": str(api),
            "9464": str(free_port(other_than={api})),
        }

    def exchanged(self, text: str) -> str:
        for old, new in self._exchanged.items():
            text = text.replace(old, new)
        return text

    def command(self, role: Role) -> list[str]:
        words = [self.exchanged(word) for word in role.command]
        words = words[words.index("--") + 1 :] if words[0] == "tini" else words
        assert words[0] == "weir"
        sandboxed = "MemoryDenyWriteExecute" in role.settings
        return [*((sys.executable, "-c", AS_SANDBOXED) if sandboxed else ()), *WEIR, *words[1:]]

    def environment(self, role: Role) -> dict[str, str]:
        assert role.environment.keys() >= STORES
        given = {name: self.exchanged(value) for name, value in role.environment.items()}
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        kept = {name: os.environ[name] for name in ("JAVA_HOME", "LANG") if name in os.environ}
        return {**kept, **given, **self._stores, "PATH": path}

    def healthy(self, probe: tuple[str, ...]) -> bool:
        command = [self.exchanged(word) for word in probe]
        command[0] = sys.executable if command[0] == "python" else command[0]
        return subprocess.run(command, capture_output=True, timeout=10).returncode == 0

    @contextmanager
    def running(self, role: Role, **more: str) -> Iterator[subprocess.Popen[bytes]]:
        """The role's process; at the end SIGTERM ends it without an error."""
        with (self.folder / "log").open("wb") as log:
            process = subprocess.Popen(
                self.command(role), env={**self.environment(role), **more}, cwd=self.folder / "data",
                stdout=log, stderr=log,
            )  # fmt: skip
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=40) == 0, self.log
        finally:
            process.kill()
            process.wait()

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()[-3_000:]


@pytest.fixture
def stage(tmp_path: Path, redis_url: str, database_url: str, warehouse_url: str) -> Stage:
    # A Redis database of its own: one process owns the streams of each.
    redis = with_database(redis_url, "7")
    stores = {
        "WEIR_REDIS_URL": redis,
        "WEIR_POSTGRES_URL": database_url,
        "WEIR_CLICKHOUSE_URL": warehouse_url,
    }
    return Stage(tmp_path, stores)


def run_until_healthy(stage: Stage, role: Role, *, within_s: float = 60.0) -> None:
    assert role.probes
    with stage.running(role) as process:
        for probe in role.probes:
            try:
                wait_until(
                    lambda probe=probe: process.poll() is not None or stage.healthy(probe), timeout_s=within_s
                )
            except AssertionError:
                raise AssertionError(f"{probe} fails; {stage.log}") from None
            assert process.poll() is None, stage.log


@pytest.mark.parametrize(
    "read", [lambda _: of_image(), of_compose, of_kubernetes], ids=["image", "compose", "k8s"]
)
def test_the_api_becomes_healthy(stage: Stage, read: Any) -> None:
    run_until_healthy(stage, read("serve"))


@pytest.mark.parametrize("read", [of_compose, of_kubernetes], ids=["compose", "k8s"])
def test_the_worker_becomes_healthy_and_takes_its_file_along(stage: Stage, read: Any) -> None:
    run_until_healthy(stage, read("worker"))
    assert not (stage.folder / "alive").exists()


@pytest.mark.parametrize("read", [of_compose, of_kubernetes, of_unit], ids=["compose", "k8s", "unit"])
def test_the_migrations_run_and_end(stage: Stage, read: Any) -> None:
    role = read("migrate")
    done = subprocess.run(
        stage.command(role), env=stage.environment(role), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "up to date" in done.stdout


@pytest.mark.parametrize("name", ["serve", "worker"])
def test_a_unit_tells_systemd_that_it_is_ready_and_alive(stage: Stage, name: str) -> None:
    run_as_unit(stage, name)


@pytest.mark.slow
def test_the_pipeline_runs_as_a_unit_and_its_probes_see_it(stage: Stage) -> None:
    """About 15 s: Spark's JVM starts."""
    probes = (*of_compose("pipeline").probes, *of_kubernetes("pipeline").probes)
    assert len(probes) == 4
    assert of_compose("pipeline").command[-4:] == of_kubernetes("pipeline").command[-4:]
    run_as_unit(stage, "pipeline", probes=probes)


def run_as_unit(stage: Stage, name: str, *, probes: tuple[tuple[str, ...], ...] = ()) -> None:
    role = of_unit(name)
    assert (role.settings["Type"], role.settings["NotifyAccess"]) == ("notify", "main")
    watchdog = {"WATCHDOG_USEC": str(int(role.settings["WatchdogSec"]) * 1_000_000)}
    with (
        notify_socket(stage.folder) as manager,
        stage.running(role, NOTIFY_SOCKET=str(manager.path), **watchdog) as process,
    ):
        wait_for_start(manager, process, stage, within_s=float(role.settings["TimeoutStartSec"]))
        assert all(stage.healthy(probe) for probe in probes)


def wait_for_start(
    manager: NotifySocket, process: subprocess.Popen[bytes], stage: Stage, *, within_s: float
) -> None:
    for line in ("READY=1", "WATCHDOG=1"):
        try:
            manager.wait_for(line, within_s=within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; status {process.poll()}; {stage.log}") from None
