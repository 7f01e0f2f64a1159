"""Sends requests to several base URLs. Every request may be repeated, so retries are safe."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx2

from weir.client.errors import ApiError, Unreachable
from weir.client.options import ClientOptions
from weir.client.retry import pause_s, retry_after_s, worth_retrying


class Transport:
    """Sends to the base URL that answered last, and to the next one when it does not answer."""

    def __init__(self, options: ClientOptions, *, http: httpx2.AsyncClient | None = None) -> None:
        self._options = options
        self._http = http or httpx2.AsyncClient()
        self._is_own = http is None
        self._headers = _headers(options)
        self._at = 0

    async def send(
        self, method: str, path: str, *, body: Any = None, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """The JSON document of a 2xx answer; ApiError or Unreachable if no try gets one."""
        content = None if body is None else _encoded(body)
        failure: ApiError | Unreachable = Unreachable("no request was sent")
        for attempt in range(1, self._options.retry_attempts + 1):
            asked_s: float | None = None
            try:
                response = await self._once(method, path, content, timeout_s=timeout_s)
            except httpx2.TransportError as error:
                failure = Unreachable(f"`{self.base_url}` does not answer: {error or type(error).__name__}")
            else:
                if response.is_success:
                    return _document(response)
                asked_s = retry_after_s(response.headers)
                failure = _refusal(response, asked_s)
                if not worth_retrying(response.status_code, self._options):
                    raise failure
            # Also after a 429: another server may have room.
            self._next_url()
            if attempt < self._options.retry_attempts:
                await asyncio.sleep(pause_s(attempt, self._options, asked_s=asked_s))
        raise failure

    @property
    def base_url(self) -> str:
        return self._options.base_urls[self._at % len(self._options.base_urls)]

    def _next_url(self) -> None:
        self._at += 1

    async def _once(
        self, method: str, path: str, content: bytes | None, *, timeout_s: float | None
    ) -> httpx2.Response:
        kind = {} if content is None else {"content-type": "application/json"}
        return await self._http.request(
            method,
            self.base_url + path,
            content=content,
            # With every request: an HTTP client that the caller made does not have the token.
            headers=self._headers | kind,
            timeout=self._options.timeout_s if timeout_s is None else timeout_s,
        )

    async def aclose(self) -> None:
        """Close the connections. An HTTP client that the caller made stays open."""
        if self._is_own:
            await self._http.aclose()


def _headers(options: ClientOptions) -> dict[str, str]:
    headers = {"user-agent": "weir-python"}
    if options.token:
        headers["authorization"] = f"Bearer {options.token}"
    for name in ("organization", "project", "environment"):
        if (value := getattr(options, name)) is not None:
            headers[f"weir-{name}"] = quote(value, safe="")
    return headers


def _encoded(body: Any) -> bytes:
    """The body as JSON. A value without a JSON form, such as NaN, is refused before anything is sent."""
    return json.dumps(body, separators=(",", ":"), allow_nan=False, default=_plain).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form; send bytes, or a value of JSON")


def _refusal(response: httpx2.Response, asked_s: float | None) -> ApiError:
    after = None if asked_s is None else timedelta(seconds=asked_s)
    return ApiError(response.status_code, _document(response), retry_after=after)


def _document(response: httpx2.Response) -> dict[str, Any]:
    if not response.content:
        return {}
    try:
        document = json.loads(response.content)
    except ValueError:
        return {"detail": response.text[:200]}
    return document if isinstance(document, dict) else {"value": document}
