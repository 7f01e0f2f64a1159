"""Settlements that wait in PostgreSQL keep all that was said about them."""

from __future__ import annotations

import orjson

from weir.model.ids import MessageId, new_id
from weir.model.message import Failure, LeaseRef, Verb
from weir.model.names import QueueRef
from weir.operations.payload import Settle, decode_settle, encode_settle

QUEUE = QueueRef(organization="o", project="p", environment="e", queue="q")


def failure(handler_ms: int | None) -> Failure:
    lease = LeaseRef(queue=QUEUE, message_id=MessageId(new_id()), token="t", handler_ms=handler_ms)
    return Failure(lease=lease, error="no", delay_ms=5, result=b'{"a": 1}', uncounted=True)


def test_the_time_of_a_handler_is_kept() -> None:
    settle = Settle(verb=Verb.NACK, failures=(failure(42), failure(None), failure(0)))
    kept = decode_settle(encode_settle(settle))
    assert kept == settle
    # Leases are equal whatever their handlers took.
    assert [one.lease.handler_ms for one in kept.failures] == [42, None, 0]


def test_rows_are_as_before_so_that_programs_of_before_can_read_them() -> None:
    told, untold = (encode_settle(Settle(verb=Verb.ACK, failures=(failure(ms),))) for ms in (42, None))
    assert b"handlers_ms" in told
    assert b"handlers_ms" not in untold
    assert len(_rows(told)[0]) == len(_rows(untold)[0])


def _rows(data: bytes) -> list[list[object]]:
    start = data.index(b"{")
    head, _, _ = data[start:].partition(b"\x00")
    rows: list[list[object]] = orjson.loads(head)["leases"]
    return rows
