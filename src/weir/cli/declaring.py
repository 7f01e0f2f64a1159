"""Declares an app before its worker begins, or shows what that would change."""

from __future__ import annotations

import asyncio
import json
import random
import time
from dataclasses import asdict
from typing import Any

import typer

from weir.broker.broker import Broker
from weir.cli.api import ApiSession, RefusedByApi
from weir.cli.plans import plan_of
from weir.client.options import ClientOptions
from weir.control.database import Database
from weir.control.spec_plans import SpecText
from weir.errors import Conflict, Forbidden, Misconfigured
from weir.model.names import EnvironmentRef
from weir.serve.hooks import open_apps, open_specs
from weir.settings import Settings
from weir.spec.dump import dumped
from weir.spec.plan import Effect, Plan, rendered_plan
from weir.tasks.address import ApiAddress
from weir.tasks.app import App

PATIENCE_S = 60.0
"""How long a worker that starts waits for a server that is busy with other declarations."""


def session_of(address: ApiAddress) -> ApiSession:
    """A session of the API that an app uses."""
    return ApiSession(
        ClientOptions(
            base_urls=((address.url or "").rstrip("/"),),
            token=address.token or "",
            organization=address.organization,
            project=address.project,
            environment=address.environment,
        )
    )


async def plan_over_http(api: ApiSession, app: App) -> Plan:
    """Ask what declaring an app would change."""
    return plan_of(await api.post("apps", app.name, "plan", body=_body(app)))


async def declare_over_http(api: ApiSession, app: App) -> None:
    """Declare an app. Without the right to, print the differences, and fail only if queues are missing."""
    try:
        found = plan_of(await _put_when_free(api, app))
    except RefusedByApi as error:
        if error.problem.get("code") == Forbidden.code:
            _tell_differences(await plan_over_http(api, app), app)
            return
        raise _refused(app, error.problem.get("refusals") or [error.message]) from None
    _tell_changes(found, app)


async def _put_when_free(api: ApiSession, app: App) -> dict[str, Any]:
    """Declare an app. Many workers may start at once, so an answer that says "try again" is followed."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return await api.put("apps", app.name, body=_body(app))
        except RefusedByApi as error:
            if not error.problem.get("retryable") or time.monotonic() > until_s:
                raise
            # Not all at the same moment again.
            await asyncio.sleep(error.problem.get("retry_after", 1) * random.uniform(0.5, 1.5))


async def declare_in_stores(
    database: Database, broker: Broker, settings: Settings, environment: EnvironmentRef, app: App
) -> None:
    """Declare an app from a worker that is connected to the stores."""
    register = open_apps(database, open_specs(database, broker, settings.worker))
    try:
        declared = await register.declare(environment, app.name, declaration(app), actor="worker")
    except Conflict as error:
        raise _refused(app, error.extra.get("refusals") or [error.message]) from None
    _tell_changes(declared.plan, app)


def declaration(app: App) -> SpecText:
    """What an app declares, as a spec in JSON."""
    return SpecText(source=json.dumps(dumped(app.spec())), file=f"{app.name}.json")


def _body(app: App) -> dict[str, str]:
    return asdict(declaration(app))


def _refused(app: App, reasons: list[str]) -> Misconfigured:
    return Misconfigured(f"the app `{app.name}` cannot be declared: {'; '.join(reasons)}")


def _tell_changes(found: Plan, app: App) -> None:
    if found.changes or found.warnings:
        typer.echo(f"weir: the app `{app.name}` is declared:\n{rendered_plan(found)}", err=True)


def _tell_differences(found: Plan, app: App) -> None:
    missing = [one.name for one in found.changes if one.kind == "queue" and one.effect is Effect.ADD]
    if missing:
        raise Misconfigured(
            f"the queues {', '.join(f'`{name}`' for name in missing)} of the app `{app.name}` do not exist, "
            "and this token may not declare them; start the worker once with an admin token"
        )
    if found.changes or found.refusals:
        typer.echo(
            f"weir: the app `{app.name}` differs from what holds, and this token may not declare it:\n"
            f"{rendered_plan(found)}",
            err=True,
        )
