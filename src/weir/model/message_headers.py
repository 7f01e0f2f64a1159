"""Headers that Weir itself puts on messages, and that more than one room reads."""

from __future__ import annotations

CHAINED_FROM = "weir-chained-from"
"""The id of the message whose handler pushed this one."""
SCHEDULE = "weir-schedule"
"""The schedule whose tick this message is."""
WORKFLOW = "weir-workflow"
"""On a message whose payload says what comes after it: `{"call": …, "workflow": …}`."""
TASK = "weir-task"
"""The task that this message calls."""
