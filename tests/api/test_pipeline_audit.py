"""What audits found, over HTTP: a tenant sees its own queues, an operator everything."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import httpx2
import pytest

from support.warehouse import FixedTails
from weir.api.services import Services, present
from weir.control.principals import Role
from weir.control.tokens import NewToken
from weir.model.names import QueueRef
from weir.telemetry.events import QUEUE_COUNTERS
from weir.warehouse.audit_history import AuditHistory, AuditRecord, QueueDrift
from weir.warehouse.connection import ClickHouseConnection
from weir.warehouse.reading.warehouse import open_warehouse

from .harness import Tenant, make_client

PATH = "/api/v1/pipeline/audit"
EVERYWHERE = f"{PATH}?all_environments=true"


@pytest.fixture
async def services(services: Services, warehouse_url: str) -> AsyncIterator[Services]:
    warehouse = open_warehouse(warehouse_url, tails=FixedTails(), shards=1)
    yield replace(services, warehouse=warehouse)
    await warehouse.aclose()


@pytest.fixture
def history(warehouse_url: str) -> Iterator[AuditHistory]:
    connection = ClickHouseConnection(warehouse_url)
    yield AuditHistory(connection)
    connection.close()


@pytest.fixture
async def operator(app: object, services: Services) -> AsyncIterator[httpx2.AsyncClient]:
    new = NewToken(name="operator", role=Role.OPERATOR, organization=None)
    text, _ = await present(services.tokens, "PostgreSQL").create(new)
    async with make_client(app, text) as client:  # type: ignore[arg-type]
        yield client


def record(history: AuditHistory, lost: dict[QueueRef, int], *, drift: int | None = None) -> None:
    """One audit that found so many enqueued messages lost; None for one that could not finish."""
    done = AuditRecord(
        number=history.next_number(), started_ms=time.time_ns() // 1_000_000, drift=drift,
        reason="why" if drift is None else "",
        ledger_drift=drift or 0, tier_drift=0, live_drift=0, queues=9, events=99, held_ms=200, took_ms=900,
    )  # fmt: skip
    if drift is not None:
        counts = {queue: (count, *(0 for _ in QUEUE_COUNTERS[1:])) for queue, count in lost.items()}
        found = [QueueDrift(queue=queue, last_ms=1, ledger_drift=drifts) for queue, drifts in counts.items()]
        sums: dict[object, int] = {}
        for queue, count in lost.items():
            sums[queue.scope] = sums.get(queue.scope, 0) + count
        history.record_drift(done, found, sums)  # type: ignore[arg-type]
    history.record(done)


async def test_before_the_first_audit_nothing_is_known(tenant: Tenant, operator: httpx2.AsyncClient) -> None:
    for client, path in ((tenant.client, PATH), (operator, EVERYWHERE)):
        found = (await client.get(path)).json()
        assert found == {"latest": None, "drifting": [], "items": [], "next_before": None}
    assert "weir_metrics_drift" not in (await operator.get("/metrics")).text


async def test_a_tenant_sees_its_own_queues_and_an_operator_everything(
    tenant: Tenant, other: Tenant, operator: httpx2.AsyncClient, history: AuditHistory
) -> None:
    mine, theirs = tenant.environment.queue("mine"), other.environment.queue("theirs")
    record(history, {mine: 3, theirs: 4}, drift=7)
    found = (await tenant.client.get(PATH)).json()
    assert [(row["queue"], row["drift"], row["text"]) for row in found["drifting"]] == [
        ("mine", 3, "3 enqueued lost")
    ]
    assert (found["latest"]["drift"], found["latest"]["queues"]) == (3, None)
    assert "theirs" not in str(found)
    assert (await tenant.client.get(EVERYWHERE)).status_code == 403

    everything = (await operator.get(EVERYWHERE)).json()
    assert {row["queue"] for row in everything["drifting"]} == {"mine", "theirs"}
    assert (everything["latest"]["drift"], everything["latest"]["queues"]) == (7, 9)
    assert "weir_metrics_drift 7.0" in (await operator.get("/metrics")).text
    assert "weir_metrics_drift" not in (await tenant.client.get("/metrics")).text


async def test_an_incomplete_audit_is_not_zero_and_leaves_the_newest_drift_known(
    tenant: Tenant, operator: httpx2.AsyncClient, history: AuditHistory
) -> None:
    record(history, {tenant.environment.queue("q"): 3}, drift=3)
    record(history, {}, drift=None)
    for client, path in ((tenant.client, PATH), (operator, EVERYWHERE)):
        found = (await client.get(path)).json()
        assert (found["latest"]["drift"], found["latest"]["reason"]) == (None, "why")
        assert [row["drift"] for row in found["drifting"]] == [3]
        assert (found["latest"]["ledger_drift"], found["latest"]["queues"]) == (None, None)
    assert "weir_metrics_drift 3.0" in (await operator.get("/metrics")).text
    record(history, {}, drift=0)
    found = (await tenant.client.get(PATH)).json()
    assert (found["latest"]["drift"], found["drifting"]) == (0, [])
    assert [item["drift"] for item in found["items"]] == [0, None, 3]


async def test_the_history_comes_in_pages(operator: httpx2.AsyncClient, history: AuditHistory) -> None:
    for drift in range(5):
        record(history, {}, drift=drift)
    seen, before = [], None
    for _ in range(3):
        asked = {"limit": 2} | ({} if before is None else {"before": before})
        found = (await operator.get(PATH, params={**asked, "all_environments": True})).json()
        seen += [item["drift"] for item in found["items"]]
        before = found["next_before"]
    assert (seen, before) == ([4, 3, 2, 1, 0], None)
    assert (await operator.get(EVERYWHERE, params={"limit": 0})).status_code == 422
    assert (await operator.get(EVERYWHERE, params={"before": "x"})).status_code == 422
