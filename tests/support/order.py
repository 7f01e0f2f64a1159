"""The order in which test files are handed to the test processes: the longest first.

A file is the unit that a process gets. With the short ones last, no process works alone for long at the end.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

LONGEST = (
    "docs/test_how_to.py",
    "pipeline/test_spark.py",
    "tasks/test_worker.py",
    "pipeline/test_rebuild.py",
    "pipeline/test_transforms.py",
    "dashboard/test_administration.py",
    "docs/test_examples.py",
    "spec/test_evaluation.py",
    "dashboard/test_pages.py",
    "pipeline/test_lives.py",
    "tasks/test_workflows.py",
    "embedded/test_up.py",
    "deploy/test_roles.py",
    "cli/test_extras.py",
    "dashboard/test_live.py",
    "warehouse/test_old_rows.py",
    "serve/test_hanging_postgres.py",
    "warehouse/test_reading.py",
    "pipeline/test_gaps.py",
    "embedded/test_bad_input.py",
    "alerts/test_days.py",
    "api/test_message_routes.py",
    "deadletters/test_http.py",
    "embedded/test_append_only.py",
    "broker/test_machine.py",
    "dashboard/test_quality.py",
    "dashboard/test_messages.py",
    "pipeline/test_own_metric.py",
    "pipeline/test_switch_gaps.py",
    "cli/test_whole_system.py",
    "pipeline/test_metric_tables.py",
    "pipeline/test_rebuild_pause.py",
    "serve/test_deadlines.py",
    "serve/test_borders.py",
    "serve/test_roles.py",
    "spec/test_changes.py",
    "spec/test_odd_specs.py",
    "api/test_whole_api.py",
    "docs/test_tutorial.py",
    "outbox/test_relay.py",
    "pipeline/test_cli.py",
    "serve/test_process_metrics.py",
    "pipeline/test_old_folder.py",
    "pipeline/test_dead_letter_analysis.py",
    "alerts/test_causes.py",
    "schedules/test_scheduler.py",
    "tasks/test_tutorial.py",
    "workers/test_processes.py",
    "docs/test_prometheus.py",
    "docs/test_readme.py",
    "ingress/test_hooks.py",
    "ingress/test_queue_primitive.py",
    "tracing/test_journeys.py",
    "client/test_direct.py",
    "schedules/test_http.py",
    "embedded/test_old_folder.py",
)
"""As measured on two cores, the longest first. Other files follow by their number of tests."""


def sort_by_length(items: list[pytest.Item]) -> None:
    """Sort tests by their files; within a file their order stays."""
    ranks = {TESTS / name: rank for rank, name in enumerate(LONGEST)}
    sizes = Counter(item.path for item in items)
    items.sort(key=lambda item: (ranks.get(item.path, len(ranks)), -sizes[item.path], str(item.path)))
