"""Metrics of your own: their definitions, and the emitter of their events.

```python
from weir.metrics import Aggregate, EventKind, Field, MetricDefinition

MAIL = EventKind(
    name="mail",
    dimensions=("sender", "domain"),
    fields=(Field(name="sent", width=4, aggregates=(Aggregate.SUM,)),),
)
definitions = [MetricDefinition(kind=MAIL)]
```

`WEIR_PIPELINE__METRICS=module:definitions` registers them; `docs/reference/metrics.md` has the details.
"""

from __future__ import annotations

from weir.pipeline.definition import MetricDefinition
from weir.telemetry.background_emitter import MetricEmitter
from weir.telemetry.codec import MetricEvent
from weir.telemetry.events import Aggregate, EventKind, Field, TextField

__all__ = [
    "Aggregate",
    "EventKind",
    "Field",
    "MetricDefinition",
    "MetricEmitter",
    "MetricEvent",
    "TextField",
]
