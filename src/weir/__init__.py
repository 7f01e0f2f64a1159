"""Weir: a message queue that you can see through.

```python
from weir import Weir

with Weir("http://127.0.0.1:8420", token="weir_…") as weir:
    weir.push("orders", {"order": 42})
```

The names below belong to the client and to tasks. Each is loaded at its first use, so that importing another
part of Weir loads no HTTP client. Commands of specs are written with `weir.worker`, tests with
`weir.testing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weir.model.lazy import lazy_names

if TYPE_CHECKING:
    from weir.client.consumer import Consumer
    from weir.client.core import AsyncWeir
    from weir.client.errors import (
        ApiError,
        ClientError,
        OperationFailed,
        OperationTimeout,
        ProducerFull,
        Unreachable,
    )
    from weir.client.logs import LogMessage, LogReplay
    from weir.client.outcomes import MessageOutcome
    from weir.client.producer import Producer
    from weir.client.sync import Weir
    from weir.client.values import Operation, OutgoingMessage, PushResult, ReceivedMessage
    from weir.model.handling import Reject, Retry
    from weir.tasks.app import App
    from weir.tasks.context import TaskContext
    from weir.tasks.handle import ResultNotKept, ResultTimeout, TaskFailed, TaskHandle
    from weir.tasks.workflows import chain, group

__version__ = "0.1.0"

__all__ = [
    "ApiError",
    "App",
    "AsyncWeir",
    "ClientError",
    "Consumer",
    "LogMessage",
    "LogReplay",
    "MessageOutcome",
    "Operation",
    "OperationFailed",
    "OperationTimeout",
    "OutgoingMessage",
    "Producer",
    "ProducerFull",
    "PushResult",
    "ReceivedMessage",
    "Reject",
    "ResultNotKept",
    "ResultTimeout",
    "Retry",
    "TaskContext",
    "TaskFailed",
    "TaskHandle",
    "Unreachable",
    "Weir",
    "chain",
    "group",
]

_HOMES = {
    "ApiError": "client.errors",
    "App": "tasks.app",
    "AsyncWeir": "client.core",
    "ClientError": "client.errors",
    "Consumer": "client.consumer",
    "LogMessage": "client.logs",
    "LogReplay": "client.logs",
    "MessageOutcome": "client.outcomes",
    "Operation": "client.values",
    "OperationFailed": "client.errors",
    "OperationTimeout": "client.errors",
    "OutgoingMessage": "client.values",
    "Producer": "client.producer",
    "ProducerFull": "client.errors",
    "PushResult": "client.values",
    "ReceivedMessage": "client.values",
    "Reject": "model.handling",
    "ResultNotKept": "tasks.handle",
    "ResultTimeout": "tasks.handle",
    "Retry": "model.handling",
    "TaskContext": "tasks.context",
    "TaskFailed": "tasks.handle",
    "TaskHandle": "tasks.handle",
    "Unreachable": "client.errors",
    "Weir": "client.sync",
    "chain": "tasks.workflows",
    "group": "tasks.workflows",
}
"""Public name -> the module that defines it."""

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names("weir", _HOMES)
