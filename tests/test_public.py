"""What Weir promises to those who import it: these names, with types, and nothing loaded early."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import weir
import weir.testing
import weir.worker
from weir import AsyncWeir, Producer, Weir

PUBLIC = {
    "weir": [
        "ApiError", "App", "AsyncWeir", "ClientError", "Consumer", "LogMessage", "LogReplay",
        "MessageOutcome", "Operation", "OperationFailed", "OperationTimeout", "OutgoingMessage", "Producer",
        "ProducerFull", "PushResult", "ReceivedMessage", "Reject", "ResultNotKept", "ResultTimeout", "Retry",
        "TaskContext", "TaskFailed", "TaskHandle", "Unreachable", "Weir", "chain", "group",
    ],
    "weir.metrics": [
        "Aggregate", "EventKind", "Field", "MetricDefinition", "MetricEmitter", "MetricEvent", "TextField",
    ],
    "weir.outbox": ["apush", "migrate", "push", "relay"],
    "weir.worker": ["Commands", "Context", "Reject", "Retry"],
    "weir.testing": ["BrokerConformance", "Ledger", "ManualClock", "MemoryBroker", "MemoryTasks", "eager"],
}  # fmt: skip
SERVERS = {
    "clickhouse_connect", "chdb", "fastapi", "numpy", "prometheus_client", "psycopg", "pyarrow",
    "pydantic", "pyspark", "redis", "starlette", "structlog", "typer", "uvicorn",
}  # fmt: skip


@pytest.mark.parametrize("module", PUBLIC)
def test_the_public_names_are_these(module: str) -> None:
    found = import_module(module)
    assert sorted(found.__all__) == PUBLIC[module]
    for name in found.__all__:
        assert getattr(found, name).__name__ == name
        assert name in dir(found)


def test_type_checkers_see_every_name_and_no_other() -> None:
    """The names are loaded when they are asked for, so what a type checker sees stands beside it."""
    source = inspect.getsource(weir)
    seen = source[source.index("if TYPE_CHECKING") : source.index("__version__")]
    assert sorted(weir._HOMES) == sorted(weir.__all__)
    assert all(name in seen for name in weir.__all__)
    assert (Path(weir.__file__).parent / "py.typed").exists()


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="`Wier`"):
        _ = weir.Wier  # type: ignore[attr-defined]


def test_a_worker_and_a_consumer_share_reject_and_retry() -> None:
    assert weir.worker.Reject is weir.Reject
    assert weir.worker.Retry is weir.Retry


def loaded_by(code: str) -> set[str]:
    command = [sys.executable, "-c", f"import sys; {code}; print(','.join(sys.modules))"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(done.stdout.strip().split(","))


@pytest.mark.parametrize("code", ["import weir", "import weir.model.names", "import weir.broker.broker"])
def test_a_part_of_weir_loads_no_http_client(code: str) -> None:
    assert not loaded_by(code) & {"httpx2", "weir.client.core"}


def test_the_client_loads_nothing_of_the_servers() -> None:
    assert not loaded_by("from weir import AsyncWeir, Consumer, Producer, Weir") & {*SERVERS, "opentelemetry"}


def test_a_client_of_a_plain_url_loads_no_library_for_proxies() -> None:
    code = "from weir import AsyncWeir, Weir; Weir('http://127.0.0.1:1'); AsyncWeir('https://127.0.0.1:1')"
    assert not loaded_by(code) & {"httpx2", "httpx", "anyio"}


def test_a_handlers_module_loads_no_server() -> None:
    assert not loaded_by("from weir.worker import Commands") & {*SERVERS, "httpx2"}


def test_the_memory_broker_loads_no_driver() -> None:
    drivers = {"redis", "psycopg", "pyspark", "chdb"}
    assert not loaded_by("from weir.testing import MemoryBroker, ManualClock") & drivers


def public_functions(owner: Any) -> Iterator[tuple[str, Any]]:
    """The constructor and the public methods."""
    for name, found in inspect.getmembers(owner, inspect.isfunction):
        if name == "__init__" or not name.startswith("_"):
            yield name, found


@pytest.mark.parametrize("name", weir.__all__)
def test_every_option_is_a_keyword_with_a_type(name: str) -> None:
    for method, function in public_functions(getattr(weir, name)):
        if function.__module__.startswith("weir."):
            parameters = list(inspect.signature(function).parameters.values())[1:]
            assert all(one.kind is not inspect.Parameter.VAR_KEYWORD for one in parameters), method
            assert all(one.annotation not in ("Any", inspect.Parameter.empty) for one in parameters), method
            assert "return" in get_type_hints(function, vars(import_module(function.__module__))), method


def parameters_of(function: Any) -> list[tuple[str, Any, Any, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, one.annotation, one.default) for one in found]


def test_the_two_clients_have_the_same_methods_with_the_same_arguments() -> None:
    blocking, other = dict(public_functions(Weir)), dict(public_functions(AsyncWeir))
    assert {*blocking} - {"close"} == {*other} - {"aclose"}
    for name in {*blocking} - {"close"}:
        assert parameters_of(blocking[name]) == parameters_of(other[name]), name
        returned = str(inspect.signature(other[name]).return_annotation)
        # What one iterates over with `async for`, the other does with `for`.
        plain = re.sub(r"AsyncGenerator\[(\w+), None\]", r"Generator[\1, None, None]", returned)
        assert inspect.signature(blocking[name]).return_annotation == plain


def test_a_producer_takes_what_a_client_takes() -> None:
    assert parameters_of(Producer.push) == parameters_of(AsyncWeir.push) == parameters_of(Producer.submit)


def test_a_message_for_many_has_what_a_push_takes() -> None:
    fields = {name for name, *_ in parameters_of(weir.OutgoingMessage)}
    assert fields == {name for name, *_ in parameters_of(AsyncWeir.push)} - {"self"}
