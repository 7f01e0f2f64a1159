"""The demo's pipeline process: it writes the past of the queues, then runs like any other pipeline."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from weir.demo.backfill import land_past, write_past
from weir.demo.scenario import INCIDENT_AFTER_MS, LANDED, Incidents
from weir.pipeline.job import PipelineOptions
from weir.pipeline.process import run_pipeline
from weir.pipeline.session import SessionOptions, open_session
from weir.serve.pipeline import audit_in_thread, pipeline_options, session_options
from weir.settings import Settings, load_settings
from weir.stores.urls import resolve_urls


def main(data_dir: Path, incidents: Incidents) -> None:
    settings = _settings(data_dir)
    options = pipeline_options(settings, resolve_urls(settings))
    session = session_options(settings)
    landed = data_dir / LANDED
    if not landed.exists():
        _backfill(options, session, incidents)
        # Touched last, so that a demo that is interrupted before this writes its past again.
        landed.touch()
    run_pipeline(options, session, run_audit=audit_in_thread(options))


def _backfill(options: PipelineOptions, session: SessionOptions, incidents: Incidents) -> None:
    """Write and land the past up to the start of the demo."""
    now_ms = incidents.first_ms - INCIDENT_AFTER_MS
    with ThreadPoolExecutor(1) as pool:
        # The past is written while Spark starts, which is another process.
        starting = pool.submit(open_session, session)
        from_ms = write_past(options, incidents, now_ms=now_ms)
        spark = starting.result()
    land_past(spark, options, from_ms=from_ms, now_ms=now_ms)


def _settings(data_dir: Path) -> Settings:
    settings = load_settings()
    embedded = settings.embedded.model_copy(update={"data_dir": data_dir})
    return settings.model_copy(update={"embedded": embedded})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Incidents(first_ms=int(sys.argv[2])))
