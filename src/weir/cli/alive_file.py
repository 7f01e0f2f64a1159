"""The file that a worker touches while it is alive, for the probes of a container."""

from __future__ import annotations

import asyncio
from pathlib import Path

_TOUCH_S = 5.0


async def keep_fresh(file: Path) -> None:
    """Touch a file every 5 s while the event loop runs, and remove it at the end."""
    try:
        while True:
            await asyncio.to_thread(file.touch)
            await asyncio.sleep(_TOUCH_S)
    finally:
        await asyncio.to_thread(file.unlink, missing_ok=True)
