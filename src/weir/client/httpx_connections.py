"""Connections of an HTTP client that the caller made, or of httpx2 where proxies and the like are needed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from weir.client.http1 import ConnectionFailed, HttpAnswer, HttpRequest
from weir.client.places import MAX_CONNECTIONS, Places


class HttpResponse(Protocol):
    """The parts of a response that are read."""

    @property
    def status_code(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]: ...
    @property
    def content(self) -> bytes: ...


class HttpClient(Protocol):
    """The value of `http=`: an `httpx2.AsyncClient`, or anything that sends requests like it."""

    async def request(
        self, method: str, url: str, *, content: bytes | None, headers: dict[str, str], timeout: float
    ) -> HttpResponse: ...
    async def aclose(self) -> None: ...


class HttpxConnections:
    """`Connections` over an HTTP client that was given, or over one of its own."""

    def __init__(self, http: HttpClient | None, headers: Mapping[str, str]) -> None:
        self._is_own = http is None
        self._http = new_http_client() if http is None else http
        self._headers = dict(headers)
        self._places = Places()

    async def exchange(self, base_url: str, request: HttpRequest, *, timeout_s: float) -> HttpAnswer:
        self._places.enter_loop()
        return await self._places.run(
            request.kind, lambda: self._exchange(base_url, request, timeout_s), timeout_s=timeout_s
        )

    async def _exchange(self, base_url: str, request: HttpRequest, timeout_s: float) -> HttpAnswer:
        kind = {} if request.content is None else {"content-type": "application/json"}
        if request.if_match is not None:
            kind["if-match"] = f'"{request.if_match}"'
        try:
            response = await self._http.request(
                request.method,
                base_url + request.path,
                content=request.content,
                # With every request: an HTTP client that the caller made does not have the token.
                headers=self._headers | kind,
                timeout=timeout_s,
            )
        except Exception as error:
            if not is_of_the_network(error):
                raise
            raise ConnectionFailed(str(error) or type(error).__name__) from None
        if len(response.content) > request.most_bytes:
            raise ConnectionFailed(f"the answer is over {request.most_bytes} bytes")
        return HttpAnswer(status=response.status_code, headers=response.headers, body=response.content)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def aclose(self) -> None:
        """Close the HTTP client, unless the caller made it."""
        if self._is_own:
            await self._http.aclose()


def new_http_client() -> HttpClient:
    # Imported here, because it takes longer than everything else of the client together.
    import httpx2

    # The places bound the requests. A bound of its own would let long polls take the connections of others.
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=MAX_CONNECTIONS)
    return httpx2.AsyncClient(limits=limits)


def is_of_the_network(error: Exception) -> bool:
    """Whether a request got no answer, by the name of the error: the caller's library need not be httpx2."""
    return isinstance(error, OSError) or any(one.__name__ == "TransportError" for one in type(error).__mro__)
