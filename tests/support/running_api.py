"""`weir serve` over real stores, as a process for tests of commands and clients that need an address."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from weir.control.database import Database
from weir.control.sealing import new_key
from weir.control.tokens import Tokens
from weir.serve.bootstrap import OPERATOR

RECEIVER_HOST = "127.0.0.2"
"""The one private address that the API delivers to; tests listen there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningApi:
    """The URL of the API, an operator's token, and the URLs of its stores."""

    url: str
    token: str
    redis_url: str
    postgres_url: str
    clickhouse_url: str


def key_file(folder: Path) -> Path:
    """A file with a key for secrets."""
    path = folder / "keys"
    path.write_text(new_key())
    return path


@contextmanager
def running_api(
    folder: Path, *, redis_url: str, postgres_url: str, clickhouse_url: str
) -> Iterator[RunningApi]:
    """Serve while the block runs, over migrated stores."""
    environment = {
        **os.environ,
        "WEIR_REDIS_URL": redis_url,
        "WEIR_POSTGRES_URL": postgres_url,
        "WEIR_CLICKHOUSE_URL": clickhouse_url,
        "WEIR_API__PORT": "0",
        "WEIR_SECRETS__KEY_FILE": str(key_file(folder)),
        "WEIR_WORKER__ALLOWED_SUBNETS": f'["{RECEIVER_HOST}/32"]',
    }
    command = [sys.executable, "-m", "weir.cli", "serve", "--data-dir", str(folder)]
    with (folder / "serve.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line.startswith("serving "), (folder / "serve.log").read_text()
        url = line.split()[1].rstrip(";")
        token = asyncio.run(_create_token(postgres_url))
        yield RunningApi(
            url=url,
            token=token,
            redis_url=redis_url,
            postgres_url=postgres_url,
            clickhouse_url=clickhouse_url,
        )
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
        process.stdout.close()


async def _create_token(postgres_url: str) -> str:
    async with Database(postgres_url, max_size=1) as database:
        text, _ = await Tokens(database).create(OPERATOR)
    return text
