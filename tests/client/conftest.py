"""The API on a socket, for examples that talk to it."""

from __future__ import annotations

import pytest

from api.conftest import app, base_url, broker, database_url, services, tenant
from support.running_api import RunningApi
from weir.model.names import EnvironmentRef

from .place import QUEUE, Place, make_token

__all__ = ["app", "base_url", "broker", "database_url", "services", "tenant"]


@pytest.fixture
def place(api: RunningApi, environment: EnvironmentRef) -> Place:
    """A fresh environment of the API process that all tests share."""
    place = Place(environment=environment, token=make_token(api, environment)["token"], api=api)
    place.define(QUEUE)
    return place
