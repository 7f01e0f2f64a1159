"""One process that answers with admission on one port and without it on another.

The cost of a push differs by up to a tenth between two processes of the same code, for as long as they live.
Within one process only the code differs.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop

from weir.api.app import create_app
from weir.serve.build import Process, open_process
from weir.serve.collector import calm_collector
from weir.serve.server import bind, listening
from weir.settings import EmbeddedSettings, Settings, load_settings
from weir.stores.urls import resolve_urls


@asynccontextmanager
async def _answering(settings: Settings, port: int, *, admission: bool) -> AsyncIterator[Process]:
    load = settings.load.model_copy(update={"admission": admission})
    settings = settings.model_copy(update={"load": load})
    async with open_process(settings, resolve_urls(settings)) as process:
        app, stopping = create_app(process.services), process.services.stopping.set
        async with listening(app, bind("127.0.0.1", port), stopping=stopping):
            yield process


async def main(folder: Path, guarded: int, bare: int) -> None:
    """Serve until killed. The background loops run only once, because both servers would share their cost."""
    settings = load_settings(embedded=EmbeddedSettings(data_dir=folder))
    async with (
        _answering(settings, bare, admission=False),
        _answering(settings, guarded, admission=True) as process,
        process.supervisor.running(),
    ):
        calm_collector()
        await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
