"""The program of the child process: opens the directory, listens, and stops cleanly on a signal."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from pathlib import Path

from weir.embedded.chdb.engine import Engine
from weir.embedded.chdb.http import EngineHttpServer
from weir.embedded.chdb.statement_runner import Runner, User


def main() -> None:
    options = argparse.ArgumentParser(prog="weir.embedded.chdb")
    options.add_argument("--path", type=Path, required=True)
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--host", default="127.0.0.1")
    options.add_argument("--max-concurrent", type=int, default=8)
    given = options.parse_args()

    engine = Engine(given.path, max_concurrent=given.max_concurrent)
    runner = Runner(engine)
    users = [User(name="weir"), User(name="default"), User(name="reader", read_only=True)]
    server = EngineHttpServer(
        (given.host, given.port), runner, password=os.environ.pop("WEIR_CHDB_PASSWORD", ""), users=users
    )

    def stop(*_: object) -> None:
        # In another thread, because `shutdown` waits for `serve_forever`, which this handler interrupts.
        threading.Thread(target=server.shutdown, daemon=True).start()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    server.serve_forever(poll_interval=0.2)
    server.server_close()
    runner.sessions.close()
    engine.close()


if __name__ == "__main__":
    main()
