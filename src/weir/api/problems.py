"""Errors of the tree as RFC 9457 problems; nothing else ever leaves the API as an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from starlette.responses import Response

from weir.api.wire import Reply
from weir.errors import (
    Forbidden,
    InvalidInput,
    Malformed,
    NotFound,
    Overloaded,
    TooLarge,
    Unauthenticated,
    Unavailable,
    UnsupportedMedia,
    WeirError,
)
from weir.model.problem_documents import problem, retry_after_s

MEDIA_TYPE = "application/problem+json"


class MethodNotAllowed(InvalidInput):
    """The route exists, but not for this method."""

    code = "method_not_allowed"
    title = "Method not allowed"
    status = 405


class HeadersTooLarge(InvalidInput):
    """The headers, or the trailers and chunk extensions, are over the stated limit."""

    code = "headers_too_large"
    title = "Request headers too large"
    status = 431


class TargetTooLong(InvalidInput):
    """Path and query are over the stated limit."""

    code = "target_too_long"
    title = "Request target too long"
    status = 414


class RequestTimeout(InvalidInput):
    """The request did not arrive in the stated time."""

    code = "request_timeout"
    title = "Request timeout"
    status = 408
    retryable = True


_BY_STATUS: dict[int, type[WeirError]] = {
    400: Malformed,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    413: TooLarge,
    415: UnsupportedMedia,
    422: InvalidInput,
    503: Unavailable,
}


def problem_headers(error: WeirError) -> dict[str, str]:
    """The headers that an error implies."""
    headers: dict[str, str] = {}
    if error.status in (429, 503):
        headers["retry-after"] = str(retry_after_s(error))
    if isinstance(error, Overloaded) and "quota" in error.extra:
        headers["ratelimit-policy"] = f'"operations";q={error.extra["quota"]};qu="requests"'
        headers["ratelimit"] = f'"operations";r=0;t={retry_after_s(error)}'
    if error.status == 401:
        headers["www-authenticate"] = 'Bearer realm="weir"'
    return headers


def problem_response(
    error: WeirError, *, instance: str | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """A whole response for an error."""
    return Response(
        orjson.dumps(problem(error, instance=instance), default=str),
        status_code=error.status,
        media_type=MEDIA_TYPE,
        headers={**problem_headers(error), **(headers or {})},
    )


def error_reply(error: WeirError, request_id: str) -> Reply:
    """A problem as a reply of the hot path."""
    headers = [(name.encode(), value.encode()) for name, value in problem_headers(error).items()]
    # A part of the request may be unread, so the connection cannot carry another request.
    if isinstance(error, TooLarge | RequestTimeout | Malformed):
        headers.append((b"connection", b"close"))
    body = orjson.dumps(problem(error, instance=request_id), default=str)
    return Reply(body=body, status=error.status, headers=tuple(headers), media_type=MEDIA_TYPE.encode())


def invalid(pointer: str, detail: str) -> InvalidInput:
    """A value that cannot be accepted, with its place in the body."""
    return InvalidInput(f"`{pointer}`: {detail}", errors=[{"pointer": pointer, "detail": detail}])


def from_validation(errors: Sequence[Any]) -> WeirError:
    """The error for parameters or a body that the framework found invalid."""
    places = [{"pointer": _pointer(item["loc"]), "detail": str(item["msg"])} for item in errors]
    first = places[0] if places else {"pointer": "#", "detail": "invalid"}
    message = f"`{first['pointer']}`: {first['detail']}"
    if any(item.get("type") == "json_invalid" for item in errors):
        return Malformed(f"the body is not valid JSON ({first['detail']})")
    return InvalidInput(message, errors=places)


def from_status(status: int, detail: str) -> WeirError:
    """The error for a status that the framework chose by itself."""
    kind = _BY_STATUS.get(status, WeirError if status >= 500 else InvalidInput)
    return kind(detail)


def _pointer(location: Sequence[Any]) -> str:
    parts = [str(part).replace("~", "~0").replace("/", "~1") for part in location]
    if parts[:1] == ["body"]:
        return "#/" + "/".join(parts[1:]) if len(parts) > 1 else "#"
    return "/".join(parts)
