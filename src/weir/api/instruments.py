"""The metrics of an API process about itself, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily

from weir import __version__

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Instruments:
    """A registry of its own for each application, so that two in one process do not add up."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=True)
        self._requests = Histogram(
            "weir_http_request_duration_seconds",
            "Time to answer a request, by route template.",
            ("method", "route", "status"),
            buckets=BUCKETS,
            registry=self.registry,
        )
        self._bound: dict[tuple[str, str, int], Histogram] = {}

    def observe(self, *, method: str, route: str, status: int, took_s: float) -> None:
        key = (method, route, status)
        bound = self._bound.get(key)
        if bound is None:
            shown = method if method in _METHODS else "OTHER"
            bound = self._requests.labels(shown, route, str(status))
            if shown == method:
                self._bound[key] = bound
        bound.observe(took_s)


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def build_info() -> GaugeMetricFamily:
    """The version that runs, as a constant 1."""
    family = GaugeMetricFamily("weir_build_info", "The version of Weir that answers.", labels=("version",))
    family.add_metric((__version__,), 1)
    return family
