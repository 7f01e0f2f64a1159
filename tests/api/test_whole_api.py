"""Every route of the description: nothing of another tenant, no 5xx, no answer outside its schema."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx2
import pytest

from dev.tools import promtool
from support.history import land_worker
from support.running_api import key_file
from support.warehouse_template import WarehouseTemplate
from weir.api.app import describe
from weir.control.database import Database
from weir.control.principals import Role
from weir.control.tokens import NewToken, Tokens
from weir.model.names import EnvironmentRef
from weir.redis_client import connect
from weir.serve.run import served
from weir.settings import ApiSettings, EmbeddedSettings, SecretSettings, Settings, StoreUrls
from weir.telemetry.presence import ServingProcess, ServingProcesses
from weir.warehouse.connection import ClickHouseConnection

OPERATOR = "operators-secret"
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
ENDLESS = "watch_queues"
ENDING = ("revoke_token", "rotate_token")
"""They end tokens, the fuzzer's own included."""


@pytest.fixture(scope="module")
def migrated_warehouse(warehouses: WarehouseTemplate) -> Iterator[str]:
    with warehouses.copied() as url:
        yield url


@pytest.fixture(scope="module")
def product(
    redis_url: str, database_url: str, migrated_warehouse: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The whole product on a socket, as `weir serve` composes it."""
    folder = tmp_path_factory.mktemp("data")
    settings = Settings(
        api=ApiSettings(port=0, metrics_token=OPERATOR),
        embedded=EmbeddedSettings(data_dir=folder),
        secrets=SecretSettings(key_file=key_file(folder)),
    )
    urls = StoreUrls(redis=redis_url, postgres=database_url, clickhouse=migrated_warehouse)
    with _in_a_thread(settings, urls) as url:
        yield url


@contextmanager
def _in_a_thread(settings: Settings, urls: StoreUrls) -> Iterator[str]:
    started, stop = threading.Event(), asyncio.Event()
    found: list[Any] = []

    async def run() -> None:
        try:
            async with served(settings, urls, accept_loss=True) as url:
                found.extend((url, asyncio.get_running_loop()))
                started.set()
                await stop.wait()
        finally:
            started.set()

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    started.wait(60)
    assert found, "the product did not start"
    try:
        yield found[0]
    finally:
        found[1].call_soon_threadsafe(stop.set)
        thread.join(30)


@dataclass(frozen=True, kw_only=True)
class Side:
    """One tenant: its names, its token, and a client of the product."""

    environment: EnvironmentRef
    token_id: str
    client: httpx2.Client


def make_side(product: str, database_url: str, mark: str) -> Side:
    scope = EnvironmentRef(organization=f"org-{mark}", project=f"project-{mark}", environment=f"env-{mark}")

    async def token() -> tuple[str, str]:
        async with Database(database_url, max_size=1) as database:
            new = NewToken(
                name=f"name-{mark}",
                role=Role.ADMIN,
                organization=scope.organization,
                project=scope.project,
                environment=scope.environment,
            )
            text, made = await Tokens(database).create(new)
            return text, made.id

    text, token_id = asyncio.run(token())
    client = httpx2.Client(base_url=product, headers={"authorization": f"Bearer {text}"}, timeout=20)
    client.put("/api/v1/queues/orders", json={"delivery": {"max_attempts": 1}}).raise_for_status()
    return Side(environment=scope, token_id=token_id, client=client)


@pytest.fixture
def sides(product: str, database_url: str) -> Iterator[tuple[Side, Side]]:
    ours, theirs = (make_side(product, database_url, uuid4().hex[:10]) for _ in range(2))
    yield ours, theirs
    ours.client.close()
    theirs.client.close()


def fill(side: Side, secret: str) -> dict[str, str]:
    """Messages that wait, one that is leased, one that died and is a dead letter; their ids."""
    push = {"items": [{"queue": "orders", "payload": {"secret": secret}} for _ in range(4)]}
    side.client.post("/api/v1/push", json=push).raise_for_status()
    yearly = {"name": "orders", "queue": "orders", "cron": "0 0 1 1 *", "payload": {"secret": secret}}
    side.client.post("/api/v1/schedules", json=yearly).raise_for_status()
    messages = side.client.post("/api/v1/pop", json={"queue": "orders", "limit": 2, "lease_ms": 600_000})
    dying, leased = messages.json()["messages"]
    failure = {name: dying[name] for name in ("queue", "id", "lease")}
    died = side.client.post("/api/v1/nack", json={**failure, "error": secret})
    assert died.json()["status"] == "dead"
    return {"leased": leased["id"], "lease": leased["lease"], "letter": _letter(side)}


def _letter(side: Side) -> str:
    for _ in range(400):
        answer = side.client.get("/api/v1/dlq/letters", params={"queue": "orders"})
        letters = answer.raise_for_status().json()["items"]
        if letters:
            return str(letters[0]["id"])
        threading.Event().wait(0.05)
    raise AssertionError("the dead message did not become a dead letter")


def picture(side: Side) -> dict[str, Any]:
    """Everything of a tenant that a stranger could have changed."""
    queue = side.client.get("/api/v1/queues/orders").json()
    queue.pop("oldest_age_ms")
    return {
        "queue": queue,
        "letters": side.client.get("/api/v1/dlq/letters", params={"queue": "orders"}).json(),
        "tokens": [token["revoked_at_ms"] for token in side.client.get("/api/v1/tokens").json()["items"]],
        "environments": side.client.get("/api/v1/environments").json(),
        "tasks": side.client.get("/api/v1/dlq/tasks").json(),
        "schedules": side.client.get("/api/v1/schedules").json(),
    }


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in describe()["paths"].items():
        for method, operation in methods.items():
            if operation["operationId"] != ENDLESS:
                yield method, path, operation


def body_of(operation: dict[str, Any], ids: dict[str, str]) -> Any:
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return None
    lease = {"queue": "orders", "id": ids["leased"], "lease": ids["lease"]}
    special = {
        "ack_message": lease,
        "nack_message": lease,
        "extend_lease": {**lease, "lease_ms": 1_000},
        "ack_messages": {"acknowledgments": [lease]},
        "revoked_leases": {"leases": [lease]},
        "pop_messages": {},
        "define_queue": {"concurrency": 7},
    }
    return special.get(operation["operationId"], content.get("example", {}))


def test_a_probe_over_every_route_finds_nothing_of_another_tenant(sides: tuple[Side, Side]) -> None:
    ours, theirs = sides
    secret = f"secret-{uuid4().hex}"
    ids = fill(theirs, secret)
    before = picture(theirs)
    names = {
        "queue": "orders",
        "name": "orders",
        "environment": theirs.environment.environment,
        "env": theirs.environment.environment,
        "project": theirs.environment.project,
        "organization": theirs.environment.organization,
        "token_id": theirs.token_id,
        "letter_id": ids["letter"],
        "jobId": ids["letter"],
        "message_id": ids["leased"],
    }
    elsewhere = {
        "weir-organization": quote(theirs.environment.organization),
        "weir-project": quote(theirs.environment.project),
        "weir-environment": quote(theirs.environment.environment),
    }
    count = 0
    for headers in ({}, elsewhere):
        for method, path, operation in operations():
            target = path
            for part in [part[1:-1] for part in path.split("/") if part.startswith("{")]:
                target = target.replace(f"{{{part}}}", quote(names.get(part, str(uuid4())), safe=""))
            query = {
                one["name"]: names.get(one["name"], "orders")
                for one in operation.get("parameters", ())
                if one["in"] == "query" and one.get("required")
            }
            answer = ours.client.request(
                method.upper(), target, json=body_of(operation, ids), headers=headers, params=query
            )
            assert answer.status_code < 500, (method, path, answer.text)
            assert secret not in answer.text, (method, path)
            if headers and path.startswith("/api/v1/queues"):
                assert answer.status_code == 404, (method, path, answer.text)
            count += 1
    assert count > 100
    assert picture(theirs) == before


def test_a_process_that_serves_two_tenants_shows_neither_what_it_counted(
    sides: tuple[Side, Side], redis_url: str, migrated_warehouse: str
) -> None:
    found = [_shared_server_of(side, redis_url) for side in sides]
    assert found[0] == found[1]
    connection = ClickHouseConnection(migrated_warehouse)
    figures = {"samples": 5, "free_slots_min": 3, "pushes": 91, "pops": 92}
    land_worker(connection, at_ms=int(time.time() * 1_000) - 5_000, worker_id=found[0].worker_id, **figures)
    connection.close()
    for side in sides:
        (worker,) = side.client.get("/api/v1/workers").raise_for_status().json()["workers"]
        assert (worker["worker_id"], worker["shared"]) == (found[0].worker_id, True)
        assert (worker["figures"]["pushes"], worker["figures"]["pops_per_s"]) == (None, None)
        assert worker["figures"]["free_slots_min"] == 3
        series = side.client.get("/api/v1/workers/metrics").raise_for_status().json()["timeseries"]
        assert {point["figures"]["pushes"] for point in series} == {None}


def _shared_server_of(side: Side, redis_url: str) -> ServingProcess:
    """The process that serves a tenant, once it has noted that it serves this one and others."""

    async def ask() -> list[ServingProcess]:
        redis = connect(redis_url)
        try:
            return await ServingProcesses(redis).of(side.environment, since_ms=int(time.time() * 1_000))
        finally:
            await redis.aclose()

    for _ in range(400):
        found = asyncio.run(ask())
        if found and found[0].shared:
            return found[0]
        threading.Event().wait(0.05)
    raise AssertionError("nobody noted whom it serves")


def test_a_stranger_is_let_in_nowhere(product: str) -> None:
    open_paths = {"/livez", "/healthz", "/readyz", "/metrics"}
    with httpx2.Client(base_url=product, timeout=20) as client:
        for method, path, operation in operations():
            target = path.replace("{", "").replace("}", "")
            answer = client.request(method.upper(), target, json={})
            if path not in open_paths:
                assert answer.status_code == 401, (operation["operationId"], answer.text)
                assert answer.headers["content-type"] == "application/problem+json"


LINTED = 3
"""How promtool ends when it found nothing wrong but the style."""


def test_promtool_accepts_the_metrics_of_a_busy_process(product: str, sides: tuple[Side, Side]) -> None:
    tool = promtool()
    assert tool, "promtool is missing; `./weir test` gets it, or install Debian's package `prometheus`"
    ours, _ = sides
    fill(ours, "x")
    ours.client.put('/api/v1/queues/odd "name"%5C', json={}).raise_for_status()
    for headers in ({}, dict(ours.client.headers), {"authorization": f"Bearer {OPERATOR}"}):
        answer = httpx2.get(f"{product}/metrics", headers=headers, timeout=20)
        done = subprocess.run(
            [tool, "check", "metrics"], input=answer.content, capture_output=True, check=False
        )
        # The source names this gauge, although promtool keeps the ending `_count` for histograms.
        complaints = [line for line in done.stderr.splitlines() if not line.startswith(b"dead_job_count ")]
        assert (done.returncode in (0, LINTED), complaints) == (True, []), answer.text[:2_000]
        assert answer.text.count("\n") > 20


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(("--phases", "examples,fuzzing", "-n", "2", "--max-time", "15"), id="quick"),
        pytest.param(
            ("--phases", "examples,coverage,fuzzing", "-n", "10", "--max-time", "240"),
            id="long",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_fuzzing_the_description_finds_no_5xx_and_no_answer_outside_its_schema(
    product: str, sides: tuple[Side, Side], options: tuple[str, ...], tmp_path: Path
) -> None:
    token = sides[0].client.headers["authorization"]
    seed = os.environ.get("FUZZ_SEED") or str(secrets.randbelow(1 << 32))
    skipped = [word for name in (ENDLESS, *ENDING) for word in ("--exclude-operation-id", name)]
    command = [
        Path(sys.executable).with_name("st"), "run", f"{product}/openapi.json",
        "-H", f"Authorization: {token}", "--checks", CHECKS,
        "--request-timeout", "60", "--no-color", "--seed", seed, *skipped, *options,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=400, check=False)
    again = f"FUZZ_SEED={seed} repeats this\n"
    assert done.returncode == 0, again + done.stdout[-8_000:] + done.stderr[-2_000:]
    assert re.search(r"[1-9]\d* passed", done.stdout)


def test_promtool_accepts_the_alert_rules_of_the_reference(tmp_path: Path) -> None:
    tool = promtool()
    assert tool, "promtool is missing; `./weir test` gets it, or install Debian's package `prometheus`"
    page = (Path(__file__).parents[2] / "docs" / "reference" / "load.md").read_text()
    (rules,) = re.findall(r"```yaml\n(groups:.*?)```", page, re.DOTALL)
    file = tmp_path / "rules.yml"
    file.write_text(rules)
    done = subprocess.run([tool, "check", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    known = set(re.findall(r"`(weir_\w+)", page))
    assert set(re.findall(r"weir_\w+", rules)) <= known
