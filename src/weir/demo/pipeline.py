"""The demo's pipeline process: give the queues a past, then run like any other pipeline."""

from __future__ import annotations

import sys
from pathlib import Path

from weir.demo.backfill import backfill
from weir.embedded.urls import resolve_urls
from weir.model.clock import SystemClock
from weir.pipeline.runner import run_pipeline
from weir.pipeline.session import open_session
from weir.serve.pipeline import pipeline_options, session_options
from weir.settings import Settings, load_settings


def main(data_dir: Path) -> None:
    settings = _settings(data_dir)
    options = pipeline_options(settings, resolve_urls(settings))
    session = session_options(settings)
    backfill(open_session(session), options, now_ms=SystemClock().now_ms())
    run_pipeline(options, session)


def _settings(data_dir: Path) -> Settings:
    settings = load_settings()
    embedded = settings.embedded.model_copy(update={"data_dir": data_dir})
    return settings.model_copy(update={"embedded": embedded})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
