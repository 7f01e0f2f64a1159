"""An app: the tasks of a program, the queues that they want, and the way to push them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, ParamSpec, TypeVar, overload

from weir.client.core import AsyncWeir
from weir.client.outcomes import MessageOutcome
from weir.client.sync import Weir, run_with
from weir.client.sync_logs import next_or_none
from weir.client.values import OutgoingMessage, PushResult, raise_refused
from weir.errors import Misconfigured
from weir.model.durations import Duration, to_optional_ms
from weir.model.names import check_name
from weir.spec.ir import AppSpec, MissedTicks, Ordering, Overlap, ScheduleSpec
from weir.tasks.address import ApiAddress, find_api
from weir.tasks.backend import HttpBackend, TaskBackend
from weir.tasks.handle import TaskHandle
from weir.tasks.middleware import Middleware
from weir.tasks.options import QueueOptions
from weir.tasks.task import Key, PreparedCall, Task
from weir.tasks.timing import timing_of

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class App:
    """The tasks of a program.

    ```python
    app = App("http://127.0.0.1:8420", token="weir_…")

    @app.task(queue="emails", max_attempts=5, timeout=30)
    def send_email(to: str, template: str) -> str:
        return f"{template} to {to}"
    ```

    - `url`, `token`: the API. By default `WEIR_URL` and `WEIR_TOKEN`, or the Weir that serves the data
      directory, which is found as the command line finds it.
    - `name`: the name under which the app owns its queues and schedules. Two apps of one environment need
      different names.
    - `queue`: the queue of tasks that name none.
    - `organization`, `project`, `environment`: which environment, for a token that reaches several.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        name: str = "tasks",
        queue: str = "tasks",
        organization: str | None = None,
        project: str | None = None,
        environment: str | None = None,
    ) -> None:
        self.name = check_name(name, what="app")
        self._queue = check_name(queue, what="queue")
        self.address = ApiAddress(
            url=url, token=token, organization=organization, project=project, environment=environment
        )
        self.tasks: dict[str, Task[Any, Any]] = {}
        self.schedules: dict[str, ScheduleSpec] = {}
        self.scheduled: dict[str, str] = {}
        """Schedule -> the task that its ticks call."""
        self.middleware: list[Middleware] = []
        self._queues: dict[str, QueueOptions] = {}
        self._override: tuple[TaskBackend, Callable[[Coroutine[Any, Any, Any]], Any]] | None = None
        self._blocking: Weir | None = None
        self._by_loop: dict[asyncio.AbstractEventLoop, _LoopClient] = {}

    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R]: ...

    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        key: Key | None = None,
        max_attempts: int | None = None,
        timeout: Duration | None = None,
        backoff: Duration | None = None,
        max_backoff: Duration | None = None,
        lease: Duration | None = None,
        concurrency: int | None = None,
        max_depth: int | None = None,
        max_age: Duration | None = None,
        ordering: Literal["unordered", "fifo", "per_key"] | None = None,
        dead_letter_queue: str | None = None,
        process: bool = False,
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...

    def task(
        self,
        function: Callable[P, R] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str | None = None,
        key: Key | None = None,
        max_attempts: int | None = None,
        timeout: Duration | None = None,
        backoff: Duration | None = None,
        max_backoff: Duration | None = None,
        lease: Duration | None = None,
        concurrency: int | None = None,
        max_depth: int | None = None,
        max_age: Duration | None = None,
        ordering: Literal["unordered", "fifo", "per_key"] | None = None,
        dead_letter_queue: str | None = None,
        process: bool = False,
    ) -> Task[P, R] | Callable[[Callable[P, R]], Task[P, R]]:
        """Make a function a task: `function(…)` stays a plain call, `function.push(…)` goes through a queue.

        ```python
        @app.task(queue="emails", key=lambda to, **_: to)
        def send_email(to: str, template: str) -> None: ...
        ```

        - `name`: the name in messages; by default the function's.
        - `key`: a function that makes the ordering key of a message from the arguments.
        - `timeout`: how long an attempt may take.
        - `process`: run a synchronous function in a process of its own, which is killed after `timeout`.
        - `backoff`, `max_backoff`: the first pause before a retry, and the longest. Pauses double.
        - the others are promises of the queue, as specs have them. Tasks of one queue must not differ in
          them.
        """
        options = QueueOptions(
            max_attempts=max_attempts,
            initial_backoff_ms=to_optional_ms(backoff),
            max_backoff_ms=to_optional_ms(max_backoff),
            handler_timeout_ms=to_optional_ms(timeout),
            lease_ms=to_optional_ms(lease),
            concurrency=concurrency,
            max_depth=max_depth,
            max_age_ms=to_optional_ms(max_age),
            ordering=None if ordering is None else Ordering(ordering),
            dead_letter_queue=dead_letter_queue,
        )

        def register(function: Callable[P, R]) -> Task[P, R]:
            own = getattr(function, "__name__", "task") if name is None else name
            task = Task(self, function, name=own, queue=queue or self._queue, key=key, in_process=process)
            self._add(task, options)
            return task

        return register if function is None else register(function)

    def _add(self, task: Task[Any, Any], options: QueueOptions) -> None:
        check_name(task.name, what="task")
        check_name(task.queue, what="queue")
        if task.name == "<lambda>":
            raise Misconfigured("a lambda has no name that a worker could find it by; write a function")
        if task.name in self.tasks:
            raise Misconfigured(f"there are two tasks `{task.name}`; give one another `name`")
        known = self._queues.get(task.queue, QueueOptions())
        self._queues[task.queue] = known.joined(options, queue=task.queue, task=task.name)
        self.tasks[task.name] = task

    def every(
        self,
        timing: str | Duration,
        /,
        *,
        timezone: str = "UTC",
        name: str | None = None,
        missed: Literal["skip", "last", "all"] = "skip",
        overlap: Literal["allow", "skip"] = "allow",
        arguments: Mapping[str, object] | None = None,
    ) -> Callable[[Task[P, R]], Task[P, R]]:
        """Push a task on a schedule: by cron, or every so often.

        ```python
        @app.every("0 3 * * *", timezone="Europe/Berlin")
        @app.task(queue="reports")
        def nightly() -> None: ...
        ```

        - `timing`: cron with five fields, a span such as `"30s"`, or seconds or a `timedelta`.
        - `timezone`: the time zone of cron.
        - `name`: the name of the schedule; by default the task's.
        - `missed`, `overlap`: what becomes of ticks while nothing ran, or while the last call is not done.
        - `arguments`: the arguments of each call, by parameter.
        """

        def register(task: Task[P, R]) -> Task[P, R]:
            if not isinstance(task, Task) or task.app is not self:
                raise Misconfigured("`@app.every` stands above `@app.task` of the same app")
            own = check_name(name or task.name, what="schedule")
            if own in self.schedules:
                raise Misconfigured(f"there are two schedules `{own}`; give one another `name`")
            payload = task.arguments.pack(task.arguments.bind((), dict(arguments or {})))
            self.schedules[own] = ScheduleSpec(
                name=own,
                queue=task.queue,
                timing=timing_of(timing, timezone=timezone),
                payload=json.loads(payload),
                missed=MissedTicks(missed),
                overlap=Overlap(overlap),
            )
            self.scheduled[own] = task.name
            return task

        return register

    def spec(self) -> AppSpec:
        """The queues and schedules that the app declares, as a spec.

        ```python
        print([queue.name for queue in app.spec().queues])
        ```
        """
        return AppSpec(
            name=self.name,
            queues=tuple(options.spec(name) for name, options in sorted(self._queues.items())),
            schedules=tuple(self.schedules[name] for name in sorted(self.schedules)),
        )

    def use(self, middleware: Middleware) -> Middleware:
        """Run middleware around every attempt; `weir.tasks.middleware` says how. May be used as a decorator.

        ```python
        @app.use
        async def timed(attempt: Attempt, run: Run) -> object:
            return await run()
        ```
        """
        self.middleware.append(middleware)
        return middleware

    def push_many(self, calls: Sequence[PreparedCall[Any]]) -> list[TaskHandle[Any]]:
        """Push calls in order and in few requests; returns a handle per call.

        ```python
        handles = app.push_many([resize.call(name) for name in names])
        ```

        Raises `ApiError` if a call is refused. The calls before it are pushed, and the calls after it may be.
        """
        messages = [call.message() for call in calls]
        return _handles(calls, messages, self.wait(lambda backend: backend.push_messages(messages)))

    async def apush_many(self, calls: Sequence[PreparedCall[Any]]) -> list[TaskHandle[Any]]:
        """`push_many` for code with an event loop.

        ```python
        handles = await app.apush_many([resize.call(name) for name in names])
        ```
        """
        messages = [call.message() for call in calls]
        return _handles(calls, messages, await self.backend().push_messages(messages))

    def find_task(self, name: str) -> Task[Any, Any] | None:
        """The task of that name; None if the app has none."""
        return self.tasks.get(name)

    def backend(self) -> TaskBackend:
        """The backend for calls from the event loop that runs here."""
        if self._override is not None:
            return self._override[0]
        loop = asyncio.get_running_loop()
        if loop not in self._by_loop:
            # Loops that ended without closing their generators; garbage collection closes their sockets.
            for other in [one for one in list(self._by_loop) if one.is_closed()]:
                self._by_loop.pop(other, None)
            self._by_loop[loop] = _LoopClient(
                find_api(self.address).client(), forget=lambda: self._by_loop.pop(loop, None)
            )
        return HttpBackend(self._by_loop[loop].weir)

    def wait(self, work: Callable[[TaskBackend], Coroutine[Any, Any, T]]) -> T:
        """Run `work` with the backend and wait for its result, from code without an event loop."""
        if self._override is not None:
            backend, run = self._override
            result: T = run(work(backend))
            return result
        return run_with(self._client(), lambda weir: work(HttpBackend(weir)))

    def _client(self) -> Weir:
        if self._blocking is None:
            self._blocking = find_api(self.address).blocking_client()
        return self._blocking

    def watch(self, message_id: str, timeout_s: float) -> Generator[MessageOutcome, None, None]:
        """Each change of a message, for code without an event loop."""
        if self._override is None:
            yield from self._client().watch(message_id, timeout=timeout_s)
            return
        backend, run = self._override
        outcomes = backend.watch(message_id, timeout=timeout_s)
        try:
            while (outcome := run(next_or_none(outcomes))) is not None:
                yield outcome
        finally:
            run(outcomes.aclose())

    def redirect(
        self, backend: TaskBackend | None, run: Callable[[Coroutine[Any, Any, Any]], Any] | None = None
    ) -> None:
        """Send calls to another backend, whose coroutines `run` waits for. None goes back to the API."""
        self._override = None if backend is None or run is None else (backend, run)

    def close(self) -> None:
        """Close the connections of `push`.

        ```python
        app.close()
        ```
        """
        if self._blocking is not None:
            self._blocking.close()
            self._blocking = None

    async def aclose(self) -> None:
        """Close the connections of `apush` in this event loop.

        ```python
        await app.aclose()
        ```
        """
        client = self._by_loop.get(asyncio.get_running_loop())
        if client is not None:
            await client.aclose()


class _LoopClient:
    """A client of one event loop, which is closed when the loop ends.

    An event loop that ends, such as that of `asyncio.run`, first closes the asynchronous generators that
    began in it. So one is begun here, and its end closes the client.
    """

    def __init__(self, weir: AsyncWeir, *, forget: Callable[[], object]) -> None:
        self.weir = weir
        self._forget = forget
        self._open = self._kept_open()
        # It yields without waiting, so its first step ends at once.
        with suppress(StopIteration):
            self._open.asend(None).send(None)

    async def aclose(self) -> None:
        await self._open.aclose()

    async def _kept_open(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._forget()
            await self.weir.aclose()


def _handles(
    calls: Sequence[PreparedCall[Any]], messages: Sequence[OutgoingMessage], results: Sequence[PushResult]
) -> list[TaskHandle[Any]]:
    return [
        call.handle(message, raise_refused(result))
        for call, message, result in zip(calls, messages, results, strict=True)
    ]
