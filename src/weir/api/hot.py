"""The hot path: plain ASGI endpoints without a framework between them and the socket.

An endpoint is `async def (HotRequest) -> Reply`. Authentication is its first line, so that nothing is read or
parsed for a stranger. Then it reads its body, or calls `enter` if it has none: either takes the request slot.
It raises errors of the tree, which the edge turns into problems.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from starlette.types import Receive, Scope

from weir.admission.kinds import OperationType
from weir.api.auth import Access, access, authenticate, token_text
from weir.api.bodies import check_is_json, check_json_type, read_body
from weir.api.idempotency import KEY_HEADER, header_key
from weir.api.limits import Limits
from weir.api.services import Services
from weir.api.wire import PRINCIPAL, Reply, RequestSlot, note_principal
from weir.control.principals import Principal, Role
from weir.errors import InvalidInput, Malformed
from weir.model.beside_loop import LARGE_BYTES, beside_loop
from weir.model.holders import HOLDER
from weir.model.message import parse_json


@dataclass(frozen=True, slots=True, kw_only=True)
class HotRequest:
    """One request to the hot path."""

    services: Services
    scope: Scope
    receive: Receive
    headers: Mapping[str, str]
    request_id: str
    slot: RequestSlot
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Parts of the path, still percent-encoded; `decoded` decodes one."""

    async def access(self, role: Role) -> Access:
        principal: Principal | None = self.scope.get(PRINCIPAL)
        if principal is None:
            principal = await authenticate(self.headers, self.services.authenticator)
        note_principal(self.scope, principal)
        return access(principal, self.headers, self.services, role=role)

    def admit(self, kind: OperationType) -> None:
        """Refuse the request with 429 before its body is read, if this process has no room for it."""
        if self.services.operations is not None:
            self.services.operations.overflow.admit(kind, HOLDER.get())

    def idempotency_key(self) -> str | None:
        """The key of its `Idempotency-Key` header."""
        return header_key(self.headers) if KEY_HEADER in self.headers else None

    async def body(self, limits: Limits | None = None) -> bytes:
        """The whole body; the request takes its slot when the last byte has arrived."""
        body = await read_body(self.headers, self.receive, limits or self.services.limits)
        self.slot.take()
        return body

    def enter(self) -> None:
        """Take the slot of a request without a body."""
        self.slot.take()

    async def json_body(self) -> tuple[bytes, dict[str, Any]]:
        """The body as it was sent, and its JSON object."""
        check_json_type(self.headers)
        body = await self.body()
        large = len(body) >= LARGE_BYTES
        document = await beside_loop(self._parse, len(body), body) if large else self._parse(body)
        if not isinstance(document, dict):
            raise InvalidInput(
                "the body is not a JSON object", errors=[{"pointer": "#", "detail": "not an object"}]
            )
        return body, document

    def watching_token(self) -> AbstractContextManager[asyncio.Event]:
        """An event that is set when the token of this request ends, while it waits."""
        services = self.services
        return services.open_requests.watching(services.authenticator, token_text(self.headers))

    async def check_token(self) -> None:
        """Raise if the token of this request has ended while it waited."""
        await authenticate(self.headers, self.services.authenticator)

    def _parse(self, body: bytes) -> Any:
        check_is_json(self.headers, body)
        return parse_json(body)

    async def wait_for_disconnect(self) -> None:
        """Wait until the client leaves."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    def query(self) -> dict[str, str]:
        """The query parameters. A parameter that stands twice is refused."""
        raw: bytes = self.scope.get("query_string", b"")
        if not raw:
            return {}
        try:
            pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=50)
        except ValueError:
            raise Malformed("the query string is not percent-encoded UTF-8") from None
        found = dict(pairs)
        if len(found) != len(pairs):
            raise InvalidInput("a query parameter stands twice; send each once")
        return found


Endpoint = Callable[[HotRequest], Awaitable[Reply]]


@dataclass(frozen=True, slots=True, kw_only=True)
class HotRoute:
    """A path, at most one `{name}` in it, and its endpoint by method."""

    path: str
    endpoints: Mapping[str, Endpoint]
    poll: bool = False
    """Its requests wait by design, so they count against the limit of long polls."""
    elsewhere: tuple[str, ...] = ()
    """Methods of this path that the control plane answers."""


class HotRoutes:
    """Finds a route by one look-up, or by the fixed text around its parameter."""

    def __init__(self, routes: tuple[HotRoute, ...]) -> None:
        self._fixed = {route.path: route for route in routes if "{" not in route.path}
        self._open = [(route, _split(route.path)) for route in routes if "{" in route.path]

    def find(self, path: str) -> tuple[HotRoute, Mapping[str, str]] | None:
        """The route for a raw path, and its parameters, which are still percent-encoded."""
        route = self._fixed.get(path)
        if route is not None:
            return route, {}
        for route, (prefix, name, suffix) in self._open:
            if inside := _inside(path, prefix, suffix):
                return route, {name: inside}
        return None


class PathTemplates:
    """Paths, each with at most one `{name}` in it."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._fixed = frozenset(path for path in paths if "{" not in path)
        self._open = [_split(path) for path in paths if "{" in path]

    def match(self, path: str) -> bool:
        """Whether a raw path is one of these."""
        return path in self._fixed or any(_inside(path, prefix, suffix) for prefix, _, suffix in self._open)


def decoded(text: str) -> str:
    """One percent-encoded part of a path."""
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        raise Malformed("the path is not percent-encoded UTF-8") from None


def _split(path: str) -> tuple[str, str, str]:
    """The text before the parameter of a path, the parameter's name, and the text behind it."""
    prefix, _, rest = path.partition("{")
    name, _, suffix = rest.partition("}")
    return prefix, name, suffix


def _inside(path: str, prefix: str, suffix: str) -> str:
    """The part of a path between two fixed texts; empty if they do not match, or if the part has a `/`."""
    inside = path[len(prefix) : len(path) - len(suffix)]
    return inside if path.startswith(prefix) and path.endswith(suffix) and "/" not in inside else ""
