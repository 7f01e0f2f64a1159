"""No exception of the ClickHouse driver leaves the warehouse."""

from __future__ import annotations

import inspect

import pytest
import urllib3.exceptions
from clickhouse_connect.driver import exceptions as driver

from weir.errors import InvalidInput, WarehouseUnavailable, WeirError
from weir.warehouse.errors import translating

DRIVER = [
    value
    for _, value in inspect.getmembers(driver, inspect.isclass)
    if issubclass(value, Exception) and value.__module__ == driver.__name__
]


@pytest.mark.parametrize("kind", DRIVER, ids=lambda kind: kind.__name__)
def test_every_exception_of_the_driver_has_a_translation(kind: type[Exception]) -> None:
    with pytest.raises(WeirError), translating():
        raise kind() if kind is driver.StreamClosedError else kind("something")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (driver.OperationalError("no route"), WarehouseUnavailable),
        (driver.DatabaseError("Code: 241. DB::Exception: Memory limit"), WarehouseUnavailable),
        (driver.DataError("bad value"), InvalidInput),
        (urllib3.exceptions.ProtocolError("cut"), WarehouseUnavailable),
        (ConnectionRefusedError(), WarehouseUnavailable),
        (TimeoutError(), WarehouseUnavailable),
    ],
)
def test_what_may_pass_is_retryable_and_what_will_not_is_not(
    error: Exception, expected: type[WeirError]
) -> None:
    with pytest.raises(expected), translating():
        raise error


def test_a_mistake_in_a_query_is_not_called_an_outage() -> None:
    with pytest.raises(WeirError) as raised, translating():
        raise driver.DatabaseError("Code: 62. DB::Exception: Syntax error")
    assert not raised.value.retryable
