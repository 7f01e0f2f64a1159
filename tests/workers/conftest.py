from __future__ import annotations

import pytest

from workers.rig import Rig


@pytest.fixture
def rig(environment):
    return Rig(environment)
