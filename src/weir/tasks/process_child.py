"""`python -m weir.tasks.process_child FD module:app`: loads the app and says so, then runs calls one by one.

It ends with the worker: a thread reads the calls, and sees the end of the connection even while a task hangs.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from queue import SimpleQueue
from typing import Any

from weir.model.handling import Reject, Retry, describe_with_traceback
from weir.tasks.app import App
from weir.tasks.frames import pack_frame, receive_frame, unpack_frame
from weir.tasks.load import load_app
from weir.tasks.task import Task


def main(fd: int, target: str) -> None:
    """Serve calls until the connection ends."""
    connection = socket.socket(fileno=fd)
    calls: SimpleQueue[dict[str, Any]] = SimpleQueue()
    threading.Thread(target=_read, args=(connection, calls), daemon=True).start()
    app = load_app(target)
    connection.sendall(pack_frame({"ending": "loaded"}))
    while True:
        connection.sendall(_answer(app, calls.get()))


def _read(connection: socket.socket, calls: SimpleQueue[dict[str, Any]]) -> None:
    while (call := receive_frame(connection)) is not None:
        calls.put(call)
    os._exit(0)


def _answer(app: App, call: dict[str, Any]) -> bytes:
    try:
        task = app.tasks[call["task"]]
        args, kwargs = task.arguments.unpack(call["payload"].encode())
        return _done(task, task.function(*args, **kwargs))
    except Reject as error:
        return pack_frame({"ending": "reject", "error": str(error)})
    except Retry as error:
        return pack_frame({"ending": "retry", "error": str(error), "delay_ms": error.delay_ms})
    except BaseException as error:  # a task may raise anything, and the next one is still to run
        return pack_frame({"ending": "failed", "error": describe_with_traceback(error, skip=1)})


def _done(task: Task[Any, Any], result: Any) -> bytes:
    """The frame of a result. One that cannot be sent as it is goes as JSON: the work is done either way."""
    try:
        frame = pack_frame({"ending": "done", "result": result})
        unpack_frame(frame)
    except Exception:  # what a result raises here is up to its class
        return pack_frame({"ending": "done", "packed": task.arguments.pack_result(result)})
    return frame


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
