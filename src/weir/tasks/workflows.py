"""Workflows: a chain of calls, and a group of calls with a callback once all are done.

A message of a workflow carries the calls that come after it, so any worker can go on with it. Apart from the
messages, only the set of a group's members that are done is stored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from weir.client.values import OutgoingMessage, PushResult, raise_refused
from weir.errors import Misconfigured
from weir.model.durations import SECOND_MS, to_optional_ms
from weir.model.ids import new_id
from weir.model.message_headers import TASK, WORKFLOW
from weir.tasks.app import App
from weir.tasks.backend import TaskBackend
from weir.tasks.context import CURRENT, TaskContext
from weir.tasks.handle import TaskHandle
from weir.tasks.task import PreparedCall, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlace:
    """Which member of a group a message is, and what comes after the group."""

    id: str
    member: int
    of: int
    then: dict[str, Any] | None = None
    failed: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Workflow:
    """What comes after a message: the rest of its chain, and then the group that it belongs to."""

    rest: tuple[dict[str, Any], ...] = ()
    group: GroupPlace | None = None

    def document(self) -> dict[str, Any]:
        group = None if self.group is None else {name: getattr(self.group, name) for name in _PLACE}
        return {"rest": list(self.rest), "group": group}

    @classmethod
    def of(cls, document: dict[str, Any]) -> Workflow:
        group = document.get("group")
        return cls(
            rest=tuple(document.get("rest") or ()), group=None if group is None else GroupPlace(**group)
        )


_PLACE = ("id", "member", "of", "then", "failed")


def unwrap(payload: bytes) -> tuple[bytes, Workflow]:
    """The arguments of a message of a workflow, and what comes after it."""
    document = json.loads(payload)
    return json.dumps(document["call"]).encode(), Workflow.of(document["workflow"])


def step_of(call: PreparedCall[Any], *, takes_result: bool) -> dict[str, Any]:
    """A call in the form in which an earlier message carries it."""
    options = call.options
    if options.idempotency_key is not None or options.deliver_at is not None:
        raise Misconfigured(
            f"the call of `{call.task.name}` has an `idempotency_key` or a `deliver_at`; a workflow makes "
            "its own keys, and begins when it is pushed, so leave them out"
        )
    # The workflow has keys of its own. With one given here, none is made and counted for this call.
    unkeyed = replace(options, idempotency_key="of the workflow")
    message = call.task.message(unkeyed, call.args, call.kwargs, partial=takes_result)
    return {
        "task": call.task.name,
        "queue": message.queue,
        "key": message.key,
        "headers": dict(options.headers),
        "priority": options.priority,
        "delay_ms": to_optional_ms(options.delay),
        "ttl_ms": to_optional_ms(options.ttl),
        "payload": json.loads(_bytes(message)),
        "into": call.task.arguments.first_missing(call.args, call.kwargs) if takes_result else None,
    }


def message_of(
    step: dict[str, Any], workflow: Workflow, *, key: str, result: bytes | None = None
) -> OutgoingMessage:
    """The message of a later call, with the result of the call before it."""
    payload = dict(step["payload"])
    if step.get("into") is not None:
        payload[step["into"]] = None if result is None else json.loads(result)
    plain = workflow == Workflow()
    wrapped = payload if plain else {"call": payload, "workflow": workflow.document()}
    return OutgoingMessage(
        queue=step["queue"],
        payload=json.dumps(wrapped).encode(),
        key=step.get("key"),
        headers={**step["headers"], TASK: step["task"]} | ({} if plain else {WORKFLOW: "1"}),
        priority=step["priority"],
        delay=_seconds(step["delay_ms"]),
        ttl=_seconds(step["ttl_ms"]),
        idempotency_key=key,
    )


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / SECOND_MS


async def go_on(backend: TaskBackend, workflow: Workflow, context: TaskContext, result: bytes) -> None:
    """Push what comes after a message that is done, before it is acked.

    If the worker dies in between, the next attempt does all of it again. The idempotency keys of these pushes
    make them take effect once.
    """
    if workflow.rest:
        step, *rest = workflow.rest
        message = message_of(
            step, replace(workflow, rest=tuple(rest)), key=f"{context.message_id}:next", result=result
        )
        await backend.push_message(message)
        return
    place = workflow.group
    if place is None or not await backend.finish_member(place.id, member=place.member, of=place.of):
        return
    if place.then is not None:
        await backend.push_message(message_of(place.then, Workflow(), key=f"group:{place.id}:then"))


class TaskChain:
    """Calls that run one after the other; `chain` makes it."""

    def __init__(self, calls: Sequence[PreparedCall[Any]]) -> None:
        if not calls:
            raise Misconfigured("a chain needs at least one call")
        self.calls = tuple(calls)
        self.id = _workflow_id(
            "chain", [step_of(call, takes_result=bool(at)) for at, call in enumerate(calls)]
        )

    def push(self) -> TaskHandle[Any]:
        """Push the first call; returns its handle."""
        message = self.message(None, key=f"chain:{self.id}")
        result = self._task.app.wait(lambda backend: backend.push_message(message))
        return self.calls[0].handle(message, result)

    async def apush(self) -> TaskHandle[Any]:
        """`push` for code with an event loop."""
        message = self.message(None, key=f"chain:{self.id}")
        return self.calls[0].handle(message, await self._task.app.backend().push_message(message))

    def message(self, group: GroupPlace | None, *, key: str) -> OutgoingMessage:
        """The message of the first call."""
        first, *rest = self.calls
        steps = tuple(step_of(call, takes_result=True) for call in rest)
        return message_of(step_of(first, takes_result=False), Workflow(rest=steps, group=group), key=key)

    @property
    def _task(self) -> Task[Any, Any]:
        return self.calls[0].task


class TaskGroup:
    """Calls that run side by side; `group` makes it. Pushing it again adds nothing."""

    def __init__(
        self,
        members: Sequence[TaskChain],
        *,
        then: PreparedCall[Any] | None,
        failed: PreparedCall[Any] | None,
    ) -> None:
        if not members:
            raise Misconfigured("a group needs at least one call")
        self._members = tuple(members)
        self._then = None if then is None else step_of(then, takes_result=False)
        self._failed = None if failed is None else step_of(failed, takes_result=False)
        self.id = _workflow_id("group", [[one.id for one in members], self._then, self._failed])

    def push(self) -> list[TaskHandle[Any]]:
        """Push every member; returns a handle per member."""
        messages = self._messages()
        return self._handles(messages, self._app.wait(lambda backend: backend.push_messages(messages)))

    async def apush(self) -> list[TaskHandle[Any]]:
        """`push` for code with an event loop."""
        messages = self._messages()
        return self._handles(messages, await self._app.backend().push_messages(messages))

    @property
    def _app(self) -> App:
        return self._members[0].calls[0].task.app

    def _messages(self) -> list[OutgoingMessage]:
        return [
            member.message(
                GroupPlace(
                    id=self.id, member=at, of=len(self._members), then=self._then, failed=self._failed
                ),
                key=f"group:{self.id}:{at}",
            )
            for at, member in enumerate(self._members)
        ]

    def _handles(self, messages: list[OutgoingMessage], results: list[PushResult]) -> list[TaskHandle[Any]]:
        for result in results:
            raise_refused(result)
        return [
            member.calls[0].handle(message, result)
            for member, message, result in zip(self._members, messages, results, strict=True)
        ]


def _workflow_id(kind: str, content: Any) -> str:
    """The id of a workflow. Made inside a task it is the same in each attempt, so its pushes happen once."""
    context = CURRENT.get()
    if context is None:
        return new_id()
    key = context.push_key(kind, json.dumps(content).encode())
    return hashlib.blake2b(key.encode(), digest_size=16, person=b"weir workflow").hexdigest()


def chain(*calls: PreparedCall[Any]) -> TaskChain:
    """Calls that run one after the other. The result of each is the first missing argument of the next.

    ```python
    chain(resize.call("a.png"), upload.call(bucket="images")).push()
    ```
    """
    return TaskChain(calls)


def group(
    calls: Sequence[PreparedCall[Any] | TaskChain],
    *,
    then: PreparedCall[Any] | None = None,
    failed: PreparedCall[Any] | None = None,
) -> TaskGroup:
    """Calls and chains that run side by side.

    ```python
    images = [resize.call("a.png"), resize.call("b.png")]
    group(images, then=report.call("all"), failed=report.call("some")).push()
    ```

    - `then`: called once, when every member is done.
    - `failed`: called once, when a member is dead. If that member is redriven and gets done, `then` is called
      nevertheless.
    """
    members = [one if isinstance(one, TaskChain) else TaskChain([one]) for one in calls]
    return TaskGroup(members, then=then, failed=failed)


def _bytes(message: OutgoingMessage) -> bytes:
    if not isinstance(message.payload, bytes):
        raise AssertionError("the payload of a task is bytes")
    return message.payload
