"""Every line of a log has one shape, whoever wrote it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from weir.api.logs import configure_logs


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """The loggers of this process are those of other tests, too."""
    root, before = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    yield
    structlog.configure(**before)
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in ("psycopg", "psycopg.pool"):
        logging.getLogger(name).setLevel(logging.NOTSET)


def test_what_other_packages_log_is_a_json_object_too(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs()
    logging.getLogger("asyncio").warning("executing took %s s", 1.5)
    (line,) = capsys.readouterr().err.splitlines()
    told = json.loads(line)
    assert (told["event"], told["logger"], told["level"]) == ("executing took 1.5 s", "asyncio", "warning")


def test_connections_that_a_deadline_closed_are_not_told_twice(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs()
    logging.getLogger("psycopg.pool").warning("discarding closed connection")
    logging.getLogger("psycopg").warning("error ignored terminating pipeline")
    assert capsys.readouterr().err == ""
    logging.getLogger("psycopg").error("this is new")
    assert "this is new" in capsys.readouterr().err
