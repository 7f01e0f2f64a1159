"""Every example of the public docstrings and of the client's page runs, against a real API."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import textwrap
from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from pathlib import Path
from types import CodeType
from typing import Any

import httpx2
import pytest

import weir
import weir.worker
from api.harness import Tenant, define
from client.test_client import operation
from client.test_logs import LOGGED, TASK
from weir.api.services import Services
from weir.model.ids import MessageId

PAGE = Path(weir.__file__).parents[2] / "docs" / "reference" / "client.md"
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
ORDERS = 200
"""More messages than the examples take."""
SCRIPTED = {"operation_id", "operation_stats", "dead_letter", "read_log", "replay_log", "log_replay"}
"""Examples with these names get answers that were written down: this API stores nothing of the kind."""


def examples_in(text: str) -> list[str]:
    return FENCE.findall(textwrap.dedent(text))


def documented(module: str) -> Iterator[tuple[str, str]]:
    """Public names and their methods, each with its docstring."""
    found = import_module(module)
    yield module, found.__doc__ or ""
    for name in found.__all__:
        if getattr(found, "_HOMES", {}).get(name, "").startswith("tasks."):
            # Those of tasks run in `tests/tasks/test_examples.py`.
            continue
        owner = getattr(found, name)
        yield name, inspect.getdoc(owner) or ""
        for method, function in inspect.getmembers(owner, inspect.isfunction):
            if not method.startswith("_") and "python" in (function.__doc__ or ""):
                yield f"{name}.{method}", inspect.getdoc(function) or ""


METHODS = [weir.AsyncWeir, weir.Weir, weir.Producer, weir.Consumer]


@pytest.mark.parametrize("module", ["weir", "weir.worker"])
def test_every_public_name_has_an_example(module: str) -> None:
    assert [where for where, text in documented(module) if not examples_in(text)] == []


@pytest.mark.parametrize("owner", METHODS, ids=lambda owner: owner.__name__)
def test_every_public_method_has_an_example(owner: Any) -> None:
    methods = inspect.getmembers(owner, inspect.isfunction)
    texts = {name: inspect.getdoc(function) or "" for name, function in methods if name[0] != "_"}
    assert [name for name, text in texts.items() if not examples_in(text)] == []


@pytest.fixture
async def names(base_url: str, tenant: Tenant, services: Services) -> AsyncIterator[dict[str, Any]]:
    """What examples may use without saying where it comes from."""
    await define(services, tenant.environment, "orders")
    async with weir.AsyncWeir(base_url, token=tenant.token) as client:
        await client.push_many(
            [weir.OutgoingMessage(queue="orders", payload={"order": n}) for n in range(ORDERS)]
        )

        cancelled = (await client.push("orders", {"order": -1})).id
        assert cancelled is not None
        await services.broker.cancel(tenant.environment.queue("orders"), [MessageId(cancelled)])

        async def handle(message: weir.ReceivedMessage) -> None:
            pass

        public = {name: getattr(weir, name) for name in weir.__all__}
        worker = {**{n: getattr(weir.worker, n) for n in weir.worker.__all__}}
        yield {
            **public,
            **worker,
            "asyncio": asyncio,
            "consumer": weir.Consumer(client, "orders", handle),
            "operation_id": "o1",
            "replay_id": "t1",
            "message_id": cancelled,
            "print": lambda *_: None,
        }


async def run_example(code: str, names: dict[str, Any], *, base_url: str, token: str) -> None:
    """Run it here if it awaits something, else in a thread: the API that it asks is served here."""
    text = code.replace("http://127.0.0.1:8420", base_url).replace("weir_…", token)
    program = compile(text, "example", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    http = _scripted() if SCRIPTED & set(program.co_names) else None
    if program.co_flags & inspect.CO_COROUTINE:
        async with weir.AsyncWeir(base_url, token=token, http=http) as client:
            await eval(program, {**names, "app": weir.worker.Commands(), "weir": client})
    else:
        await asyncio.to_thread(_run_blocking, program, names, weir.Weir(base_url, token=token, http=http))


def _run_blocking(program: CodeType, names: dict[str, Any], client: weir.Weir) -> None:
    with client:
        exec(program, {**names, "app": weir.worker.Commands(), "weir": client})


def _scripted() -> httpx2.AsyncClient:
    """Operations are stored under load only; dead letters and logs by processes that do not run here."""
    return httpx2.AsyncClient(transport=httpx2.MockTransport(_written_down))


def _written_down(request: httpx2.Request) -> httpx2.Response:
    if request.url.path == "/api/v1/me":
        return httpx2.Response(200, json={"token_id": "t1"})
    if request.url.path.endswith("/log"):
        return httpx2.Response(200, json={"items": [LOGGED], "next_cursor": None})
    if "/log/" in request.url.path or "/dlq/tasks/" in request.url.path:
        return httpx2.Response(200, json={**TASK, "state": "completed"})
    return operation("completed")


@pytest.mark.parametrize("module", ["weir", "weir.worker"])
async def test_the_examples_of_docstrings_run(
    module: str, names: dict[str, Any], base_url: str, tenant: Tenant
) -> None:
    for where, text in documented(module):
        for code in examples_in(text):
            await checked_example(code, names, where=where, base_url=base_url, token=tenant.token)


async def test_the_examples_of_the_page_run(names: dict[str, Any], base_url: str, tenant: Tenant) -> None:
    codes = examples_in(PAGE.read_text())
    assert len(codes) >= 5
    for code in codes:
        await checked_example(code, names, where=PAGE.name, base_url=base_url, token=tenant.token)


async def checked_example(code: str, names: dict[str, Any], *, where: str, base_url: str, token: str) -> None:
    try:
        async with asyncio.timeout(20):
            await run_example(code, names, base_url=base_url, token=token)
    except BaseException as error:
        error.add_note(f"the example of {where}:\n{code}")
        raise


def test_the_pages_name_everything_that_is_public_and_every_option() -> None:
    text = PAGE.read_text() + PAGE.with_name("tasks.md").read_text()
    options = set(inspect.signature(weir.AsyncWeir).parameters) - {"base_urls"}
    assert [name for name in (*weir.__all__, *sorted(options)) if f"`{name}`" not in text] == []
