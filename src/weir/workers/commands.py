"""Commands: Python callables, registered by the name that a spec maps messages to; `weir.worker` shows them.

Inputs come as keyword arguments, and a parameter named `context` gets the `Context` of the message.
Synchronous callables run in threads. If the message has an idempotency key, the result of its command is kept
under that key.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

from weir.errors import Misconfigured
from weir.model.durations import Duration
from weir.model.names import EnvironmentRef
from weir.spec.spec_problems import nearest

if TYPE_CHECKING:
    from weir.workers.pass_on import ChainedPushes

Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The message that a command works on.

    ```python
    @app.command("Order.ShipOrder")
    async def ship(order: int, context: Context) -> dict[str, int]:
        return {"order": order, "attempt": context.attempt}
    ```
    """

    environment: EnvironmentRef
    queue: str | None
    """None if the command runs at once for a webhook without a queue."""
    message_id: str
    attempt: int
    headers: Mapping[str, str]
    payload: bytes
    key: str | None = None
    idempotency_key: str | None = None
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    """Set when the attempt is over before its handler: its message was cancelled, its lease was lost, its
    time is up or the worker stops. A synchronous handler checks this event or waits for it, because nothing
    can stop a thread. An asynchronous handler is cancelled as well."""
    pushes: ChainedPushes | None = field(default=None, repr=False, compare=False)
    """None if the command runs at once for a webhook without a queue."""

    async def apush(
        self,
        queue: str,
        payload: Any,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
    ) -> str:
        """Put a message into another queue of the environment; returns its id.

        ```python
        @app.command("Order.ShipOrder")
        async def ship(order: int, context: Context) -> None:
            await context.apush("mails", {"order": order}, delay=60)
        ```

        The same push in another attempt adds nothing, and the new message knows this one as its parent. Bytes
        go as they are; any other payload goes as JSON. If the queue is full, the attempt is retried.
        """
        return await self._chained().push(
            queue, payload, key=key, headers=headers, priority=priority, delay=delay
        )

    def push(
        self,
        queue: str,
        payload: Any,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        priority: int | None = None,
        delay: Duration | None = None,
    ) -> str:
        """`apush` for synchronous commands.

        ```python
        @app.command("Order.ShipOrder")
        def ship(order: int, context: Context) -> None:
            context.push("mails", {"order": order}, delay=60)
        ```
        """
        loop = self._chained().loop
        if threading.get_ident() == self._chained().thread_id:
            raise RuntimeError("this command is asynchronous; use `await context.apush(…)`")
        pushing = self.apush(queue, payload, key=key, headers=headers, priority=priority, delay=delay)
        return asyncio.run_coroutine_threadsafe(pushing, loop).result()

    def _chained(self) -> ChainedPushes:
        if self.pushes is None:
            raise RuntimeError("a command of a webhook without a queue cannot push; give the webhook a queue")
        return self.pushes


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A registered callable."""

    name: str
    handler: Handler
    is_async: bool
    takes_context: bool
    only: tuple[tuple[str, ...], ...] = ()
    """The scopes whose specs may name it; empty: every one."""

    def serves(self, environment: EnvironmentRef) -> bool:
        """Whether a spec of this environment may name it."""
        return not self.only or any(environment.names[: len(scope)] == scope for scope in self.only)


@dataclass(slots=True)
class Commands:
    """The registry of commands: `weir worker --app module:app` takes the one named `app`.

    A spec of any tenant may name a command, unless `only` says whose: an organization, or also a project and
    an environment of it. `Commands(only=…)` says it for all that are registered there.

    ```python
    app = Commands()


    @app.command("Order.ShipOrder")
    def ship(order: int) -> dict[str, int]:
        return {"order": order}
    ```
    """

    registered: dict[str, Command] = field(default_factory=dict)
    only: Sequence[Sequence[str]] = ()

    def command(self, name: str, *, only: Sequence[Sequence[str]] = ()) -> Callable[[H], H]:
        """Register a function under the name `Entity.Command`, which specs map messages to.

        ```python
        @app.command("Order.ShipOrder")
        def ship(order: int) -> None: ...


        @app.command("Order.Refund", only=[("acme",), ("globex", "shop", "production")])
        def refund(order: int) -> None: ...
        ```
        """
        scopes = _scopes(only or self.only)
        entity, dot, command = name.partition(".")
        if not dot or not entity or not command:
            raise Misconfigured(f"`{name}` is not a command; name it `Entity.Command`")
        if name in self.registered:
            raise Misconfigured(f"command `{name}` is registered twice; keep one")

        def register(handler: H) -> H:
            self.registered[name] = Command(
                name=name,
                handler=handler,
                is_async=_is_async(handler),
                takes_context="context" in inspect.signature(handler).parameters,
                only=scopes,
            )
            return handler

        return register

    def find(self, name: str, *, environment: EnvironmentRef | None = None) -> Command | None:
        """The command of this name; with an environment, only if a spec of it may name the command."""
        command = self.registered.get(name)
        if command is None or (environment is not None and not command.serves(environment)):
            return None
        return command

    def hint(self, name: str, *, environment: EnvironmentRef) -> str:
        """The nearest name that a spec of this environment may use."""
        return nearest(name, [one.name for one in self.registered.values() if one.serves(environment)])


def _scopes(only: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    if any(isinstance(scope, str) or not 1 <= len(scope) <= 3 for scope in only):
        raise Misconfigured(
            "`only` is a list of scopes: `(organization,)`, `(organization, project)` "
            "or `(organization, project, environment)`"
        )
    return tuple(tuple(scope) for scope in only)


def _is_async(handler: Handler) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - a callable object may have an async one
    )


def load_commands(target: str) -> Commands:
    """The registry that `module:name` points at."""
    found = load_target(target)
    if not isinstance(found, Commands):
        raise Misconfigured(f"`{target}` is not a `Commands` registry; create one with `Commands()`")
    return found


def load_target(target: str) -> Any:
    """Whatever `module:name` points at; None if the module has no such name."""
    module_name, colon, attribute = target.partition(":")
    if not module_name or not colon or not attribute:
        raise Misconfigured(f"`{target}` does not name an app; write `module:app`")
    try:
        module = import_module(module_name)
    except ImportError as error:
        raise Misconfigured(f"`{module_name}` cannot be imported ({error}); is it on the path?") from error
    return getattr(module, attribute, None)
