"""The record of one call of a Django task: what was asked, and what its attempts came to.

It travels as JSON. The payload of the message says what was asked. The record with the attempts is told as
the progress of the message, and is its result when it is done. So Django's result of a task can be made from
what Weir keeps with the message.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

from weir.contrib.django.interface import TaskError, TaskResult, TaskResultStatus
from weir.model.ids import id_time_ms
from weir.model.limits import MAX_RESULT_BYTES

RECORD = "weir-django"
"""The member that marks a record, because other programs keep other values. Its value is the version."""
MAX_TRACEBACK = 4_000
MAX_TRACEBACK_BYTES = MAX_RESULT_BYTES // 2
"""As JSON. The other half is for the rest of the record."""
MAX_NAME = 500
UNKNOWN_WORKER = "unknown"
"""Stands for a worker that died, so that its attempt left no record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DjangoCall:
    """What was asked: the payload of a message."""

    args: list[Any]
    kwargs: dict[str, Any]
    priority: int = 0
    run_after: str | None = None
    id: str | None = None
    """The id of the result, if it differs from the id of the message."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> DjangoCall:
        return cls(**{one.name: document[one.name] for one in fields(cls) if one.name in document})

    def document(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    def moment(self) -> datetime | None:
        """The earliest time that the task may run."""
        return None if self.run_after is None else datetime.fromisoformat(self.run_after)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRecord:
    """One call and its attempts so far."""

    task: str
    """The module path of the function."""
    queue: str
    call: DjangoCall
    worker_ids: tuple[str, ...] = ()
    errors: tuple[tuple[str, str], ...] = ()
    """The class of each error and its traceback."""
    started_ms: int | None = None
    attempted_ms: int | None = None
    finished_ms: int | None = None
    value: Any = None

    @classmethod
    def of(cls, document: Any) -> CallRecord | None:
        """The record that is kept with a message; None if the kept value is not a record."""
        if not isinstance(document, dict) or document.get(RECORD) != 1:
            return None
        known = {one.name: document[one.name] for one in fields(cls) if one.name in document}
        known |= {
            "call": DjangoCall.of(document["call"]),
            "worker_ids": tuple(document["worker_ids"]),
            "errors": tuple((name, text) for name, text in document["errors"]),
        }
        return cls(**known)

    def document(self) -> dict[str, Any]:
        """The record as JSON. If it is too large to keep, it loses what matters least, and its value never.

        These are the arguments, the oldest errors, the names of the oldest workers, the last error, and then
        the oldest attempts.
        """
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        found = {RECORD: 1, **own, "call": self.call.document()}
        if _size(found) > MAX_RESULT_BYTES:
            found["call"] = replace(self.call, args=[], kwargs={}).document()
        while _size(found) > MAX_RESULT_BYTES and len(found["errors"]) > 1:
            found["errors"] = found["errors"][1:]
        if _size(found) > MAX_RESULT_BYTES:
            found["worker_ids"] = (*(UNKNOWN_WORKER,) * (len(self.worker_ids) - 1), *self.worker_ids[-1:])
        if _size(found) > MAX_RESULT_BYTES:
            found["errors"] = ()
        while _size(found) > MAX_RESULT_BYTES and len(found["worker_ids"]) > 1:
            found["worker_ids"] = found["worker_ids"][len(found["worker_ids"]) // 2 :]
        return found

    def attempted(self, worker_id: str, *, attempt: int, now_ms: int) -> CallRecord:
        """The record with an attempt that begins. Earlier attempts that left no record are counted too."""
        missing = (UNKNOWN_WORKER,) * (attempt - 1 - len(self.worker_ids))
        return replace(
            self,
            worker_ids=(*self.worker_ids, *missing, worker_id)[-attempt:],
            started_ms=now_ms if self.started_ms is None else self.started_ms,
            attempted_ms=now_ms,
            finished_ms=None,
        )

    def failed(self, error: BaseException, *, now_ms: int) -> CallRecord:
        return replace(self, errors=(*self.errors, _told(error)), finished_ms=now_ms)

    def done(self, value: Any, *, now_ms: int) -> CallRecord:
        """The record with the value that the function returned; ValueError if it is too large to be kept."""
        done = replace(self, value=value, finished_ms=now_ms)
        size = _size(done.document())
        if size > MAX_RESULT_BYTES:
            raise ValueError(
                f"the return value takes {size} bytes, and at most {MAX_RESULT_BYTES} are kept; store it and "
                "return where it is"
            )
        return done

    def result(self, result_id: str, status: Any, *, task: Any) -> Any:
        """The result as Django shows it. `task` is the task that was enqueued, with its options."""
        waits = status in (TaskResultStatus.READY, TaskResultStatus.RUNNING)
        found = TaskResult(
            task=task,
            id=result_id,
            status=status,
            enqueued_at=_moment(enqueued_ms(result_id)),
            started_at=_moment(self.started_ms),
            last_attempted_at=_moment(self.attempted_ms),
            finished_at=None if waits else _moment(self.finished_ms),
            args=self.call.args,
            kwargs=self.call.kwargs,
            backend=task.backend,
            errors=[TaskError(exception_class_path=name, traceback=text) for name, text in self.errors],
            worker_ids=list(self.worker_ids),
        )
        # Django's constructor does not take the value.
        object.__setattr__(found, "_return_value", self.value)
        return found


def enqueued_ms(result_id: str) -> int:
    """When a task was enqueued: the id of its result ends with a UUIDv7, which has the time."""
    return id_time_ms(result_id[-36:])


def _size(document: Mapping[str, Any]) -> int:
    return len(json.dumps(document).encode())


def _told(error: BaseException) -> tuple[str, str]:
    kind = type(error)
    text = "".join(traceback.format_exception(error))[-MAX_TRACEBACK:]
    # A letter beyond ASCII takes six bytes or twelve.
    while len(json.dumps(text)) > MAX_TRACEBACK_BYTES:
        text = text[len(text) // 8 + 1 :]
    return f"{kind.__module__}.{kind.__qualname__}"[-MAX_NAME:], text


def _moment(at_ms: int | None) -> datetime | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1_000, UTC)
