"""Counts webhooks by signature scheme and outcome; both are few, so that Prometheus gets few series."""

from __future__ import annotations

from collections import defaultdict

from prometheus_client.core import CounterMetricFamily

from weir.spec.snapshot import Hook


class HookOutcomeCounts:
    """The counts of this process."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = defaultdict(int)

    def count(self, hook: Hook | None, outcome: str) -> None:
        """Count a request by its outcome: the outcome of a `ReceivedHook`, or the code of an error."""
        # By scheme, not by name: strangers choose the names of unknown webhooks.
        self._counts[_scheme(hook), outcome] += 1

    def family(self) -> CounterMetricFamily:
        """The counts, for Prometheus."""
        family = CounterMetricFamily(
            "weir_webhooks",
            "Webhooks by signature scheme, and what became of them: accepted, repeated, queued (for later, "
            "in PostgreSQL), processed at once, handshake, or the code of the problem.",
            labels=("scheme", "outcome"),
        )
        for labels, number in self._counts.items():
            family.add_metric(labels, number)
        return family


def _scheme(hook: Hook | None) -> str:
    if hook is None:
        return "unknown"
    verification = hook.webhook.verification
    return "none" if verification is None else verification.scheme.value
