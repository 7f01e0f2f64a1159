"""Looks at every server once: its version, port and health, the disk, and what is misconfigured."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from weir.broker.preflight import folder_of_server, inspect_redis, written_shards, wrong_scheme
from weir.control.current_specs import CurrentSpecs
from weir.control.database import Database
from weir.control.inspect import inspect_postgres
from weir.control.secrets import Secrets
from weir.embedded.datadir import free_space
from weir.embedded.java import find_java, find_spark
from weir.embedded.open import stack_from
from weir.embedded.run_file import running_urls
from weir.errors import WeirError
from weir.ingress.webhook_secrets import can_verify, missing_secrets
from weir.model.shards import wrong_shards
from weir.model.wording import amount
from weir.redis_client import connect
from weir.settings import Settings, StoreUrls
from weir.spec.snapshot import Hook
from weir.stores.migrations import migrate_stores
from weir.stores.sealing_keys import sealing_keys
from weir.stores.urls import resolve_urls
from weir.warehouse.inspect import inspect_clickhouse

_LOW_DISK_BYTES = 1 << 30

Section = dict[str, Any]


async def checkup(settings: Settings) -> Section:
    """Look at the running servers, or start the embedded ones for the look."""
    if _all_set(settings) or running_urls(settings.embedded.data_dir):
        return await _look(resolve_urls(settings), settings)
    async with stack_from(settings, report=lambda _: None) as stack:
        await migrate_stores(stack.urls)
        return await _look(stack.urls, settings)


def _all_set(settings: Settings) -> bool:
    return bool(settings.redis_url and settings.postgres_url and settings.clickhouse_url)


async def _look(urls: StoreUrls, settings: Settings) -> Section:
    looks = {
        "redis": _store(urls.redis, lambda url: _redis(url, settings)),
        "postgres": _store(urls.postgres, _postgres),
        "clickhouse": _store(urls.clickhouse, _clickhouse),
        "java": _look_safely(_java),
        "spark": _look_safely(_spark),
    }
    sections = dict(zip(looks, await asyncio.gather(*looks.values()), strict=True))
    sections["webhooks"] = await _webhooks(
        urls.postgres,
        settings,
        ready=sections["postgres"].get("missing_migrations") == 0,
    )
    sections["disk"] = _disk(settings.embedded.data_dir)
    ok = all(part["ok"] for part in sections.values())
    return {
        "ok": ok,
        **sections,
        "problems": _texts(sections, "problems"),
        "notes": _texts(sections, "notes"),
    }


def _texts(sections: dict[str, Section], kind: str) -> list[str]:
    return [f"{name}: {text}" for name, part in sections.items() for text in part.get(kind, ())]


async def _store(url: str, look: Callable[[str], Awaitable[Section]]) -> Section:
    parts = urlsplit(url)
    section = await _look_safely(lambda: look(url))
    return {"ok": section.pop("ok"), "host": parts.hostname, "port": parts.port, **section}


async def _look_safely(look: Callable[[], Awaitable[Section]]) -> Section:
    """Make a section; if its look fails, the section says why, and the other sections are still made."""
    try:
        section = await look()
    except WeirError as error:
        return {"ok": False, "problems": [error.message]}
    return {"ok": not section["problems"], **section}


async def _redis(url: str, settings: Settings) -> Section:
    state = await inspect_redis(url)
    async with connect(url) as client:
        shards = await written_shards(client.execute_command)
    folder = folder_of_server(state.process_id)
    disk = {} if folder is None else {"disk_free_bytes": free_space(folder)[1]}
    return {
        **asdict(state),
        **disk,
        "shards": shards,
        "problems": [
            *wrong_scheme(url, state),
            *state.refusals(),
            *state.warnings(),
            *wrong_shards(shards, configured=settings.shards),
        ],
    }


async def _postgres(url: str) -> Section:
    state = await inspect_postgres(url)
    return {**asdict(state), "problems": state.problems(), "notes": state.notes()}


async def _clickhouse(url: str) -> Section:
    state = await inspect_clickhouse(url)
    return {**asdict(state), "problems": state.problems()}


async def _java() -> Section:
    return {**asdict(await find_java()), "problems": []}


async def _spark() -> Section:
    return {**asdict(await find_spark(await find_java())), "problems": []}


async def _webhooks(url: str, settings: Settings, *, ready: bool) -> Section:
    """The section on webhooks. A problem of PostgreSQL is not reported a second time here."""
    if not ready:
        return {"ok": True, "notes": ["not checked, because PostgreSQL is not ready"], "problems": []}
    return await _look_safely(lambda: inspect_webhooks(url, settings))


async def inspect_webhooks(url: str, settings: Settings) -> Section:
    """Webhooks without a secret, secrets without their key, and keys of earlier rotations."""
    keys = sealing_keys(settings)
    async with Database(url, max_size=1, timeout_s=5, name="weir doctor") as database:
        registry, secrets = CurrentSpecs(database), Secrets(database, keys)
        await registry.refresh()
        await secrets.load()
        sealed = await secrets.count_by_key()
    hooks = registry.snapshot.hooks_by_environment.values()
    silent = [hook for hook in hooks if not can_verify(hook, secrets.of)]
    lost = sum(count for key, count in sealed.items() if keys is None or key not in keys.ids)
    older = sum(count for key, count in sealed.items() if keys is not None and key in keys.ids[1:])
    return {
        "count": len(hooks),
        "secrets": sum(sealed.values()),
        "notes": [
            *(_without_secret(hook, secrets) for hook in silent),
            *_note(
                older, "sealed with an older key; the next start of `weir serve` seals them with the first"
            ),
        ],
        "problems": _note(lost, "stored, and no key here opens them; see `WEIR_SECRETS__KEY_FILE`"),
    }


def _note(secrets: int, text: str) -> list[str]:
    return [f"{amount(secrets, 'secret')} {text}"] if secrets else []


def _without_secret(hook: Hook, secrets: Secrets) -> str:
    scope = hook.environment
    missing = missing_secrets(hook, secrets.of)
    return (
        f"`{hook.webhook.name}` of `{scope.organization}/{scope.project}/{scope.environment}` refuses "
        f"everything until `weir secret set {missing[0]}` stores its secret"
    )


def _disk(folder: Path) -> Section:
    existing, free_bytes = free_space(folder)
    low = free_bytes < _LOW_DISK_BYTES
    problems = [f"less than 1 GiB is free under `{existing}`; make room"] if low else []
    return {"ok": not low, "path": str(existing), "free_bytes": free_bytes, "problems": problems}
