"""Weir in a FastAPI application: a client that lives as long as the application, and a dependency for routes.

```python
from weir import App
from weir.contrib.fastapi import WeirDependency, weir_lifespan

tasks = App()
api = FastAPI(lifespan=weir_lifespan(tasks))


@api.post("/orders")
async def place(order: dict[str, int], weir: WeirDependency) -> str | None:
    return (await weir.push("orders", order)).id
```
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException, Request

from weir.client.core import AsyncWeir
from weir.client.errors import ClientError
from weir.errors import Misconfigured
from weir.tasks.address import find_api
from weir.tasks.app import App

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[Mapping[str, Any] | None]]
_CLIENT = "weir"
READY_S = 3.0
"""How long `weir_ready` waits for an answer."""


def weir_lifespan(*apps: App, inner: Lifespan | None = None) -> Lifespan:
    """A lifespan that opens a client for the application, and closes it and the connections of `apps`.

    ```python
    api = FastAPI(lifespan=weir_lifespan(tasks))
    ```

    - `apps`: the apps of tasks that the application pushes. The client uses the API of the first app. Without
      an app it uses `WEIR_URL` and `WEIR_TOKEN`, or the Weir that serves the data directory.
    - `inner`: a lifespan of your own, which begins after this one and ends before it.
    """

    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[Mapping[str, Any]]:
        async with AsyncExitStack() as stack:
            address = (apps[0] if apps else App()).address
            client = await stack.enter_async_context(find_api(address).client())
            for app in apps:
                stack.push_async_callback(app.aclose)
            setattr(api.state, _CLIENT, client)
            state = None if inner is None else await stack.enter_async_context(inner(api))
            yield {} if state is None else state

    return lifespan


def weir_of(request: Request) -> AsyncWeir:
    """The client of the application that a request is for."""
    client = getattr(request.app.state, _CLIENT, None)
    if not isinstance(client, AsyncWeir):
        raise Misconfigured("this application has no client; give it `FastAPI(lifespan=weir_lifespan())`")
    return client


WeirDependency = Annotated[AsyncWeir, Depends(weir_of)]
"""A parameter of a route with this annotation gets the client."""


async def weir_ready(weir: WeirDependency) -> dict[str, str]:
    """A route that says whether Weir answers: 200, or 503 with the reason.

    ```python
    api.get("/ready")(weir_ready)
    ```
    """
    try:
        # Shorter than the client's own timeout and retries, because a probe does not wait that long.
        async with asyncio.timeout(READY_S):
            await weir.ping()
    except (ClientError, TimeoutError) as error:
        reason = str(error) or f"no answer within {READY_S:.0f} s"
        raise HTTPException(503, f"Weir is not ready: {reason}") from None
    return {"weir": "ready"}
