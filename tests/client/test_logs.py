"""The log of a queue through the client: read over pages, and replayed as a task of the servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest

from support.lives import emitted_log, land_log
from weir import ApiError, AsyncWeir, LogMessage, Unreachable, Weir
from weir.client import logs
from weir.warehouse.connection import ClickHouseConnection

from .place import Place

QUEUE = "lo/gged ✓"
KEYS = ("ann", "bob", "ann", "cy")


async def land(place: Place) -> None:
    """Carry the log to ClickHouse, as the pipeline would."""
    async with place.broker() as broker:
        messages = await emitted_log(broker, place.environment.queue(QUEUE))
    with closing(ClickHouseConnection(place.api.clickhouse_url)) as connection:
        land_log(connection, messages)


@pytest.fixture
def weir(place: Place) -> Iterator[Weir]:
    """A client of an environment whose queue has a log of four messages; the last is not JSON."""
    place.define(QUEUE, log_ms=3_600_000)
    with Weir(place.api.url, token=place.token) as weir:
        for number, key in enumerate(KEYS):
            weir.push(QUEUE, b"cy" if key == "cy" else {"order": number}, key=key)
            weir.ack(*weir.pop(QUEUE))
        asyncio.run(land(place))
        yield weir


def payloads(found: Iterator[LogMessage]) -> list[Any]:
    return [message.payload for message in found]


def test_a_log_is_read_over_pages_by_time_key_and_an_expression(
    weir: Weir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_PAGE", 1)
    whole = list(weir.read_log(QUEUE))
    assert [one.payload for one in whole] == [{"order": 0}, {"order": 1}, {"order": 2}, b"cy"]
    assert [one.key for one in whole] == [*KEYS]
    assert {(one.queue, one.outcome, one.attempts) for one in whole} == {(QUEUE, "acked", 1)}
    assert payloads(weir.read_log(QUEUE, key="bob")) == [{"order": 1}]
    assert payloads(weir.read_log(QUEUE, where="has(payload.order) && payload.order > 1")) == [{"order": 2}]
    later = datetime.now(UTC) + timedelta(hours=1)
    assert payloads(weir.read_log(QUEUE, start=later)) == []
    assert len(payloads(weir.read_log(QUEUE, end=later))) == len(KEYS)


def test_reading_may_stop_before_the_end(weir: Weir) -> None:
    found = weir.read_log(QUEUE)
    assert next(found).number < next(found).number
    found.close()
    weir.ping()


async def test_a_log_is_read_with_an_event_loop(weir: Weir, place: Place) -> None:
    async with AsyncWeir(place.api.url, token=place.token) as client:
        assert [one.key async for one in client.read_log(QUEUE)] == [*KEYS]


def test_a_time_without_a_zone_is_refused_by_its_name(weir: Weir) -> None:
    with pytest.raises(ValueError, match="`start` is"):
        next(weir.read_log(QUEUE, start=datetime(2027, 1, 1)))


def test_a_replay_is_begun_and_found_again(weir: Weir, place: Place) -> None:
    place.define("again")
    begun = weir.replay_log(
        QUEUE, into="again", key="ann", dry_run=True, rate_per_s=5, canary=2, canary_tolerance=0.5
    )
    assert (begun.state, begun.dry_run, begun.ended) == ("pending", True, False)
    assert begun.expected == len(KEYS)
    assert weir.log_replay(begun.id, wait=0.01).id == begun.id
    with pytest.raises(ApiError, match="whole log"):
        weir.replay_log(QUEUE, into="again")


LOGGED = {
    "id": "m1", "number": 1, "payload": {"order": 1}, "payload_base64": None, "headers": {},
    "idempotency_key": None, "left_out": False, "kept_until_ms": 3,
    "life": {
        "key": None, "priority": 0, "attempts": 1, "outcome": "acked", "reason": None, "enqueued_at_ms": 1,
        "ended_at_ms": 2,
    },
}  # fmt: skip
TASK = {
    "id": "t1", "state": "running", "dry_run": False, "expected": 4, "scanned": 2, "matched": 2, "done": 2,
    "skipped": 0, "died_again": 0, "note": None, "problem": None, "kind": "replay",
}  # fmt: skip


async def test_a_replay_is_waited_for_until_it_ends() -> None:
    states = iter(["pending", "running", "completed"])

    def answer(request: httpx2.Request) -> httpx2.Response:
        assert request.url.path == "/api/v1/dlq/tasks/t1"
        return httpx2.Response(200, json={**TASK, "state": next(states)})

    async with scripted(answer) as weir:
        replay = await weir.log_replay("t1", wait=60)
    assert (replay.state, replay.ended, replay.done) == ("completed", True, 2)


async def test_a_replay_asks_for_its_messages_and_its_limits() -> None:
    bodies = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        bodies.append(json.loads(request.content or b"null"))
        return httpx2.Response(200, json={"token_id": "t1", **TASK})

    second = datetime.fromtimestamp(1, UTC)
    async with scripted(answer) as weir:
        await weir.replay_log(
            "orders", into="again", start=second, where="true", rate_per_s=5, canary=2, canary_patience=3
        )
    assert bodies[-1] == {
        "into": "again",
        "filter": {"from_ms": 1_000, "expression": "true"},
        "all": False,
        "dry_run": False,
        "rate_per_s": 5,
        "canary": 2,
        "canary_patience_ms": 3_000,
    }


async def test_a_replay_of_unknown_outcome_is_not_asked_for_again() -> None:
    posted = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            return httpx2.Response(200, json={"token_id": "t1"})
        posted.append(request.content)
        raise httpx2.ReadError("cut")

    async with scripted(answer) as weir:
        with pytest.raises(Unreachable):
            await weir.replay_log("orders", into="again", everything=True)
    assert len(posted) == 1


def scripted(answer: Any) -> AsyncWeir:
    http = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    return AsyncWeir("http://weir", token="t", http=http, poll_interval=0.001, retry_delay=0.001)
