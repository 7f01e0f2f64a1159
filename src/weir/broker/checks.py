"""Checks and refusals: every broker refuses the same call with the same words, before it changes anything."""

from __future__ import annotations

from collections.abc import Sequence

from weir.errors import (
    BrokerUnavailable,
    CallStale,
    Conflict,
    InvalidInput,
    KeyReused,
    NotFound,
    TooLarge,
)
from weir.model.limits import (
    MAX_BATCH,
    MAX_COUNT,
    MAX_DELAY_MS,
    MAX_GROUP,
    MAX_LEASE_MS,
    MAX_PRIORITY,
    MAX_RESULT_BYTES,
    MAX_SPAN_MS,
    MAX_TIME_MS,
    MAX_WAIT_MS,
    MIN_LOG_MS,
)
from weir.model.message import Failure, LeaseRef, check_batch, check_message_id, check_number
from weir.model.names import check_name
from weir.model.wording import amount
from weir.spec.history import log_needs_lives
from weir.spec.ir import QueueSpec


def check_dequeue(*, consumer: str, limit: int, lease_ms: int | None, wait_ms: int) -> None:
    check_name(consumer, what="consumer")
    check_number(limit, what="limit", least=1, most=MAX_BATCH)
    check_number(wait_ms, what="wait_ms", least=0, most=MAX_WAIT_MS)
    if lease_ms is not None:
        check_lease(lease_ms)


def check_lease(lease_ms: int) -> None:
    check_number(lease_ms, what="lease_ms", least=1, most=MAX_LEASE_MS)


def check_leases(leases: Sequence[LeaseRef]) -> None:
    check_batch(leases)
    for lease in leases:
        check_message_id(lease.message_id)


def check_results(results: Sequence[bytes | None], *, leases: int) -> None:
    if results and len(results) != leases:
        raise InvalidInput(
            f"there are {len(results)} results for {leases} leases; give one for each, or none"
        )
    for result in results:
        if result is not None:
            check_kept(result)


def check_member(group: str, *, member: int, of: int) -> None:
    check_name(group, what="group")
    check_number(of, what="of", least=1, most=MAX_GROUP)
    check_number(member, what="member", least=0, most=of - 1)


def check_kept(data: bytes) -> None:
    if len(data) > MAX_RESULT_BYTES:
        raise TooLarge(
            f"a result has {len(data)} bytes; at most {MAX_RESULT_BYTES} are kept, so keep it elsewhere"
        )


def check_failures(failures: Sequence[Failure]) -> None:
    check_batch(failures)
    for failure in failures:
        check_message_id(failure.lease.message_id)
        if failure.delay_ms is not None:
            check_number(failure.delay_ms, what="delay_ms", least=0, most=MAX_DELAY_MS)


def check_message_ids(message_ids: Sequence[str]) -> None:
    check_batch(message_ids)
    for message_id in message_ids:
        check_message_id(message_id)


def check_priority(priority: int) -> None:
    check_number(priority, what="priority", least=0, most=MAX_PRIORITY)


def check_due(*, at_ms: int | None, delay_ms: int | None) -> None:
    """Check when a message shall be available: a time, or a delay from now."""
    if (at_ms is None) is (delay_ms is None):
        raise InvalidInput("reschedule needs `at_ms` or `delay_ms`; give one of them")
    if at_ms is not None:
        check_number(at_ms, what="at_ms", least=1, most=MAX_TIME_MS)
    if delay_ms is not None:
        check_number(delay_ms, what="delay_ms", least=0, most=MAX_DELAY_MS)


def check_shard(shard: int, *, shards: int) -> None:
    check_number(shard, what="shard", least=0, most=shards - 1)


def check_concurrency(concurrency: int | None) -> None:
    if concurrency is not None:
        check_number(concurrency, what="a concurrency limit", least=1, most=MAX_COUNT)


def check_spec(spec: QueueSpec) -> None:
    """Check the numbers of a spec that a broker acts on."""
    delivery, retention = spec.delivery, spec.retention
    check_concurrency(spec.concurrency)
    check_number(retention.message_age_ms, what="max_age_ms", least=1, most=MAX_SPAN_MS)
    if retention.max_depth is not None:
        check_number(retention.max_depth, what="max_depth", least=1, most=MAX_COUNT)
    check_number(delivery.max_attempts, what="max_attempts", least=1, most=MAX_COUNT)
    check_number(delivery.initial_backoff_ms, what="initial_backoff_ms", least=0, most=MAX_DELAY_MS)
    check_number(delivery.max_backoff_ms, what="max_backoff_ms", least=0, most=MAX_DELAY_MS)
    check_lease(delivery.lease_ms)
    if spec.message_ttl_ms is not None:
        check_number(spec.message_ttl_ms, what="message_ttl_ms", least=1, most=MAX_SPAN_MS)
    check_number(spec.idempotency_window_ms, what="idempotency_window_ms", least=0, most=MAX_SPAN_MS)
    check_number(spec.history, what="history", least=0, most=MAX_COUNT)
    if spec.log_ms is not None:
        check_number(spec.log_ms, what="log_ms", least=MIN_LOG_MS, most=MAX_SPAN_MS)
        if spec.history != 1:
            raise InvalidInput(log_needs_lives(spec.history))
    if not isinstance(delivery.jitter, int | float) or not 0 <= delivery.jitter <= 1:
        raise InvalidInput(f"jitter is {delivery.jitter!r:.40}; expected a number from 0 to 1")


def queue_unknown(queue: str) -> NotFound:
    return NotFound(f"there is no queue `{queue}` here; define it first")


def ordering_kept(queue: str) -> Conflict:
    """The refusal to change the ordering of a queue that holds messages."""
    return Conflict(f"the queue `{queue}` holds messages, so its ordering cannot change; drain it first")


def queue_in_use(queue: str, messages: int) -> Conflict:
    """The refusal to forget a queue that holds messages."""
    return Conflict(f"the queue `{queue}` still holds {amount(messages, 'message')}; drain it first")


def data_lost() -> BrokerUnavailable:
    """The refusal of every call on a Redis that has not the data that it had: nothing is done there."""
    return BrokerUnavailable(
        "this Redis lost its data, or is another one; bring the right one back, or accept the loss with "
        "`weir serve --new-epoch`",
        retry_after_s=5,
        refused=True,
    )


def call_given_up() -> BrokerUnavailable:
    """The refusal of a call without a name, which arrives behind a later call of its reply slot."""
    text = "the call was given up by its caller; it changes nothing"
    return BrokerUnavailable(text, refused=True)


def call_stale() -> CallStale:
    """The refusal of a named call that arrives behind a later call of its slot."""
    return CallStale("its slot has made a later `call`, so this one changes nothing; take the next number")


def call_reused() -> KeyReused:
    """The refusal of a named call that is known with other messages."""
    return KeyReused("this `call` was made with other messages; take the next number")
