"""Sends requests to several base URLs. Every request may be repeated, so retries are safe."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import timedelta
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from weir.client.base_url import lean_base_urls
from weir.client.encoding import decode, encode_quickly
from weir.client.errors import ApiError, Unreachable
from weir.client.http1 import (
    MAX_ANSWER_BYTES,
    ConnectionFailed,
    Connections,
    HttpAnswer,
    HttpRequest,
    RequestKind,
)
from weir.client.httpx_connections import HttpClient, HttpxConnections
from weir.client.loop_connections import LoopConnections
from weir.client.options import ClientOptions
from weir.client.retry import pause_s, retry_after_s, worth_retrying

Content = Callable[[], bytes]
"""Makes the body of a request, anew for each try."""


def loop_connections(options: ClientOptions, http: HttpClient | None = None) -> Connections:
    """Connections for an event loop: of the caller's HTTP client, or lean ones where these are enough."""
    lean = None if http is not None else lean_base_urls(options.base_urls)
    if lean is None:
        return HttpxConnections(http, common_headers(options))
    return LoopConnections(lean, common_headers(options))


class Transport:
    """Sends to the base URL that answered last, and to the next one if that one does not answer."""

    def __init__(self, options: ClientOptions, *, connections: Connections | None = None) -> None:
        self._options = options
        self._connections = connections or loop_connections(options)
        self._at = 0

    async def send(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content: Content | None = None,
        timeout_s: float | None = None,
        most_bytes: int = MAX_ANSWER_BYTES,
        kind: RequestKind = RequestKind.ORDINARY,
        meanwhile: Callable[[], None] | None = None,
        final: Collection[str] = (),
        attempts: int | None = None,
        member: str = "",
        if_match: str | None = None,
    ) -> dict[str, Any]:
        """The JSON document of a 2xx answer; ApiError or Unreachable if no try gets one.

        `member` is a member that every such answer has. Without it, the answer is not one of Weir.

        `body` is a value to encode. `content` replaces it: it makes the encoded bytes anew for each try.
        `meanwhile` may be called while an answer is on its way, once per try or never. Refusals with a code
        in `final` are raised at once. `attempts` is the number of tries; by default the options say it.
        `if_match` is the revision that a change was made from: 409 if another change came first.
        """
        attempts = self._options.retry_attempts if attempts is None else attempts
        encoded = None if body is None else encode_quickly(body)
        timeout_s = self._options.timeout_s if timeout_s is None else timeout_s
        failure: ApiError | Unreachable = Unreachable("no request was sent")
        for attempt in range(1, attempts + 1):
            request = HttpRequest(
                method=method,
                path=path,
                content=encoded if content is None else content(),
                most_bytes=most_bytes,
                kind=kind,
                meanwhile=meanwhile,
                if_match=if_match,
            )
            asked_s: float | None = None
            base_url = self.base_url
            try:
                answer = await self._connections.exchange(base_url, request, timeout_s=timeout_s)
            except ConnectionFailed as error:
                failure = Unreachable(f"`{base_url}` does not answer: {error}")
                if error.stale:
                    # The server is there, only this connection is not: the next try may follow at once.
                    continue
            else:
                if 200 <= answer.status < 300:
                    document = _weirs_document(answer, member)
                    if document is not None:
                        return document
                    failure = Unreachable(
                        f"the answer of `{base_url}` is not one of Weir; does something else answer there?"
                    )
                else:
                    asked_s = retry_after_s(answer.headers)
                    failure = refusal(answer, asked_s)
                    if failure.code in final or not worth_retrying(answer.status, self._options):
                        raise failure
            # Also after a 429: another server may have room.
            self._next_url()
            if attempt < attempts:
                await self._connections.sleep(pause_s(attempt, self._options, asked_s=asked_s))
        raise failure

    @property
    def base_url(self) -> str:
        return self._options.base_urls[self._at % len(self._options.base_urls)]

    def _next_url(self) -> None:
        self._at += 1

    async def sleep(self, seconds: float) -> None:
        """Pause as the connections do: blocking ones block."""
        await self._connections.sleep(seconds)

    async def aclose(self) -> None:
        """Close the connections. An HTTP client that the caller made stays open."""
        await self._connections.aclose()


def common_headers(options: ClientOptions) -> dict[str, str]:
    """The headers of every request."""
    headers = {"user-agent": "weir-python"}
    if options.token:
        headers["authorization"] = f"Bearer {options.token}"
    for name in ("organization", "project", "environment"):
        if (value := getattr(options, name)) is not None:
            headers[f"weir-{name}"] = quote(value, safe="")
    return headers


def refusal(answer: HttpAnswer, asked_s: float | None) -> ApiError:
    """The error of an answer that is not 2xx, with the pause that the server asked for."""
    after = None if asked_s is None else timedelta(seconds=asked_s)
    return ApiError(answer.status, _document(answer), retry_after=after)


def _weirs_document(answer: HttpAnswer, member: str) -> dict[str, Any] | None:
    """The object of a 2xx answer; None if it is not Weir's, such as the page of a proxy."""
    if answer.status == HTTPStatus.NO_CONTENT:
        return {}
    try:
        document = decode(answer.body)
    except ValueError:
        return None
    return document if isinstance(document, dict) and (not member or member in document) else None


def _document(answer: HttpAnswer) -> dict[str, Any]:
    if not answer.body:
        return {}
    try:
        document = decode(answer.body)
    except ValueError:
        return {"detail": answer.body.decode("utf-8", "replace")[:200]}
    return document if isinstance(document, dict) else {"value": document}
