"""The demo's other processes: the pipeline on Spark, which fills in the past first, and a worker a tenant."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from weir.demo.handlers import FIRST_INCIDENT
from weir.demo.past_processes import CONCURRENCY
from weir.demo.scenario import TENANTS, Incidents, Tenant
from weir.embedded.child import Child, Command
from weir.settings import Settings

_PASSED_ON = ("JAVA_HOME", "LANG", "USER", "XDG_RUNTIME_DIR")


@asynccontextmanager
async def running(
    settings: Settings, incidents: Incidents, *, secrets: dict[str, str]
) -> AsyncIterator[dict[str, Child]]:
    """Start them, and end them with the block."""
    folder = settings.embedded.data_dir.absolute()
    pipeline = (sys.executable, "-m", "weir.demo.pipeline", str(folder), str(incidents.first_ms))
    children = {"pipeline": _child(pipeline, folder, "pipeline", {})}
    environment = {**secrets, FIRST_INCIDENT: str(incidents.first_ms)}
    for tenant in TENANTS:
        name = f"worker-{tenant.environment.organization}-{tenant.environment.environment}"
        children[name] = _child(_worker(tenant, folder), folder, name, environment)
    try:
        yield children
    finally:
        await asyncio.gather(*(child.stop(patience_s=15) for child in children.values()))


def _worker(tenant: Tenant, folder: Path) -> tuple[str, ...]:
    scope = tenant.environment
    return (
        *(sys.executable, "-m", "weir.cli", "worker", "--app", "weir.demo.handlers:app"),
        *("--data-dir", str(folder), "--concurrency", str(CONCURRENCY)),
        *("--only", scope.organization, scope.project, scope.environment),
    )


def _child(argv: tuple[str, ...], folder: Path, name: str, environment: dict[str, str]) -> Child:
    passed = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
    command = Command(argv=argv, cwd=folder, env={**passed, **environment})
    return Child(command, log=folder / "logs" / f"{name}.log")
