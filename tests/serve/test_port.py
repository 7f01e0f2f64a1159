"""A demo finds a port, unless it was told which one to use."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from weir.errors import Misconfigured
from weir.serve.system import with_free_port
from weir.settings import ApiSettings, Settings


@pytest.fixture
def busy() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield int(server.getsockname()[1])


def by_default(port: int) -> Settings:
    """Settings whose usual port is this one: nobody asked for it."""
    values = {**ApiSettings().model_dump(), "port": port}
    return Settings().model_copy(update={"api": ApiSettings.model_construct(_fields_set=set(), **values)})


def test_the_usual_port_is_used_while_it_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free = int(server.getsockname()[1])
    assert with_free_port(by_default(free)).api.port == free


def test_any_other_is_used_when_it_is_busy(busy: int) -> None:
    assert with_free_port(by_default(busy)).api.port == 0


def test_a_busy_one_that_was_asked_for_is_an_error(busy: int) -> None:
    with pytest.raises(Misconfigured, match=f"127.0.0.1:{busy}"):
        with_free_port(Settings(api=ApiSettings(port=busy)))
