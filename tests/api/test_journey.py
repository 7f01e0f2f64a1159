"""The Python files that a push passes, counted while one passes them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

import httpx2
import pytest
from prometheus_client import CollectorRegistry

import weir
from weir.api.services import Services
from weir.broker.broker import Broker
from weir.broker.observed import Observed, PrometheusObserver
from weir.control.authentication import CachedAuthenticator
from weir.control.database import Database
from weir.exchange.admit import AnsweringPusher
from weir.exchange.attempt import CoalescingPusher
from weir.exchange.lineage import ChainedMessages
from weir.exchange.resume import ResumingPusher
from weir.exchange.service import OperationService
from weir.lineage.children import PostgresChildren
from weir.model.clock import SystemClock

from .harness import Tenant

MOST_FILES = 25
"""Whoever follows a push should be able to keep its way in mind."""
ROOT = Path(weir.__file__).parent
ARCHITECTURE = ROOT.parents[1] / "ARCHITECTURE.md"


def written_journey() -> list[str]:
    """The Python files in the table of "Push to ack"."""
    section = ARCHITECTURE.read_text().partition("### Push to ack")[2].partition("\n### ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return [file for row in rows for file in re.findall(r"`([a-z_/]+\.py)`", row)]


@pytest.fixture
async def operations(database: Database, broker: Broker) -> OperationService:
    for shard in range(broker.shards):
        await broker.allow_direct(shard, until_ms=await broker.now_ms(shard) + 60_000)
    return OperationService(
        database=database, broker=Observed(broker, PrometheusObserver(CollectorRegistry()))
    )


@pytest.fixture
def services(services: Services, operations: OperationService, database: Database) -> Services:
    """Composed as a process is; tokens are known for a while, as they are there."""
    front = operations.front(CoalescingPusher(operations.attempt))
    resuming = ResumingPusher(front, broker=services.broker, intake=operations.intake)
    chained = ChainedMessages(PostgresChildren(database), clock=SystemClock())
    pusher = AnsweringPusher(front, operations.tally, resuming=resuming, chained=chained)
    assert services.tokens is not None
    authenticator = CachedAuthenticator(services.tokens, fresh_s=60)
    return replace(services, pusher=pusher, operations=operations, authenticator=authenticator)


@contextmanager
def passed() -> Iterator[list[str]]:
    """The files of Weir in which a function was called meanwhile, in the order of the first call."""
    files: dict[str, None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(ROOT)):
            files.setdefault(str(Path(frame.f_code.co_filename).relative_to(ROOT)), None)

    names: list[str] = []
    sys.setprofile(note)
    try:
        yield names
    finally:
        sys.setprofile(None)
        names += files


async def test_a_push_passes_the_files_of_its_journey(base_url: str, tenant: Tenant, queue: str) -> None:
    body = {"items": [{"queue": queue, "payload": {"n": 1}}]}
    headers = {"authorization": tenant.client.headers["authorization"]}
    async with httpx2.AsyncClient(base_url=base_url, headers=headers) as client:
        await client.post("/api/v1/push", json=body)
        with passed() as files:
            assert (await client.post("/api/v1/push", json=body)).status_code == 201
    assert sorted(files) == sorted(written_journey())
    assert len(files) <= MOST_FILES
    assert f"A push passes {len(files)} Python files" in ARCHITECTURE.read_text()
