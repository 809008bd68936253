"""A job that runs in a process of its own."""

from opentelemetry import trace


def tell_trace() -> list[str]:
    here = trace.get_current_span().get_span_context()
    return [format(here.trace_id, "032x"), format(here.span_id, "016x")]
