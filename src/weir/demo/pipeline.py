"""The demo's pipeline process: give the queues a past, then run like any other pipeline."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from weir.demo.backfill import land_past, write_past
from weir.demo.scenario import Incidents
from weir.embedded.urls import resolve_urls
from weir.model.clock import SystemClock
from weir.pipeline.runner import run_pipeline
from weir.pipeline.session import open_session
from weir.serve.pipeline import pipeline_options, session_options
from weir.settings import Settings, load_settings


def main(data_dir: Path, incidents: Incidents) -> None:
    settings = _settings(data_dir)
    options = pipeline_options(settings, resolve_urls(settings))
    session = session_options(settings)
    now_ms = SystemClock().now_ms()
    with ThreadPoolExecutor(1) as pool:
        # The past is written while Spark starts, which is another process.
        starting = pool.submit(open_session, session)
        from_ms = write_past(options, incidents, now_ms=now_ms)
        spark = starting.result()
    if from_ms is not None:
        land_past(spark, options, from_ms=from_ms, now_ms=now_ms)
    run_pipeline(options, session)


def _settings(data_dir: Path) -> Settings:
    settings = load_settings()
    embedded = settings.embedded.model_copy(update={"data_dir": data_dir})
    return settings.model_copy(update={"embedded": embedded})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Incidents(first_ms=int(sys.argv[2])))
