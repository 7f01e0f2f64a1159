"""What `weir.testing` promises is there, and costs nothing before it is used."""

from __future__ import annotations

import subprocess
import sys

import weir.testing


def test_every_promised_name_is_there() -> None:
    for name in weir.testing.__all__:
        assert getattr(weir.testing, name).__name__ == name
    assert weir.testing.__all__ == sorted(weir.testing._HOMES)


def test_the_memory_broker_loads_no_driver() -> None:
    code = (
        "import sys; from weir.testing import MemoryBroker, ManualClock; "
        "sys.exit(', '.join({'redis', 'psycopg', 'pyspark', 'chdb'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == ""
