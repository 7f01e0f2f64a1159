"""The demo's other processes: the pipeline, which fills in the past first, and one worker per tenant."""

from __future__ import annotations

import sys
from pathlib import Path

from weir.demo.handlers import FIRST_INCIDENT
from weir.demo.past_processes import CONCURRENCY
from weir.demo.scenario import TENANTS, Incidents, Tenant


def commands(folder: Path, incidents: Incidents) -> dict[str, tuple[str, ...]]:
    """The commands by name: the pipeline and one worker per tenant."""
    pipeline = (sys.executable, "-m", "weir.demo.pipeline_process", str(folder), str(incidents.first_ms))
    workers = {
        f"worker-{tenant.environment.organization}-{tenant.environment.environment}": _worker(tenant, folder)
        for tenant in TENANTS
    }
    return {"pipeline": pipeline, **workers}


def environment(incidents: Incidents) -> dict[str, str]:
    """Variables that the handlers of the demo read."""
    return {FIRST_INCIDENT: str(incidents.first_ms)}


def _worker(tenant: Tenant, folder: Path) -> tuple[str, ...]:
    return (
        *(sys.executable, "-m", "weir.cli", "worker", "--app", "weir.demo.handlers:app"),
        *("--data-dir", str(folder), "--concurrency", str(CONCURRENCY)),
        *("--only", *tenant.environment.names),
    )
