"""A program: Redis in the folder and on the port that it is given, kept alive until its input ends."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from weir.embedded.redis import RedisServer
from weir.embedded.supervised import Supervised


async def main(folder: Path, port: int, program: Path | None) -> None:
    server = RedisServer(folder / "redis", port=port, password="x", program=program)
    supervised = Supervised(server, log=folder.with_suffix(".log"), report=_say)
    await supervised.start()
    print(server.url, flush=True)
    keeping = asyncio.create_task(supervised.keep_alive())
    await asyncio.to_thread(sys.stdin.read)
    keeping.cancel()
    await supervised.stop()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    program = Path(sys.argv[3]) if len(sys.argv) > 3 else None
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), program))
