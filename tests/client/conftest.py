"""The API on a socket, for examples that talk to it."""

from __future__ import annotations

from api.conftest import app, base_url, broker, database_url, services, tenant

__all__ = ["app", "base_url", "broker", "database_url", "services", "tenant"]
