"""What anybody may ask for without a credential costs the others next to nothing, however it is asked."""

from __future__ import annotations

import gzip
import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import cast

import httpx2
import pytest
from fastapi.routing import APIRoute
from starlette.routing import Route

from support.warehouse_template import WarehouseTemplate
from weir.api.app import create_control, describe
from weir.api.edge import _WITH_TOKEN
from weir.api.routes.table import HOT, ROUTERS
from weir.api.services import Services
from weir.dashboard.site import routes as dashboard

from .hostile import head, push_body
from .watched import WatchedApi, watched_api

CONNECTIONS, PIPELINED = 100, 30
FIRST_S = 0.4
"""Processor time of this process while the first description is written, which takes 0.5 s."""
HELD_MS = 120.0
"""Processor time that the event loop may spend on everything else between a push and its answer. A push takes
about ten turns of the loop, and strangers get 2 ms of each, plus what parsing their bytes costs."""

JOB = "/channel/c/consumer/m/job/1"
STRANGE: dict[str, bytes] = {
    "GET /livez": head("GET", "/livez", token=None, length=0),
    "GET /healthz": head("GET", "/healthz", token=None, length=0),
    "GET /readyz": head("GET", "/readyz", token=None, length=0),
    "GET /metrics": head("GET", "/metrics", token=None, length=0),
    "GET /openapi.json": head("GET", "/openapi.json", token=None, length=0),
    "GET /": head("GET", "/", token=None, length=0),
    "GET /assets/{name}": head("GET", "/assets/index.js", token=None, length=0),
    "GET /dlq-status": head("GET", "/dlq-status", token=None, length=0),
    "POST /hook/{name}": head("POST", "/hook/open", token=None, length=2) + b"{}",
    "OPTIONS /hook/{name}": head("OPTIONS", "/hook/open", token=None, length=0),
    "POST /hook/{organization}/{project}/{environment}/{name}": head(
        "POST", "/hook/default/default/default/open", token=None, length=2
    ) + b"{}",
    "OPTIONS /hook/{organization}/{project}/{environment}/{name}": head(
        "OPTIONS", "/hook/default/default/default/open", token=None, length=0
    ),
    "POST /channel/{channelId}/publish": head("POST", "/channel/c/publish", token=None, length=2) + b"{}",
    "GET /channel/{channelId}/consumer/{consumerId}/dlq": head(
        "GET", "/channel/c/consumer/m/dlq", token=None, length=0
    ),
    "POST /channel/{channelId}/consumer/{consumerId}/dlq": head(
        "POST", "/channel/c/consumer/m/dlq", token=None, length=2
    ) + b"{}",
    "DELETE /channel/{channelId}/consumer/{consumerId}/dlq": head(
        "DELETE", "/channel/c/consumer/m/dlq", token=None, length=0
    ),
    "GET /channel/{channelId}/consumer/{consumerId}/job/{jobId}": head("GET", JOB, token=None, length=0),
    "DELETE /channel/{channelId}/consumer/{consumerId}/job/{jobId}": head(
        "DELETE", JOB, token=None, length=0
    ),
    "POST /channel/{channelId}/consumer/{consumerId}/job/{jobId}/requeue-dead-job": head(
        "POST", f"{JOB}/requeue-dead-job", token=None, length=0
    ),
}  # fmt: skip
"""One request for each route that a stranger reaches: all that are not turned away at the edge."""

ELSEWHERE: dict[str, bytes] = {
    "no such route": head("GET", "/nothing/here", token=None, length=0),
    "no token": head("GET", "/api/v1/queues", token=None, length=0),
    "a made-up token": head("GET", "/api/v1/queues", token="weir_" + "1" * 60, length=0),
    "a push without a token": head("POST", "/api/v1/push", token=None, length=2) + b"{}",
    "a method that no route takes": head("DELETE", "/livez", token=None, length=0),
}


def reachable() -> set[str]:
    """Every route outside the paths that need a token."""
    found: set[str] = set()
    plain = [route for route in create_control(cast(Services, None)).router.routes if type(route) is Route]
    included = [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]
    for route in (*included, *plain, *dashboard()):
        assert isinstance(route, Route | APIRoute), route
        found |= {f"{method} {route.path}" for method in (route.methods or set()) - {"HEAD"}}
    for hot in HOT:
        found |= {f"{method} {hot.path}" for method in hot.endpoints}
    return {route for route in found if not route.split()[1].startswith(_WITH_TOKEN)}


def test_every_route_that_a_stranger_reaches_is_in_the_list() -> None:
    assert reachable() == set(STRANGE)


@pytest.fixture(scope="module")
def api(
    tmp_path_factory: pytest.TempPathFactory,
    postgres_url: str,
    migrated_template: str,
    warehouses: WarehouseTemplate,
) -> Iterator[WatchedApi]:
    folder = tmp_path_factory.mktemp("strangers")
    with watched_api(
        folder, postgres_url=postgres_url, template=migrated_template, warehouses=warehouses
    ) as api:
        with neighbour(api) as client:
            assert client.put("/api/v1/queues/orders", json={}).is_success
        yield api


@contextmanager
def neighbour(api: WatchedApi) -> Iterator[httpx2.Client]:
    with httpx2.Client(
        base_url=f"http://127.0.0.1:{api.port}",
        headers={"authorization": f"Bearer {api.admin}"},
        timeout=60,
    ) as client:
        yield client


@contextmanager
def unread(api: WatchedApi, requests: bytes) -> Iterator[None]:
    """Many connections that send these bytes and read nothing."""
    with ExitStack() as stack:
        for _ in range(CONNECTIONS):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", api.port)))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            connection.sendall(requests)
        yield


def test_the_first_description_takes_no_time_of_the_process(api: WatchedApi) -> None:
    """Not only of the event loop: Python in a thread delays the others as well."""
    with neighbour(api) as client:
        before_s = time.process_time()
        answer = client.get("/openapi.json", headers={"accept-encoding": "identity"})
        took_s = time.process_time() - before_s
    assert answer.json() == json.loads(json.dumps(describe()))
    assert took_s < FIRST_S


@pytest.mark.parametrize("route", [*STRANGE, *ELSEWHERE])
def test_a_push_is_answered_among_strangers_who_ask_and_do_not_read(api: WatchedApi, route: str) -> None:
    request = STRANGE.get(route) or ELSEWHERE[route]
    with neighbour(api) as client:
        push(client)
        # What is made once is made.
        client.get("/livez")
        api.watchdog.take()
        with unread(api, request * PIPELINED):
            held_ms = [held_between(api, client) for _ in range(5)]
    assert median(held_ms) < HELD_MS, held_ms
    assert not [hold for hold in api.watchdog.take() if hold.ms > 2 * api.watchdog.bound_ms]


def held_between(api: WatchedApi, client: httpx2.Client) -> float:
    """Milliseconds of processor time that the event loop takes until a push is answered."""
    before_s = api.loop.spent_s()
    push(client)
    return (api.loop.spent_s() - before_s) * 1_000


def push(client: httpx2.Client) -> None:
    answer = client.post(
        "/api/v1/push", content=push_body("orders"), headers={"content-type": "application/json"}
    )
    # On a busy machine Redis may be late, and then the push is queued.
    assert answer.status_code in (201, 202), answer.text


def test_fixed_answers_are_compressed_once_and_have_a_tag(api: WatchedApi) -> None:
    with neighbour(api) as client:
        plain = client.get("/openapi.json", headers={"accept-encoding": "identity"})
        with client.stream("GET", "/openapi.json", headers={"accept-encoding": "br, gzip;q=0.5"}) as small:
            raw = b"".join(small.iter_raw())
        refused = client.get("/openapi.json", headers={"accept-encoding": "gzip;q=0"})
        same = client.get("/openapi.json", headers={"if-none-match": plain.headers["etag"]})
    assert gzip.decompress(raw) == plain.content == refused.content
    assert small.headers["content-encoding"] == "gzip"
    assert len(raw) * 5 < len(plain.content)
    assert (same.status_code, same.content) == (304, b"")
