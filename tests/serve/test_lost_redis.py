"""Redis loses its data while Weir serves: nothing is answered from it, and nothing is done there."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
import redis

from support.warehouse_template import WarehouseTemplate
from weir import ApiError, Weir
from weir.broker import keys
from weir.model.names import EnvironmentRef
from weir.model.shards import shard_of

from .watched import watched_api

ENVIRONMENT = EnvironmentRef(organization="default", project="default", environment="default")


def test_a_redis_that_lost_its_data_is_neither_read_nor_written(
    quick_path: Path, postgres_url: str, migrated_template: str, warehouses: WarehouseTemplate
) -> None:
    with (
        watched_api(
            quick_path, postgres_url=postgres_url, template=migrated_template, warehouses=warehouses
        ) as api,
        httpx2.Client(
            base_url=f"http://127.0.0.1:{api.port}/api/v1",
            headers={"authorization": f"Bearer {api.admin}"},
            timeout=30,
        ) as client,
        redis.Redis.from_url(api.urls.redis) as server,
    ):

        def ask(method: str, path: str, body: object = None) -> tuple[int, object]:
            answer = client.request(method, path, json=body)
            document = answer.json() if answer.content else {}
            if answer.status_code != 503:
                return answer.status_code, document
            assert document["retryable"]
            # The definition of a queue is stored, and told to the right Redis once it is back.
            stored = method == "PUT" and "is stored, and Redis does not answer" in document["detail"]
            assert stored or "lost its data" in document["detail"]
            assert int(answer.headers["retry-after"]) > 0
            return 503, document["code"]

        assert ask("PUT", "/queues/work", {})[0] < 300
        push = {"items": [{"queue": "work", "payload": 1}]}
        assert ask("POST", "/push", push)[0] == 201
        popped = client.post("/pop", json={"queue": "work"}).json()["messages"][0]
        # Operations wait in PostgreSQL meanwhile, and must not be marked as done.
        kept = {name: server.dump(name) for name in server.keys("*")}
        server.flushall()
        lease = {"queue": "work", "id": popped["id"], "lease": popped["lease"]}
        asked: list[tuple[str, str, object]] = [
            ("POST", "/push", push),
            ("POST", "/queues/work/messages", {"a": 1}),
            ("POST", "/pop", {"queue": "work"}),
            ("POST", "/pop", {}),
            ("POST", "/ack", lease),
            ("POST", "/nack", lease),
            ("POST", "/extend", {**lease, "lease_ms": 1_000}),
            ("GET", "/queues", None),
            ("GET", "/queues/work", None),
            ("PUT", "/queues/work", {}),
            ("PUT", "/queues/other", {}),
        ]
        for method, path, body in asked:
            code = "unavailable" if method == "PUT" else "broker_unavailable"
            assert ask(method, path, body) == (503, code), path
        assert [name for name in server.keys("*") if b":q:" in name] == []
        with (
            Weir(f"http://127.0.0.1:{api.port}", token=api.admin, retry_attempts=1) as weir,
            pytest.raises(ApiError) as refused,
        ):
            weir.push("work", 2)
        assert (refused.value.status, refused.value.can_pass) == (503, True)
        server.flushall()
        for name, value in kept.items():
            if value is not None:
                server.restore(name, 0, value)
        assert ask("POST", "/ack", lease)[0] == 200
        assert ask("POST", "/push", push)[0] == 201


def test_every_shard_knows_the_epoch(
    quick_path: Path, postgres_url: str, migrated_template: str, warehouses: WarehouseTemplate
) -> None:
    """One node of a cluster may lose its data alone."""
    with (
        watched_api(
            quick_path, postgres_url=postgres_url, template=migrated_template, warehouses=warehouses
        ) as api,
        redis.Redis.from_url(api.urls.redis) as server,
    ):
        epoch = server.get(keys.EPOCH).decode()  # type: ignore[union-attr]
        names = [keys.epoch_key(shard, epoch) for shard in range(4)]
        assert server.exists(*names) == 4
        headers = {"authorization": f"Bearer {api.admin}"}
        url = f"http://127.0.0.1:{api.port}/api/v1/queues/work"
        server.delete(names[shard_of(ENVIRONMENT, shards=4)])
        assert httpx2.put(url, json={}, headers=headers).status_code == 503
