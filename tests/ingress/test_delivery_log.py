"""The delivery log in PostgreSQL: attempts in the timeline, disabled endpoints over HTTP, retention."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from outbound.receiver import plain, receiving
from support.waiting import until
from weir.model.message import NewMessage
from weir.outbound.delivery import DeliveryOutcome, DeliveryVerdict
from weir.outbound.delivery_log import DeliveryRecord, PostgresDeliveryLog


def record(queue, message_id: str, sent_at_ms: int) -> DeliveryRecord:
    outcome = DeliveryOutcome(verdict=DeliveryVerdict.RETRY, duration_ms=3, status=500, error="no")
    return DeliveryRecord(
        queue=queue,
        message_id=message_id,
        attempt=1,
        url="https://x/",
        sent_at_ms=sent_at_ms,
        outcome=outcome,
    )


async def test_records_are_written_in_batches_and_read_by_message(database, environment):
    log = PostgresDeliveryLog(database)
    queue = environment.queue("Q")
    for number in range(5):
        log.record(record(queue, "m-1", number))
    log.record(record(queue, "m-2", 9))
    await log.flush()
    rows = await log.of_message(environment, "m-1")
    assert [row["sent_at_ms"] for row in rows] == [0, 1, 2, 3, 4]
    assert await log.forget_before(3) >= 3
    assert len(await log.of_message(environment, "m-1")) == 2


async def test_a_disabled_endpoint_is_seen_by_other_processes_and_enabled_over_http(house):
    log = PostgresDeliveryLog(house.database)
    await log.disable(house.environment, "https://gone.example/", now_ms=7, reason="410")
    other = PostgresDeliveryLog(house.database)
    await other.refresh()
    assert other.is_disabled(house.environment, "https://gone.example/")
    elsewhere = replace(house.environment, environment="another")
    await log.disable(elsewhere, "https://other.example/", now_ms=7, reason="410")
    listed = (await house.client.get("/api/v1/disabled-endpoints")).json()["items"]
    assert [one["url"] for one in listed] == ["https://gone.example/"]
    body = {"url": "https://gone.example/"}
    assert (await house.client.post("/api/v1/disabled-endpoints/enable", json=body)).json() == {"items": []}
    assert (await house.client.post("/api/v1/disabled-endpoints/enable", json=body)).status_code == 404
    await other.refresh()
    assert not other.is_disabled(house.environment, "https://gone.example/")


async def test_a_delivery_is_told_in_the_messages_timeline(house):
    async with receiving() as receiver:
        receiver.answer = lambda count: plain(500) if count == 1 else plain(204)
        await house.apply(
            "app D { queue Out { delivery { initial_backoff_ms: 1, max_backoff_ms: 1 } "
            f"deliver: {receiver.url} }} }}"
        )
        (answer,) = await house.broker.enqueue(house.environment.queue("Out"), [NewMessage(payload=b"{}")])
        async with house.working() as worker:
            await until(lambda: worker.processed == 1)
    async with asyncio.timeout(5):
        timeline = (await house.client.get(f"/api/v1/messages/{answer.message_id}/timeline")).json()
    whats = [one["what"] for one in timeline["items"]]
    assert whats.count("sent: retry") == 1
    assert whats.count("sent: delivered") == 1
    assert timeline["state"] == "done"
