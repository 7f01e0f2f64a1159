"""Spans are exported over OTLP when the usual variables ask for it; otherwise nothing is even loaded."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest

from support.running_api import RunningApi, running_api
from support.waiting import wait_until
from tracing.collector import collecting
from weir.model.message import NewMessage
from weir.model.names import EnvironmentRef
from weir.tracing import export
from weir.tracing.export import LAST_EXPORT_S, tracing, wants_traces

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
SetVariables = Callable[..., dict[str, str]]
QUEUE = EnvironmentRef(organization="o", project="p", environment="e").queue("q")


@pytest.fixture
def set_variables(monkeypatch: pytest.MonkeyPatch) -> SetVariables:
    """Set variables for the SDK, which reads them itself, and hand them on."""

    def set_all(**variables: str) -> dict[str, str]:
        for name in [name for name in os.environ if name.startswith("OTEL_")]:
            monkeypatch.delenv(name)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        return variables

    return set_all


async def send_one(variables: dict[str, str], *, said: list[str] | None = None) -> None:
    say = (said if said is not None else []).append
    async with tracing(variables, service="weir-test", say=say) as tracer:
        assert tracer is not None
        with tracer.sending(QUEUE, [NewMessage(payload=b"1")]):
            pass


async def test_spans_reach_the_collector_of_the_usual_variables(set_variables: SetVariables) -> None:
    with collecting() as collector:
        said: list[str] = []
        await send_one(set_variables(**{ENDPOINT: collector.url}), said=said)
        assert collector.has("weir-test", "send q")
        assert said == []


@pytest.mark.parametrize(
    "more",
    [{"OTEL_SERVICE_NAME": "mine"}, {"OTEL_RESOURCE_ATTRIBUTES": "a=b,service.name=mine"}],
)
async def test_the_service_is_named_by_the_usual_variables(
    set_variables: SetVariables, more: dict[str, str]
) -> None:
    with collecting() as collector:
        await send_one(set_variables(**{ENDPOINT: collector.url, **more}))
        assert collector.has("mine", "send q")


async def test_the_usual_sampler_is_obeyed(set_variables: SetVariables) -> None:
    with collecting() as collector:
        await send_one(set_variables(**{ENDPOINT: collector.url, "OTEL_TRACES_SAMPLER": "always_off"}))
        assert collector.spans == []


@pytest.mark.parametrize(
    ("variables", "wanted"),
    [
        ({}, False),
        ({ENDPOINT: ""}, False),
        ({ENDPOINT: "http://c:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", ENDPOINT: "http://c:4318"}, False),
        ({"OTEL_SDK_DISABLED": "TRUE", ENDPOINT: "http://c:4318"}, False),
        ({"OTEL_SDK_DISABLED": "false", ENDPOINT: "http://c:4318"}, True),
    ],
)
def test_the_usual_variables_decide(variables: dict[str, str], wanted: bool) -> None:
    assert wants_traces(variables) is wanted


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"OTEL_TRACES_EXPORTER": "jaeger"}, "`OTEL_TRACES_EXPORTER` is `jaeger`; set `otlp`"),
        ({ENDPOINT: "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "is `grpc`; set `http/protobuf`"),
        ({ENDPOINT: "http://c", "OTEL_BSP_MAX_QUEUE_SIZE": "-1"}, "cannot be read"),
    ],
)
async def test_variables_that_cannot_be_obeyed_are_one_line_and_no_traces(
    set_variables: SetVariables, variables: dict[str, str], words: str
) -> None:
    said: list[str] = []
    async with tracing(set_variables(**variables), service="weir-test", say=said.append) as tracer:
        assert tracer is None
    (line,) = said
    assert words in line
    assert "\n" not in line


async def test_a_missing_extra_is_one_line_that_says_what_to_install(
    set_variables: SetVariables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    said: list[str] = []
    variables = set_variables(**{ENDPOINT: "http://c:4318"})
    async with tracing(variables, service="weir-test", say=said.append) as tracer:
        assert tracer is None
    (line,) = said
    assert "pip install 'weir-queue[otlp]'" in line


async def test_a_process_ends_in_time_though_its_collector_hangs(
    set_variables: SetVariables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "LAST_EXPORT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        started = time.monotonic()
        await send_one(set_variables(**{ENDPOINT: f"http://127.0.0.1:{silent.getsockname()[1]}"}))
        assert time.monotonic() - started < LAST_EXPORT_S


def test_without_variables_no_process_loads_what_writes_spans() -> None:
    # OpenTelemetry itself may be loaded by others: FastAPI does it if it is installed.
    code = "import sys, weir.serve.run, weir.cli.worker; print(sys.modules.keys() & {*%r})"
    command = [sys.executable, "-c", code % ["weir.tracing.tracer", "weir.tracing.spans"]]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "set()"


APP = """
from weir.worker import Commands
app = Commands()

@app.command("Order.Ship")
def ship(order: int) -> None: ...
"""
SPEC = """
app A {
  queue First { trace: child, enqueue: Second }
  queue Second { trace: child, map_to: command Order.Ship { order: order } }
}
"""


def test_a_real_api_and_a_real_worker_export_one_trace(
    tmp_path: Path,
    redis_url: str,
    warehouse_url: str,
    database_url: str,
    environment: EnvironmentRef,
    set_variables: SetVariables,
) -> None:
    (tmp_path / "orders.py").write_text(APP)
    # A database of its own, whose sweepers follow the real time.
    redis = f"{redis_url.rpartition('/')[0]}/2"
    stores = {"redis_url": redis, "postgres_url": database_url, "clickhouse_url": warehouse_url}
    with collecting() as collector:
        set_variables(**{ENDPOINT: collector.url, "OTEL_BSP_SCHEDULE_DELAY": "50"})
        with (
            running_api(tmp_path, **stores) as api,
            working(tmp_path, environment, **stores) as worker,
            httpx2.Client(base_url=api.url, headers=headers_of(api, environment)) as client,
        ):
            applied = client.put("/api/v1/spec", json={"source": SPEC})
            assert applied.status_code == 200, applied.text
            pushed = client.post(
                "/api/v1/push", json={"items": [{"queue": "First", "payload": {"order": 1}}]}
            )
            assert pushed.status_code == 201, pushed.text
            wait_until(lambda: collector.has("weir-worker", "ack Second"), timeout_s=40)
            wait_until(lambda: collector.has("weir-api", "send First"))
        assert worker.returncode == 0
    names = ("send First", "process First", "send Second", "process Second", "ack Second")
    assert len({span.trace_id for span in collector.spans if span.name in names}) == 1


@contextmanager
def working(folder: Path, environment: EnvironmentRef, **stores: str) -> Iterator[subprocess.Popen[bytes]]:
    """`weir worker` while the block runs."""
    command = [
        sys.executable,
        "-m",
        "weir.cli",
        "worker",
        "--app",
        "orders:app",
        "--only",
        *environment.names,
    ]
    variables = {**os.environ, **{f"WEIR_{name.upper()}": url for name, url in stores.items()}}
    process = subprocess.Popen(command, cwd=folder, env=variables, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=40)


def headers_of(api: RunningApi, environment: EnvironmentRef) -> dict[str, str]:
    levels = ("organization", "project", "environment")
    scope = {f"weir-{level}": quote(getattr(environment, level)) for level in levels}
    return {"authorization": f"Bearer {api.token}", **scope}
