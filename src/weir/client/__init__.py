"""The Python client of Weir: HTTP only, light to import.

from weir.client import AsyncWeir, Weir
"""

from __future__ import annotations

from weir.client.consumer import Consumer, Reject
from weir.client.core import AsyncWeir
from weir.client.errors import ApiError, ClientError, OperationFailed, OperationTimeout, Unreachable
from weir.client.options import ClientOptions, QueuedOperationBehavior
from weir.client.producer import Producer
from weir.client.sync import Weir
from weir.client.values import Operation, OutgoingMessage, PushResult, ReceivedMessage

__all__ = [
    "ApiError",
    "AsyncWeir",
    "ClientError",
    "ClientOptions",
    "Consumer",
    "Operation",
    "OperationFailed",
    "OperationTimeout",
    "OutgoingMessage",
    "Producer",
    "PushResult",
    "QueuedOperationBehavior",
    "ReceivedMessage",
    "Reject",
    "Unreachable",
    "Weir",
]
