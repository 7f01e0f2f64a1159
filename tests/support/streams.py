"""Entries of metric streams, as different clients of Redis give them."""

from __future__ import annotations

from typing import Any

from weir.telemetry.events import STREAM_FIELD


def event_bytes(fields: Any) -> bytes:
    """The packed event of an entry. The driver's client makes a dictionary of its fields, others a list."""
    members = dict(zip(fields[::2], fields[1::2], strict=True)) if isinstance(fields, list) else fields
    data: bytes = members[STREAM_FIELD.encode()]
    return data
