"""The calls of `weir bench client` run against a real API, and its worker's notes say what was called."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from api.harness import Tenant, define
from benches.client_app import NOTES, CallNotes
from benches.client_calls import CALLS, CONCURRENT, NOOP, PACED, QUEUE, REDIS, TOKEN, TURNS
from benches.client_tasks import SYNC_TASKS, TASKS
from weir.api.services import Services


async def test_every_call_of_the_bench_does_what_it_measures(
    base_url: str, tenant: Tenant, services: Services, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN, tenant.token)
    monkeypatch.setenv("WEIR_URL", base_url)
    monkeypatch.setenv("WEIR_TOKEN", tenant.token)
    for name in (QUEUE, NOOP, PACED, TASKS, SYNC_TASKS):
        await define(services, tenant.environment, name)

    async def call(name: str, count: int) -> dict[str, float]:
        return await asyncio.to_thread(CALLS[name], base_url, count)

    async def depth(name: str) -> int:
        return (await services.broker.state(tenant.environment.queue(name))).depth

    found = await call("single", TURNS)
    assert set(found) == {"push_single_per_s", "push_single_p50_ms", "ratio_single_vs_raw"}
    found |= await call("concurrent", CONCURRENT)
    found |= await call("many", 100)
    pushed = await depth(QUEUE)
    assert pushed > 100 + CONCURRENT + TURNS
    found |= await call("consume", pushed)
    assert await depth(QUEUE) == 0
    assert min(found.values()) > 0
    monkeypatch.setenv(REDIS, redis_url)
    found |= await call("direct_single", TURNS)
    found |= await call("direct_many", 100)
    found |= await call("direct_consume", await depth(QUEUE))
    assert (await depth(QUEUE), min(found.values()) > 0) == (0, True)
    found |= await call("tasks", 10 * CONCURRENT)
    assert min(found.values()) > 0
    await call("sync_tasks", 7)
    assert (await depth(TASKS), await depth(SYNC_TASKS)) == (10 * CONCURRENT, 7)
    await call("fill", 10)
    await call("pace", 3)
    assert (await depth(NOOP), await depth(PACED)) == (10, 3)


def test_a_command_notes_its_calls_and_writes_them_down_at_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NOTES, str(tmp_path))
    notes = CallNotes("paced")
    for _ in range(2):
        for sent_ns in (1, 2, 3):
            assert not (tmp_path / "paced").exists()
            notes.note(last=3, sent_ns=sent_ns)
        note = json.loads((tmp_path / "paced").read_text())
        assert (note["count"], len(note["waits_ns"])) == (3, 3)
        assert 0 < note["took_ns"] < min(note["waits_ns"])
        (tmp_path / "paced").unlink()
