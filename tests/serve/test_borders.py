"""Two organizations with the same names inside: an admin of one reaches nothing of the other."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from serve.routes import QUEUE, REQUESTS, Asked, prepare
from support.running_api import RunningApi
from weir.model.ids import new_id

HELD = "held"
"""A queue that only the victim has."""
PLACES = re.compile(r"\{(\w+)\}")
# What differs from answer to answer: the id of the request, and the moment.
FLEETING = re.compile(r'"(?:instance|last_used_at_ms|[a-z_]*age_ms|at_ms|generated_at_ms)": ?[^,}\]]*')
LISTS = (
    *("queues", f"queues/{HELD}", f"queues/{HELD}/messages", f"dlq/letters?queue={HELD}", "dlq/tasks"),
    *("secrets", "webhooks", "schedules", "alert-rules", "alert-channels", "alert-silences", "annotations"),
    *("channels", "tokens", "spec", "apps", "environments", "disabled-endpoints"),
)
"""Everything that a neighbour could change."""
PAGED = (f"dlq/letters?queue={HELD}", f"queues/{HELD}/messages?")


@dataclass
class Victim:
    """An organization with something of everything, and what its neighbour might know about it."""

    client: httpx2.AsyncClient
    organization: str
    mark: str
    """Stands in everything that it stored, and in nothing that its neighbour sends."""
    ids: dict[str, str] = field(default_factory=dict)
    """Place in a path, or member of a lease -> an id of the victim."""
    names: dict[str, str] = field(default_factory=dict)
    pages: list[str] = field(default_factory=list)
    """Lists with a cursor of the victim."""

    async def send(self, method: str, path: str, body: Any = None) -> Any:
        answer = await self.client.request(method, f"/api/v1/{path}", json=body)
        assert answer.status_code < 300, (method, path, answer.text)
        return answer.json() if answer.content else {}

    async def state(self) -> str:
        answers = [(await self.client.get(f"/api/v1/{path}")).text for path in LISTS]
        return FLEETING.sub("", "\n".join(answers))


async def fill(victim: Victim) -> None:
    """Store something of everything, each with the mark."""
    mark, send, ids = victim.mark, victim.send, victim.ids
    await prepare(victim.client)
    await send("POST", "schedules/Known/pause")
    await send("PUT", f"queues/{HELD}", {"delivery": {"max_attempts": 1}})
    item = {"queue": HELD, "payload": {"says": mark}, "key": mark, "headers": {"x-note": mark}}
    ids["message_id"] = (await send("POST", "push", {"items": [item] * 6}))["items"][0]["id"]
    popped = await send("POST", "pop", {"queue": HELD, "limit": 3, "lease_ms": 600_000})
    dying, second, kept = popped["messages"]
    for one in (dying, second):
        await send("POST", "nack", {"queue": HELD, "id": one["id"], "lease": one["lease"], "error": mark})
    ids |= {"id": kept["id"], "lease": kept["lease"]}
    ids["letter_id"] = ids["jobId"] = await letter_of(victim)
    rule = {"name": mark, "metric": "backlog", "operator": ">", "threshold": 1_000_000}
    ids["rule_id"] = (await send("POST", "alert-rules", rule))["id"]
    ids["silence_id"] = (await send("POST", "alert-silences", {"for_ms": 900_000, "comment": mark}))["id"]
    ids["annotation_id"] = (await send("POST", "annotations", {"text": mark}))["id"]
    ids["token_id"] = (await send("POST", "tokens", {"name": mark, "role": "read"}))["id"]
    redrive = {"filter": {"queue": HELD, "reason": "expired"}, "dry_run": True}
    ids["task_id"] = (await send("POST", "dlq/redrives", redrive))["id"]
    async with asyncio.timeout(60):
        while (await send("GET", f"dlq/tasks/{ids['task_id']}"))["state"] != "completed":  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await send("PUT", "secrets/PRIVATE", {"value": mark})
    url = f"https://example.com/{mark}"
    await send("PUT", "alert-channels/PRIVATE", {"kind": "webhook", "config": {"url": url}})
    yearly = {"name": "PRIVATE", "queue": HELD, "cron": "0 0 1 1 *", "payload": {"says": mark}}
    await send("POST", "schedules", yearly)
    consumers = [{"id": "PRIVATE", "name": mark, "queue": HELD}]
    await send("PUT", "channels/PRIVATE", {"name": mark, "consumers": consumers})
    await send("POST", "groups/PRIVATE/members", {"member": 0, "of": 3})
    places = ("name", "channel_id", "channelId", "consumer_id", "consumerId", "group")
    victim.names = {"queue": HELD, **dict.fromkeys(places, "PRIVATE")}
    for path in PAGED:
        page = await send("GET", f"{path}&limit=1")
        for member in ("next_cursor", "next_before"):
            if page.get(member):
                victim.pages.append(f"/api/v1/{path}&{member.removeprefix('next_')}={page[member]}")
    newest = (await send("GET", "audit-log?limit=1"))["items"][0]["id"]
    victim.pages.append(f"/api/v1/audit-log?before={newest}")


async def letter_of(victim: Victim) -> str:
    """The id of a dead letter, once both dead messages are letters."""
    async with asyncio.timeout(60):
        while True:
            letters = (await victim.send("GET", f"dlq/letters?queue={HELD}"))["items"]
            if len(letters) == 2:
                return str(letters[0]["id"])
            await asyncio.sleep(0.05)


@pytest.fixture
async def both(api: RunningApi) -> AsyncIterator[tuple[Victim, httpx2.AsyncClient]]:
    """The victim, and an admin of the neighbour."""
    operator = {"authorization": f"Bearer {api.token}"}
    organizations = (f"victim{uuid4().hex[:8]}", f"neighbour{uuid4().hex[:8]}")
    async with AsyncExitStack() as stack:
        clients = []
        for organization in organizations:
            client = httpx2.AsyncClient(base_url=api.url, timeout=60)
            clients.append(await stack.enter_async_context(client))
            scope = {"organization": organization, "project": "default", "environment": "default"}
            new = {"name": "admin", "role": "admin", **scope}
            made = (await client.post("/api/v1/tokens", json=new, headers=operator)).json()
            client.headers["authorization"] = f"Bearer {made['token']}"
        victim = Victim(client=clients[0], organization=organizations[0], mark=f"mark{uuid4().hex}")
        await fill(victim)
        channel_tokens = await prepare(clients[1])
        clients[1].headers.update(channel_tokens)
        yield victim, clients[1]


def with_places(request: Asked, values: Mapping[str, str]) -> tuple[str, Any]:
    """The path and the body of a request with these ids and names in their places."""
    was = re.fullmatch(PLACES.sub(r"(?P<\1>[^/]+)", request.route.split()[1]), request.path.partition("?")[0])
    assert was is not None, request
    path = PLACES.sub(lambda place: values.get(place[1], was[place[1]]), request.route.split()[1])
    query = request.path.partition("?")[2].replace(f"queue={QUEUE}", f"queue={values['queue']}")
    body = json.loads(json.dumps(request.body))
    for part in _objects(body):
        if "lease" in part:
            part.update(queue=values["queue"], id=values["id"], lease=values["lease"])
        if "ids" in part:
            part["ids"] = [values["message_id"]]
        if part.get("queue") == QUEUE:
            part["queue"] = values["queue"]
    return f"{path}?{query}" if query else path, body


def _objects(value: Any) -> list[dict[str, Any]]:
    inside = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    own = [value] if isinstance(value, dict) else []
    return own + [found for part in inside for found in _objects(part)]


async def told(client: httpx2.AsyncClient, request: Asked, values: Mapping[str, str]) -> tuple[int, str]:
    """The answer, without what is new in every answer, and with what was sent left out."""
    path, body = with_places(request, values)
    async with client.stream(request.method, path, json=body) as answer:
        if answer.headers.get("content-type", "").startswith("text/event-stream"):
            return answer.status_code, await anext(answer.aiter_text())
        text = FLEETING.sub("", (await answer.aread()).decode())
    for name in sorted(values, key=lambda one: -len(values[one])):
        text = text.replace(values[name], "SENT")
    return answer.status_code, text


async def test_what_a_neighbour_has_is_answered_like_what_nobody_has(
    both: tuple[Victim, httpx2.AsyncClient],
) -> None:
    victim, neighbour = both
    before = await victim.state()
    assert before.count(victim.mark) > 10
    theirs = {**victim.ids, **victim.names}
    nobodys = {
        **{name: new_id() for name in victim.ids},
        **dict.fromkeys(victim.names, "NOBODYS"),
        "token_id": victim.ids["token_id"][::-1],
        "queue": "none",
    }
    wrong: list[object] = []
    tried: set[str] = set()
    for request in REQUESTS:
        # What makes something new makes it in the neighbour's own environment.
        if request.operator or request.method == "PUT" or request.route == "POST /api/v1/alert-rules":
            continue
        found, expected = await told(neighbour, request, theirs), await told(neighbour, request, nobodys)
        same = found[0] == expected[0] and (found[0] < 400 or found[1] == expected[1])
        if not same or victim.mark in found[1] or victim.organization in found[1]:
            wrong.append((request.route, found, expected))
        tried |= set(PLACES.findall(request.route)) & theirs.keys()
    assert wrong == []
    assert tried >= theirs.keys() - {"id", "lease"}
    assert await victim.state() == before


async def test_a_cursor_of_a_neighbour_shows_nothing(both: tuple[Victim, httpx2.AsyncClient]) -> None:
    victim, neighbour = both
    assert len(victim.pages) >= 3
    for page in victim.pages:
        assert victim.mark in (await victim.client.get(page)).text
        answer = await neighbour.get(page)
        assert answer.status_code in (200, 404), (page, answer.text)
        assert victim.mark not in answer.text
        assert victim.organization not in answer.text


async def test_what_counts_for_everybody_names_no_neighbour(both: tuple[Victim, httpx2.AsyncClient]) -> None:
    victim, neighbour = both
    for path in (
        *(f"/api/v1/{one}" for one in LISTS),
        "/metrics",
        "/dlq-status",
        "/api/v1/me",
        "/api/v1/workers",
    ):
        text = (await neighbour.get(path)).text
        assert victim.mark not in text, path
        assert victim.organization not in text, path
    for path in ("/api/v1/workers", "/api/v1/pipeline/audit"):
        assert (await neighbour.get(f"{path}?all_environments=true")).status_code == 403
    for spec in ("", ' alert A { when: backlog > 1  channels: ["PRIVATE"] }'):
        source = (
            f'app A {{ queue {HELD} {{ deliver: https://example.com/in {{ secret: "PRIVATE" }} }}{spec} }}'
        )
        plan = await neighbour.post("/api/v1/spec/plan", json={"source": source})
        assert "which is not stored" in plan.text
        assert victim.mark not in plan.text
