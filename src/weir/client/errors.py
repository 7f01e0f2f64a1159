"""What a client raises; everything else that can go wrong is a bug."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ClientError(Exception):
    """The root."""


class ApiError(ClientError):
    """The server refused. `code` is stable; `problem` is the whole RFC 9457 document."""

    def __init__(
        self, status: int, problem: Mapping[str, Any], *, retry_after_s: float | None = None
    ) -> None:
        self.status = status
        self.problem = dict(problem)
        self.code = str(problem.get("code", "unknown"))
        self.retry_after_s = retry_after_s
        super().__init__(f"{status} {self.code}: {problem.get('detail', 'the server refused')}")


class Unreachable(ClientError):
    """No base URL answered in as many tries as allowed."""


class OperationFailed(ClientError):
    """A queued operation ended without taking effect."""

    def __init__(self, operation_id: str, status: str, error: str | None) -> None:
        self.operation_id = operation_id
        self.status = status
        super().__init__(f"the operation `{operation_id}` is {status}: {error or 'no reason given'}")


class OperationTimeout(ClientError):
    """A queued operation did not end in the time that the caller would wait. It is still queued."""

    def __init__(self, operation_id: str, waited_s: float) -> None:
        self.operation_id = operation_id
        super().__init__(f"the operation `{operation_id}` is still queued after {waited_s:g} s")
