"""The exceptions that the client raises because of the server or the network.

For mistakes of the caller it raises Python's own, such as ValueError.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from weir.errors import WeirError
from weir.model.problem_documents import problem


class ClientError(Exception):
    """Everything that the client raises because of the server or the network.

    ```python
    try:
        weir.push("orders", {"order": 42})
    except ClientError as error:
        print(error)
    ```
    """


class ApiError(ClientError):
    """The server refused.

    `status` is the HTTP status, `code` a stable word such as `not_found`, and `problem` the whole RFC 9457
    document. `retry_after` is the pause that the server asks for; None if it asks for none.

    ```python
    try:
        weir.push("no such queue", {"order": 42})
    except ApiError as error:
        print(error.status, error.code)
    ```
    """

    def __init__(
        self, status: int, problem: Mapping[str, Any], *, retry_after: timedelta | None = None
    ) -> None:
        self.status = status
        self.problem = dict(problem)
        self.code = str(problem.get("code", "unknown"))
        self.retry_after = retry_after
        super().__init__(f"{status} {self.code}: {problem.get('detail', 'the server refused')}")

    @property
    def can_pass(self) -> bool:
        """Whether the same request may succeed later: the server is busy, full or failing."""
        return self.status == 429 or self.status >= 500


def to_api_error(error: WeirError) -> ApiError:
    """The error that a client gets if the API answers with this one."""
    document = problem(error)
    after = document.get("retry_after")
    return ApiError(error.status, document, retry_after=None if after is None else timedelta(seconds=after))


class Unreachable(ClientError):
    """No base URL answered in `retry_attempts` tries.

    ```python
    with Weir("http://127.0.0.1:1", retry_attempts=1) as nowhere:
        try:
            nowhere.push("orders", {"order": 42})
        except Unreachable as error:
            print(error)
    ```
    """


class ProducerFull(ClientError):
    """`Producer.submit` was called while `max_waiting` messages had no answer. Await `push` or `flush`.

    ```python
    async with Producer(weir, max_waiting=100) as producer:
        try:
            producer.submit("orders", {"order": 42})
        except ProducerFull:
            await producer.flush()
    ```
    """


class OperationFailed(ClientError):
    """A queued operation ended without taking effect.

    ```python
    try:
        await weir.wait_for_operation(operation_id)
    except OperationFailed as error:
        print(error.status)
    ```
    """

    def __init__(self, operation_id: str, status: str, error: str | None) -> None:
        self.operation_id = operation_id
        self.status = status
        super().__init__(f"the operation `{operation_id}` is {status}: {error or 'no reason given'}")


class OperationTimeout(ClientError):
    """A queued operation did not end within the caller's timeout. It is still queued.

    ```python
    try:
        await weir.wait_for_operation(operation_id, timeout=60)
    except OperationTimeout as error:
        await weir.cancel_operation(error.operation_id)
    ```
    """

    def __init__(self, operation_id: str, waited_s: float) -> None:
        self.operation_id = operation_id
        super().__init__(f"the operation `{operation_id}` is still queued after {waited_s:g} s")
