"""The requests and answers of the hot routes, as data for the OpenAPI description."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from weir.api.routes.pop import PAYLOAD_ENCODINGS
from weir.api.schemas import hot as shapes
from weir.api.schemas.hot import EXAMPLE_ID, EXAMPLE_LEASE
from weir.model.limits import MAX_BATCH, MAX_NAME_BYTES, MAX_PRIORITY, MAX_WAIT_MS

_NAME = {"minLength": 1, "maxLength": MAX_NAME_BYTES}
_LEASE = {"queue": "orders", "id": EXAMPLE_ID, "lease": EXAMPLE_LEASE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """One operation of the hot path."""

    path: str
    method: str
    operation_id: str
    summary: str
    answers: Mapping[int, type[BaseModel]]
    body: type[BaseModel] | None = None
    example: Mapping[str, Any] | None = None
    parameters: tuple[Mapping[str, Any], ...] = ()
    raw: bool = False
    """The body is the payload itself, of any type."""


def query(name: str, kind: str, description: str, **bounds: Any) -> dict[str, Any]:
    return {
        "name": name,
        "in": "query",
        "required": False,
        "description": description,
        "schema": {"type": kind, **bounds},
    }


IDEMPOTENCY_KEY = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "Sent again with the same body within 24 hours, the request has no second effect.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$"},
}
_QUEUE_IN_PATH = {
    "name": "queue",
    "in": "path",
    "required": True,
    "schema": {"type": "string", **_NAME},
    "example": "orders",
}
_MESSAGE_OPTIONS = (
    query("key", "string", "Ordering key.", **_NAME),
    query("priority", "integer", f"{MAX_PRIORITY} is served first.", minimum=0, maximum=MAX_PRIORITY),
    query("deliver_at_ms", "integer", "Not before this time, by Redis' clock.", minimum=0),
    query("delay_ms", "integer", "Not before this long from now.", minimum=0),
    query("ttl_ms", "integer", "Expires after this long.", minimum=1),
)
_POP_OPTIONS = (
    query("queue", "string", "Left out: any queue of the environment.", **_NAME),
    query("limit", "integer", "At most this many.", minimum=1, maximum=MAX_BATCH),
    query("wait_ms", "integer", "Wait that long for the first one.", minimum=0, maximum=MAX_WAIT_MS),
    query("lease_ms", "integer", "How long the lease holds.", minimum=100),
    query("consumer", "string", "Who takes them.", **_NAME),
    query("payload_encoding", "string", "`base64` encodes JSON payloads too.", enum=[*PAYLOAD_ENCODINGS]),
)

_MESSAGE_IN_PATH = {
    "name": "message_id",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "format": "uuid"},
    "example": EXAMPLE_ID,
}
_WAIT = query("wait_ms", "integer", "Wait that long for its end.", minimum=0, maximum=MAX_WAIT_MS)

DESCRIBED: tuple[Described, ...] = (
    Described(
        path="/api/v1/push",
        method="post",
        operation_id="push_messages",
        summary="Put messages into queues; an answer for every item, in order.",
        body=shapes.PushBody,
        example={"items": [{"queue": "orders", "key": "customer-7", "payload": {"order": 42}}]},
        answers={201: shapes.PushAnswers, 202: shapes.PushAnswers},
        parameters=(IDEMPOTENCY_KEY,),
    ),
    Described(
        path="/api/v1/queues/{queue}/messages",
        method="post",
        operation_id="push_raw_message",
        summary="Put one message into a queue: the body is the payload, byte for byte.",
        answers={201: shapes.PushAnswerBody, 202: shapes.PushAnswerBody},
        parameters=(_QUEUE_IN_PATH, *_MESSAGE_OPTIONS, IDEMPOTENCY_KEY),
        raw=True,
    ),
    Described(
        path="/api/v1/pop",
        method="get",
        operation_id="pop_messages_by_query",
        summary="Hand out messages under leases; waits if asked to.",
        answers={200: shapes.Messages},
        parameters=_POP_OPTIONS,
    ),
    Described(
        path="/api/v1/pop",
        method="post",
        operation_id="pop_messages",
        summary="Hand out messages under leases; waits if asked to.",
        body=shapes.PopBody,
        example={"queue": "orders", "limit": 10, "wait_ms": 2000},
        answers={200: shapes.Messages},
    ),
    Described(
        path="/api/v1/ack",
        method="post",
        operation_id="ack_message",
        summary="A message is done.",
        body=shapes.AckBody,
        example=_LEASE,
        answers={200: shapes.SettleAnswerBody, 202: shapes.SettleAnswerBody},
    ),
    Described(
        path="/api/v1/ack/batch",
        method="post",
        operation_id="ack_messages",
        summary="Many messages are done, or failed; an answer for every item, in order.",
        body=shapes.AckBatchBody,
        example={"acknowledgments": [{**_LEASE, "status": "completed"}]},
        answers={200: shapes.SettleAnswers, 202: shapes.SettleAnswers},
    ),
    Described(
        path="/api/v1/nack",
        method="post",
        operation_id="nack_message",
        summary="A message failed: try it again later, or give it up.",
        body=shapes.NackBody,
        example={**_LEASE, "error": "timeout while calling the bank"},
        answers={200: shapes.SettleAnswerBody, 202: shapes.SettleAnswerBody},
    ),
    Described(
        path="/api/v1/extend",
        method="post",
        operation_id="extend_lease",
        summary="Keep a lease longer.",
        body=shapes.ExtendBody,
        example={**_LEASE, "lease_ms": 30000},
        answers={200: shapes.Extended},
    ),
    Described(
        path="/api/v1/revoked",
        method="post",
        operation_id="revoked_leases",
        summary="Which of these messages were cancelled while they were leased; their handlers may stop.",
        body=shapes.RevokedBody,
        example={"leases": [_LEASE]},
        answers={200: shapes.Revoked},
    ),
    Described(
        path="/api/v1/progress",
        method="post",
        operation_id="keep_progress",
        summary="Tell how far the handler of a leased message is.",
        body=shapes.ProgressBody,
        example={**_LEASE, "progress": {"done": 3, "of": 10}},
        answers={200: shapes.ProgressKept},
    ),
    Described(
        path="/api/v1/messages/{message_id}/outcome",
        method="get",
        operation_id="show_message_outcome",
        summary="How a message ended, and its result; waits for the end if asked to.",
        answers={200: shapes.OutcomeBody},
        parameters=(_MESSAGE_IN_PATH, _WAIT),
    ),
    Described(
        path="/hook/{name}",
        method="post",
        operation_id="receive_hook",
        summary="A signed webhook at its short address; repeats of a delivery get the first one's answer.",
        answers={200: shapes.HookAnswer, 202: shapes.HookAnswer},
        parameters=(
            {
                "name": "name",
                "in": "path",
                "required": True,
                "schema": {"type": "string", **_NAME},
                "example": "PagerDutyAlert",
            },
        ),
        raw=True,
    ),
)
