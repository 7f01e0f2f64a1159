"""Finds the stores: at the URLs in the settings, or else in the embedded stack that runs now."""

from __future__ import annotations

from weir.embedded.run_file import running_urls
from weir.errors import Misconfigured
from weir.settings import Settings, StoreUrls


def resolve_urls(settings: Settings) -> StoreUrls:
    """The URLs of the stores. It is an error if a store is not set and no embedded one runs."""
    running = running_urls(settings.embedded.data_dir)
    given = {
        "redis": settings.redis_url,
        "postgres": settings.postgres_url,
        "clickhouse": settings.clickhouse_url,
    }
    found = {name: url or (getattr(running, name) if running else None) for name, url in given.items()}
    for name, url in found.items():
        if url is None:
            raise Misconfigured(
                f"there is no {name}: nothing runs in `{settings.embedded.data_dir}` and "
                f"`WEIR_{name.upper()}_URL` is not set; run `weir up` beside this, or set it"
            )
    return StoreUrls(**{name: str(url) for name, url in found.items()})
