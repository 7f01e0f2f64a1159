"""Opens the export of spans over OTLP, if the variables of OpenTelemetry ask for it.

The SDK reads most of them itself: where to send (`OTEL_EXPORTER_OTLP_…`), how many spans to keep
(`OTEL_TRACES_SAMPLER…`), in which batches (`OTEL_BSP_…`), and who sends (`OTEL_SERVICE_NAME`,
`OTEL_RESOURCE_ATTRIBUTES`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

    from weir.tracing.tracer import Tracer

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
EXPORTER = "OTEL_TRACES_EXPORTER"
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
DISABLED = "OTEL_SDK_DISABLED"
SERVICE = "OTEL_SERVICE_NAME"
RESOURCE = "OTEL_RESOURCE_ATTRIBUTES"
PROTOCOL = "http/protobuf"
INSTALL = "pip install 'weir-queue[otlp]'"
# How long a process that ends waits for a collector that does not answer.
LAST_EXPORT_S = 3.0


def wants_traces(variables: Mapping[str, str]) -> bool:
    """Whether the variables of OpenTelemetry ask for spans."""
    if variables.get(DISABLED, "").strip().lower() == "true":
        return False
    if given := variables.get(EXPORTER, "").strip():
        return given != "none"
    return any(variables.get(name, "").strip() for name in ENDPOINTS)


def problem_of(variables: Mapping[str, str]) -> str | None:
    """Why spans cannot be exported as the variables say, and what to do; None if they can."""
    exporter = variables.get(EXPORTER, "").strip() or "otlp"
    if exporter != "otlp":
        return f"`{EXPORTER}` is `{exporter:.40}`; set `otlp`, or `none` for no traces"
    protocol = next((found for name in PROTOCOLS if (found := variables.get(name, "").strip())), PROTOCOL)
    if protocol != PROTOCOL:
        return f"`{PROTOCOLS[1]}` is `{protocol:.40}`; set `{PROTOCOL}`, which is all that Weir speaks"
    return None


@asynccontextmanager
async def tracing(
    variables: Mapping[str, str], *, service: str, say: Callable[[str], object]
) -> AsyncIterator[Tracer | None]:
    """The tracer of this process while the block runs; None if it writes no spans.

    `say` gets one line if the variables ask for spans that cannot be exported. The process then works without
    spans.
    """
    provider = _open(variables, service=service, say=say) if wants_traces(variables) else None
    if provider is None:
        yield None
        return
    from weir.tracing.tracer import Tracer

    try:
        yield Tracer(provider)
    finally:
        await _shut_down(provider)


def _open(
    variables: Mapping[str, str], *, service: str, say: Callable[[str], object]
) -> TracerProvider | None:
    problem = problem_of(variables)
    if problem is not None:
        say(f"no traces: {problem}")
        return None
    try:
        return _provider(variables, service=service)
    except ImportError as error:
        say(f'no traces: the extra "otlp" is missing (`{error.name}`); {INSTALL}')
    except ValueError as error:
        say(f"no traces: an `OTEL_` variable cannot be read ({error}); correct it")
    return None


def _provider(variables: Mapping[str, str], *, service: str) -> TracerProvider:
    # Imported here, because the packages are an extra.
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    # A name that is given here would replace the name that the SDK reads from the variables.
    is_named = SERVICE in variables or "service.name=" in variables.get(RESOURCE, "")
    resource = Resource.create({} if is_named else {"service.name": service})
    # Without the SDK's own shutdown at the exit of the process, which may take a minute.
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


async def _shut_down(provider: TracerProvider) -> None:
    """Send the last spans, in a thread of their own, because the exporter waits for its collector."""
    ending = threading.Thread(target=provider.shutdown, name="last spans", daemon=True)
    ending.start()
    await asyncio.to_thread(ending.join, LAST_EXPORT_S)
