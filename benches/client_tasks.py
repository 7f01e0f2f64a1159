"""The tasks of the client bench: functions that do nothing and note that they were called.

weir worker benches.client_tasks:app --queue Tasks
"""

from __future__ import annotations

from threading import Lock

from benches.client_app import CallNotes
from weir import App

TASKS, SYNC_TASKS = "Tasks", "SyncTasks"
_notes, _sync_notes = CallNotes("tasks"), CallNotes("sync_tasks")
# Synchronous tasks run in several threads at once.
_noting = Lock()


def bench_app(url: str | None = None) -> App:
    """The app; with the URL of Redis, its pushes are in direct mode."""
    app = App(url, name="bench-tasks")

    @app.task(queue=TASKS)
    async def noop(last: int) -> None:
        _notes.note(last=last)

    @app.task(queue=SYNC_TASKS)
    def sync_noop(last: int) -> None:
        with _noting:
            _sync_notes.note(last=last)

    return app


app = bench_app()
