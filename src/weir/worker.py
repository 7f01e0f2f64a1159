"""Handlers for `weir worker`: Python functions, registered by the name that a spec maps messages to.

```python
from weir.worker import Commands, Context, Reject, Retry

app = Commands()


@app.command("Incident.CreateIncident")
async def create_incident(title: str, context: Context) -> dict[str, str]:
    if not title:
        raise Reject("an incident needs a title")
    return {"id": context.message_id}
```
"""

from __future__ import annotations

from weir.model.handling import Reject, Retry
from weir.workers.commands import Commands, Context

__all__ = ["Commands", "Context", "Reject", "Retry"]
