"""A world of schedules."""

from __future__ import annotations

import pytest

from schedules.world import World
from weir.control.database import Database
from weir.model.names import EnvironmentRef


@pytest.fixture
def world(database: Database, environment: EnvironmentRef) -> World:
    return World(database, environment)
