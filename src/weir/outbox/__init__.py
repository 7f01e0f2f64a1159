"""The transactional outbox: a push that exists if and only if your transaction commits.

```python
from weir import outbox

with psycopg.connect(url) as connection:
    connection.execute("UPDATE orders SET paid = true WHERE id = 42")
    outbox.push(connection, "receipts", {"order": 42}, key="customer-7")
```

`weir outbox migrate` makes the table, `weir outbox relay` moves messages from there into their queues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weir.model.lazy import lazy_names

if TYPE_CHECKING:
    from weir.outbox.migration import migrate
    from weir.outbox.relaying import relay
    from weir.outbox.transactional_push import apush, push

__all__ = ["apush", "migrate", "push", "relay"]

_HOMES = {
    "apush": "transactional_push",
    "migrate": "migration",
    "push": "transactional_push",
    "relay": "relaying",
}
"""Public name -> the module that defines it."""

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names("weir.outbox", _HOMES)
