"""Waiting for a server that a bench has started."""

from __future__ import annotations

import asyncio


async def answering(port: int) -> str:
    """The URL of a server, once it accepts connections."""
    async with asyncio.timeout(30):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            return f"http://127.0.0.1:{port}"
