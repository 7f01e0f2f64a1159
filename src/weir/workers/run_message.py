"""Runs one message: calls its command, delivers it over HTTP, or puts it into the next queue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Executor
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

import httpx2
import orjson

from weir.broker.broker import Broker
from weir.control.secrets import SecretLookUp, values_of
from weir.errors import InvalidInput, NotFound, WeirError
from weir.lineage.children import ChildRecorder
from weir.model.clock import Clock
from weir.model.message import Delivery, Enqueue, NewMessage
from weir.model.parents import WORKING_ON
from weir.model.trace_context import trace_headers_of
from weir.outbound.delivery import DeliveryOutcome, DeliveryVerdict, OutboundRequest, deliver
from weir.outbound.delivery_log import DeliveryLog, DeliveryRecord
from weir.spec.cel import compile_mapping
from weir.spec.evaluation import evaluated, size_named
from weir.spec.ir import RESULT, DeliverTo, EnqueueTo, MapToCommand, QueueSpec
from weir.workers.commands import Command, Commands, Context
from weir.workers.handler_time import begin_handler_time
from weir.workers.outcome import (
    UNKNOWN_DELAY_MS,
    Ending,
    HandlerOutcome,
    done,
    failed,
    given_back,
    raised,
    rejected,
    timed_out,
    waiting,
)
from weir.workers.own_context import OwnContext
from weir.workers.pass_on import ChainedPushes, chain, chained_headers
from weir.workers.traced_run import trace_request, trace_run
from weir.workers.variables import inputs_of

if TYPE_CHECKING:
    from weir.tracing.tracer import Tracer

NO_VARIABLES: Mapping[str, Any] = MappingProxyType({})
# How long a message of a disabled endpoint waits that was claimed just before. Nobody claims it meanwhile.
DISABLED_DELAY_MS = 1_000


class TaskHandler(Protocol):
    """Runs the messages of queues without an action, which call tasks of an app."""

    async def run_delivery(self, delivery: Delivery) -> HandlerOutcome: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Everything that running a message may need."""

    broker: Broker
    commands: Commands
    clock: Clock
    secrets: SecretLookUp
    client: httpx2.AsyncClient
    log: DeliveryLog
    executor: Executor
    tracer: Tracer | None = None
    """Writes spans; None if this worker writes none."""
    children: ChildRecorder | None = None
    """Records the messages that `enqueue` chains from others; None if nobody asks for them."""
    tasks: TaskHandler | None = None


async def run(
    delivery: Delivery, spec: QueueSpec, tools: Tools, *, on_waiting: Callable[[], None] = lambda: None
) -> HandlerOutcome:
    """Run the queue's action for one message. `on_waiting` is called if the action has to wait for something.

    The action has context variables of its own. Nothing but a cancellation is raised.
    """
    acting = _act(delivery, spec, tools)
    traced = acting if tools.tracer is None else trace_run(acting, delivery, spec, tracer=tools.tracer)
    return await within(spec.delivery.handler_timeout_ms, traced, on_waiting=on_waiting)


async def within(
    timeout_ms: int | None,
    acting: Coroutine[Any, Any, HandlerOutcome],
    *,
    on_waiting: Callable[[], None] = lambda: None,
) -> HandlerOutcome:
    """Run an attempt within its time, with context variables of its own."""
    limit = begin_handler_time(timeout_ms)
    action = OwnContext(acting)
    if action.finished:
        return action.result
    on_waiting()
    if limit is None:
        return await action
    try:
        return await limit.bound(action)
    except TimeoutError:
        return timed_out(timeout_ms)


async def _act(delivery: Delivery, spec: QueueSpec, tools: Tools) -> HandlerOutcome:
    match spec.action:
        case MapToCommand() as action:
            return await _told(_command_and_more(delivery, spec, action, tools))
        case DeliverTo() as action:
            return await _told(_deliver(delivery, action, tools))
        case EnqueueTo() as action:
            return await _told(_enqueue(delivery, spec, action, tools))
        case None if tools.tasks is not None:
            return await _told(tools.tasks.run_delivery(delivery))
        case None:
            told = f"queue `{spec.name}` has no action any more"
            return given_back(told, delay_ms=UNKNOWN_DELAY_MS)


async def _command_and_more(
    delivery: Delivery, spec: QueueSpec, action: MapToCommand, tools: Tools
) -> HandlerOutcome:
    outcome = await _command(delivery, spec, action, tools)
    return await _pass_on(delivery, spec, action.then, outcome, tools)


async def _told(acting: Awaitable[HandlerOutcome]) -> HandlerOutcome:
    """The outcome of a step; an error of Weir becomes an outcome too."""
    try:
        return await acting
    except InvalidInput as error:
        return rejected(error.message)
    except WeirError as error:
        delay_ms = None if error.retry_after_s is None else int(error.retry_after_s * 1000)
        return failed(error.message, delay_ms=delay_ms)


async def _command(delivery: Delivery, spec: QueueSpec, action: MapToCommand, tools: Tools) -> HandlerOutcome:
    name = f"{action.entity}.{action.command}"
    environment = delivery.queue.scope
    command = tools.commands.find(name, environment=environment)
    if command is None:
        hint = tools.commands.hint(name, environment=environment)
        told = f"no command `{name}` is registered here; {hint}".rstrip("; ")
        return given_back(told, delay_ms=UNKNOWN_DELAY_MS)
    inputs = await _inputs(delivery, spec, action.inputs)
    context = _context(delivery, tools) if command.takes_context else None
    WORKING_ON.set(delivery.message_id)
    return await run_command(command, inputs, context, tools.executor)


async def _pass_on(
    delivery: Delivery, spec: QueueSpec, chain: EnqueueTo | None, outcome: HandlerOutcome, tools: Tools
) -> HandlerOutcome:
    """Pass the message on if its command is done. The outcome is then still the command's."""
    if chain is None or outcome.ending is not Ending.DONE:
        return outcome
    more = {RESULT: _json_form(outcome.result)} if chain.inputs else NO_VARIABLES
    passed = await _enqueue(delivery, spec, chain, tools, more)
    if passed.ending is Ending.WAITING:
        return waiting(passed.error, lambda: _told(_pass_on(delivery, spec, chain, outcome, tools)))
    return outcome if passed.ending is Ending.DONE else passed


async def _inputs(
    delivery: Delivery, spec: QueueSpec, inputs: Mapping[str, str], more: Mapping[str, Any] = NO_VARIABLES
) -> dict[str, Any]:
    named = tuple(inputs.items())
    compiled = compile_mapping(named)
    return await evaluated(
        inputs_of,
        named,
        delivery,
        spec.message_type,
        dict(more),
        compiled=compiled,
        size=len(delivery.payload)
        + size_named(compiled, {"message": delivery.headers})
        + (len(orjson.dumps(more[RESULT])) if more else 0),
        owner=delivery.queue.organization,
        what=f"the inputs of queue `{spec.name}`",
    )


def _context(delivery: Delivery, tools: Tools) -> Context:
    return Context(
        environment=delivery.queue.scope,
        queue=delivery.queue.queue,
        message_id=delivery.message_id,
        attempt=delivery.attempt,
        headers=delivery.headers,
        payload=delivery.payload,
        key=delivery.key,
        idempotency_key=delivery.idempotency_key,
        pushes=ChainedPushes.of(delivery, tools),
    )


async def run_command(
    command: Command, inputs: dict[str, Any], context: Context | None, executor: Executor
) -> HandlerOutcome:
    """Call a command, in a thread if it is synchronous. An exception of the command becomes an outcome.

    `context` may be None for a command that does not take it.
    """
    arguments = {**inputs, "context": context} if command.takes_context else inputs
    try:
        if command.is_async:
            return done(await command.handler(**arguments))
        # A thread does not inherit context variables: it gets the variables of this message here.
        call = partial(copy_context().run, partial(command.handler, **arguments))
        return done(await asyncio.get_running_loop().run_in_executor(executor, call))
    except asyncio.CancelledError:
        if context is not None:
            context.cancelled.set()
        raise
    except GeneratorExit:
        raise
    except BaseException as error:  # user code may raise anything, and must not end the worker
        return raised(error)


async def _deliver(delivery: Delivery, action: DeliverTo, tools: Tools) -> HandlerOutcome:
    scope, now_ms = delivery.queue.scope, tools.clock.now_ms()
    if tools.log.is_disabled(scope, action.url):
        # This message was claimed just before the endpoint was disabled. Later ones stay in the queue.
        return given_back(f"`{action.url}` is disabled", delay_ms=DISABLED_DELAY_MS)
    secrets = values_of(tools.secrets, scope, action.secrets)
    if action.secrets and not secrets:
        name = action.secrets[0]
        return failed(f"the secret `{name}` is not stored in this environment; `weir secret set {name}` does")
    request = OutboundRequest(
        url=action.url,
        body=delivery.payload,
        message_id=delivery.message_id,
        content_type=delivery.headers.get("content-type", "application/json"),
        secrets=secrets,
        timeout_ms=action.timeout_ms,
        headers=trace_headers_of(delivery.headers),
    )
    outcome = await _request(request, tools, now_ms=now_ms)
    tools.log.record(
        DeliveryRecord(
            queue=delivery.queue,
            message_id=delivery.message_id,
            attempt=delivery.attempt,
            url=action.url,
            sent_at_ms=now_ms,
            outcome=outcome,
        )
    )
    match outcome.verdict:
        case DeliveryVerdict.DELIVERED:
            return done({"status": outcome.status})
        case DeliveryVerdict.GONE:
            await tools.log.disable(scope, action.url, now_ms=now_ms, reason="the endpoint answered 410")
            return rejected(f"`{action.url}` answered 410 and is disabled")
        case DeliveryVerdict.REFUSED:
            return rejected(outcome.error or "the destination is refused")
        case DeliveryVerdict.RETRY:
            return failed(outcome.error or "the delivery failed", delay_ms=outcome.retry_after_ms)


async def _request(request: OutboundRequest, tools: Tools, *, now_ms: int) -> DeliveryOutcome:
    if tools.tracer is None:
        return await deliver(tools.client, request, now_ms=now_ms)
    return await trace_request(
        tools.tracer, request, lambda traced: deliver(tools.client, traced, now_ms=now_ms)
    )


async def _enqueue(
    delivery: Delivery,
    spec: QueueSpec,
    action: EnqueueTo,
    tools: Tools,
    more: Mapping[str, Any] = NO_VARIABLES,
) -> HandlerOutcome:
    """Put the message into the next queue, with its id as idempotency key: a second attempt adds nothing."""
    payload, headers = delivery.payload, delivery.headers
    if action.inputs:
        values = await _inputs(delivery, spec, action.inputs, more)
        payload = orjson.dumps(values, default=_plain)
        headers = {"content-type": "application/json", **trace_headers_of(delivery.headers)}
    message = NewMessage(
        payload=payload,
        headers=chained_headers(headers, delivery.message_id),
        key=delivery.key,
        # A message with this queue's default priority gets the next queue's default; others keep theirs.
        priority=None if delivery.priority == spec.priority else delivery.priority,
        idempotency_key=f"chain:{delivery.message_id}",
    )
    target = delivery.queue.scope.queue(action.queue)
    try:
        answer = await chain(target, message, delivery, tools)
    except NotFound as error:
        return failed(error.message)
    match answer.outcome:
        case Enqueue.ACCEPTED | Enqueue.DUPLICATE | Enqueue.KEY_REUSED:
            return done({"queue": action.queue, "message_id": answer.message_id})
        case Enqueue.FULL | Enqueue.GATED:
            told = f"queue `{action.queue}` takes nothing now"
            return waiting(told, lambda: _told(_enqueue(delivery, spec, action, tools, more)))


def _json_form(result: Any) -> Any:
    """The result of a command as expressions see it; InvalidInput if it has no JSON form."""
    try:
        return orjson.loads(orjson.dumps(result, default=_plain, option=orjson.OPT_NON_STR_KEYS))
    except TypeError as error:
        raise InvalidInput(f"the result of the command has no JSON form ({error})") from None


def _plain(value: Any) -> Any:
    """A value without a JSON form as text."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(value)
