"""A collector of OTLP over HTTP on loopback, which keeps the spans that it is sent."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True, kw_only=True)
class CollectedSpan:
    service: str
    name: str
    trace_id: str


@dataclass(frozen=True, kw_only=True)
class Collector:
    url: str
    spans: list[CollectedSpan] = field(default_factory=list)

    def has(self, service: str, *names: str) -> bool:
        found = {span.name for span in self.spans if span.service == service}
        return found.issuperset(names)


@contextmanager
def collecting() -> Iterator[Collector]:
    """Collect while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.path == "/v1/traces":
                collector.spans.extend(_spans(body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(url=f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()


def _spans(body: bytes) -> Iterator[CollectedSpan]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        attributes = {one.key: one.value.string_value for one in resource.resource.attributes}
        for scope in resource.scope_spans:
            for span in scope.spans:
                yield CollectedSpan(
                    service=attributes["service.name"], name=span.name, trace_id=span.trace_id.hex()
                )
