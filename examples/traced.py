"""A request enqueues a job, and both are seen in one picture: the spans of OpenTelemetry, a line each.

    pip install "cronsensus[otel]" opentelemetry-sdk
    python examples/traced.py

With OTLP's exporter in place of the printer, the lines are spans in Jaeger, Tempo, Honeycomb and the like.
"""

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from cronsensus import Run, Scheduler
from cronsensus.integrations.opentelemetry import trace_runs

scheduler = Scheduler("memory://", node="web-1")
trace_runs(scheduler)
tracer = trace.get_tracer("shop")


@scheduler.job(retries=1, retry_delay="100ms")
def charge(number: int, run: Run) -> None:
    """Charge an invoice; the first try fails, as the network does."""
    with tracer.start_as_current_span("ask the bank"):
        if run.attempt == 1:
            raise ConnectionError(f"the bank does not answer about invoice {number}")


def one_line(span: ReadableSpan) -> str:
    """Show what a span is called, what came of it, and what it belongs to."""
    attributes = span.attributes or {}
    words = [span.name, f"attempt {attempt}" if (attempt := attributes.get("cronsensus.attempt")) else ""]
    words += [str(attributes.get("cronsensus.state", "")), str(attributes.get("error.type", ""))]
    words += [f"in {span.parent.span_id:016x}" if span.parent else ""]
    words += [f"{(link.attributes or {})['cronsensus.link']!s}: {link.context.span_id:016x}" for link in span.links]
    return f"{span.context.span_id:016x}  {' | '.join(word for word in words if word)}\n"


def main() -> None:
    """Enqueue within a span, as a web framework's instrumentation has one around each request."""
    provider = TracerProvider(resource=Resource({"service.name": "shop"}))
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=one_line)))
    trace.set_tracer_provider(provider)
    with scheduler:
        with tracer.start_as_current_span("POST /invoices/42"):
            handle = charge.options(key="invoice:42").enqueue(42)
        handle.wait("30s")
    provider.shutdown()


if __name__ == "__main__":
    main()
