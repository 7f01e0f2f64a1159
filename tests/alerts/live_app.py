"""The app of the worker processes that live tests start: each queue does what its file says."""

from __future__ import annotations

import asyncio
import json
import os
import random
from pathlib import Path

from weir.worker import Commands, Context, Reject

app = Commands()


@app.command("Act.Do")
async def do(context: Context) -> None:
    mode = json.loads((Path(os.environ["LIVE_MODES"]) / context.queue).read_text())
    await asyncio.sleep(mode["takes_s"])
    match mode["fails"]:
        case "refused":
            raise ConnectionRefusedError(111, "Connection refused")
        case "broken":
            raise KeyError("total")
        case "poison" if random.random() < 0.25:
            raise Reject("column `total` is not a number")
