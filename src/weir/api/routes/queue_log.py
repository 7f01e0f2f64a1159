"""The log of a queue: read by time, key and CEL, and replayed into a queue by a bulk action."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Depends, Query, Response, status

from weir.api.auth import App, Reader, Writer
from weir.api.message_lives import life_view
from weir.api.routes.deadletters import dead_letters_of, task_location
from weir.api.routes.history import Time, parse_time, warehouse_of
from weir.api.routes.pop import payload_members
from weir.api.schemas.dead_letters import TaskView, task_view
from weir.api.schemas.queue_log import LogGapView, LoggedMessageView, LogPageView, LogReplayBody
from weir.api.services import Services
from weir.deadletters.evaluation import Unanswered, judged
from weir.deadletters.log_selection import LogSelection
from weir.model.beside_loop import beside_loop
from weir.model.limits import MAX_NAME_BYTES, MAX_TIME_MS
from weir.model.logged import LoggedMessage, LogPlace, place_of, read_place
from weir.model.names import QueueRef
from weir.spec.cel import MAX_LENGTH
from weir.warehouse.reading.log import MAX_READ_BYTES, LogReader
from weir.warehouse.reading.warehouse import Warehouse

router = APIRouter(tags=["messages"])

MAX_PAGE = 200
SCAN = 2_000
"""Messages that one request looks at, at most; the next request goes on at the cursor."""
ENOUGH_BYTES = MAX_READ_BYTES // 2
"""A request that has looked at so many bytes of payloads reads no more: one read may bring twice as many."""
_READ = 500
"""Messages per read of ClickHouse, if an expression selects among them."""


@router.get(
    "/api/v1/queues/{queue}/log",
    operation_id="read_queue_log",
    response_model=LogPageView,
)
async def read_queue_log(
    queue: str,
    access: Reader,
    services: App,
    warehouse: Annotated[Warehouse, Depends(warehouse_of)],
    start: Annotated[Time, Query(alias="from")] = None,
    end: Annotated[Time, Query(alias="to")] = None,
    key: Annotated[str | None, Query(min_length=1, max_length=MAX_NAME_BYTES)] = None,
    where: Annotated[
        str | None, Query(min_length=1, max_length=MAX_LENGTH, description="CEL over a message.")
    ] = None,
    cursor: Annotated[str | None, Query(min_length=1, max_length=64)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 50,
) -> Response:
    """Messages that ended in a queue that keeps a log, in the order of their ends, with what they carried."""
    ref = access.environment.queue(queue)
    selection = LogSelection(
        queue=queue,
        from_ms=0 if start is None else parse_time(start),
        to_ms=MAX_TIME_MS if end is None else parse_time(end),
        key=key,
        expression=where,
    )
    async with warehouse.log.turns.turn(ref.organization):
        body = await _read(services, warehouse.log, ref, selection, cursor=cursor, limit=limit)
    return Response(body, media_type="application/json")


@router.post(
    "/api/v1/queues/{queue}/log/replays",
    operation_id="replay_queue_log",
    status_code=status.HTTP_202_ACCEPTED,
)
async def replay_queue_log(
    queue: str,
    body: LogReplayBody,
    access: Writer,
    services: App,
    warehouse: Annotated[Warehouse, Depends(warehouse_of)],
    response: Response,
) -> TaskView:
    """Send messages of a log into a queue, as a bulk action; `/api/v1/dlq/tasks/{task_id}` shows it."""
    new = body.replay(queue)
    ref, span = access.environment.queue(queue), new.selection
    account = await warehouse.log.account(ref, from_ms=span.from_ms, to_ms=span.to_ms)
    if not account.messages:
        # Raises NotFound unless the queue is defined: a misspelled name must not look like an empty log.
        await services.broker.state(ref)
    action = await dead_letters_of(services).bulk_actions.create_log_replay(
        access.environment, new, expected=account.messages, by=access.actor
    )
    response.headers["location"] = task_location(action)
    return task_view(action)


async def _read(
    services: Services,
    log: LogReader,
    queue: QueueRef,
    selection: LogSelection,
    *,
    cursor: str | None,
    limit: int,
) -> bytes:
    """A page of a log, as the answer has it."""
    # Read this before the messages. Read later, it would cover messages that landed after the page was read.
    complete_until_ms = await log.complete_until_ms(queue)
    log_ms = await _kept_ms(services, queue)
    scan = await _scan(log, queue, selection, after=read_place(cursor), limit=limit)
    if not scan.scanned and cursor is None and log_ms is None:
        # Raises NotFound unless the queue is defined. A queue that was forgotten keeps its log.
        await services.broker.state(queue)
    gaps = await log.gaps(queue, from_ms=selection.from_ms, to_ms=selection.to_ms)
    page = LogPageView(
        queue=queue.queue,
        log_ms=log_ms,
        items=[],
        scanned=scan.scanned,
        unanswered=scan.unanswered,
        next_cursor=None if scan.ended else str(scan.place),
        complete_until_ms=complete_until_ms,
        gaps=[
            LogGapView(
                from_ms=gap.span.start_ms, to_ms=gap.span.end_ms, kind=gap.kind.value, reason=gap.reason
            )
            for gap in gaps
        ],
    )
    return await beside_loop(_body, scan.carried, page, scan.found)


@dataclass(slots=True, kw_only=True)
class _LogScan:
    """How far one request has looked through a log."""

    place: LogPlace
    found: list[LoggedMessage] = field(default_factory=list)
    scanned: int = 0
    unanswered: int = 0
    carried: int = 0
    """Bytes of payloads of all messages that it looked at."""
    ended: bool = False

    def take(self, message: LoggedMessage, answer: bool | Unanswered) -> None:
        self.place = place_of(message)
        self.scanned += 1
        self.carried += len(message.payload)
        if isinstance(answer, Unanswered):
            self.unanswered += 1
        elif answer:
            self.found.append(message)


async def _scan(
    log: LogReader, queue: QueueRef, selection: LogSelection, *, after: LogPlace, limit: int
) -> _LogScan:
    """Look through the log until the page is full, the limit of a request is reached, or the log ends."""
    scan, predicate = _LogScan(place=after), selection.predicate()
    while scan.scanned < SCAN and scan.carried < ENOUGH_BYTES:
        wanted = _READ if selection.expression is not None else limit
        window = await log.read(
            queue,
            from_ms=selection.from_ms,
            to_ms=selection.to_ms,
            key=selection.key,
            after=scan.place,
            limit=wanted,
        )
        for message, answer in zip(window, await judged(predicate, window), strict=True):
            if len(scan.found) == limit:
                return scan
            scan.take(message, answer)
        scan.ended = not window
        if scan.ended or len(scan.found) == limit:
            break
    return scan


async def _kept_ms(services: Services, queue: QueueRef) -> int | None:
    if services.definitions is None:
        return None
    definition = await services.definitions.find(queue)
    return None if definition is None else definition.spec.log_ms


def _body(page: LogPageView, found: list[LoggedMessage]) -> bytes:
    return orjson.dumps(page.model_dump(mode="json") | {"items": [_document(one) for one in found]})


def _document(message: LoggedMessage) -> dict[str, Any]:
    life = message.life
    view = LoggedMessageView(
        id=life.message_id,
        number=message.number,
        payload=None,
        payload_base64=None,
        headers=dict(message.headers),
        idempotency_key=message.idempotency_key,
        left_out=message.left_out,
        kept_until_ms=life.ended_at_ms + message.kept_ms,
        life=life_view(life),
    )
    carried = (
        {} if message.left_out else payload_members(message.payload, message.headers.get("content-type"))
    )
    return view.model_dump(mode="json") | carried
