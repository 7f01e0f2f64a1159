"""The limits of messages and queues; every layer that checks a limit takes it from here."""

from __future__ import annotations

from weir.model.durations import DAY_MS, MINUTE_MS

MAX_BATCH = 1_000
"""Messages in one call."""
MAX_PRIORITY = 9
# The length of a name is one byte in a packed event.
MAX_NAME_BYTES = 255
MAX_PAYLOAD_BYTES = 1 << 20
MAX_PAYLOAD_DEPTH = 64
"""Levels of nesting in a JSON payload, unless the settings of the API say otherwise."""
MAX_HEADER_BYTES = 64 << 10
MAX_ERROR_BYTES = 16 << 10
MAX_RESULT_BYTES = 16 << 10
"""The limit of a kept result, and of a kept progress."""
RESULT_KEPT_MS = DAY_MS
GROUP_KEPT_MS = 30 * DAY_MS
"""How long the finished members of a group are remembered, counted from the last one."""
MAX_GROUP = 100_000
MAX_TIME_MS = 4_102_444_800_000
"""The year 2100: the latest time that a message may wait for."""
MAX_LEASE_MS = 7 * DAY_MS
MIN_LEASE_MS = 100
"""The shortest lease that a consumer may ask for."""
MAX_HANDLER_MS = (1 << 32) - 2
"""The longest time of a handler that a life keeps, about 50 days; records hold it plus one in four bytes."""
MAX_WAIT_MS = 10 * MINUTE_MS
"""How long one dequeue may wait for a message."""
MAX_DELAY_MS = 365 * DAY_MS
"""How long a message may be delayed, when it is pushed or before its next attempt."""
MAX_SPAN_MS = 10 * 365 * DAY_MS
"""The limit of every other length of time: retention, time to live, windows, back-off."""
MIN_LOG_MS = MINUTE_MS
"""The shortest time for which a queue's log may keep a message."""
MAX_COUNT = 1_000_000_000
"""The limit of every number of messages or attempts in a queue's promises."""
