"""URLs of test databases."""

from __future__ import annotations

from urllib.parse import urlsplit


def with_database(url: str, name: str) -> str:
    """The same server, another database."""
    return urlsplit(url)._replace(path=f"/{name}").geturl()
