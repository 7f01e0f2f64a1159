"""A program: PostgreSQL in the folder and on the port that it is given, kept alive until its input ends."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from weir.embedded.postgres import PostgresServer, Tuning
from weir.embedded.supervised import Supervised


async def main(folder: Path, port: int) -> None:
    tuning = Tuning(shared_buffers="16MB", max_connections=30, fsync=False)
    server = PostgresServer(folder / "postgres", port=port, password="x", tuning=tuning)
    supervised = Supervised(server, log=folder.with_suffix(".log"), report=lambda _: None)
    await supervised.start()
    print(server.url, flush=True)
    keeping = asyncio.create_task(supervised.keep_alive())
    await asyncio.to_thread(sys.stdin.read)
    keeping.cancel()
    await supervised.stop()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
