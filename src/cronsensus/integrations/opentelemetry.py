"""A span of OpenTelemetry for each attempt, linked to the span in which its run was enqueued.

::

    enqueue ── traceparent ──▶ the run's headers ──▶ claim ──▶ span of the attempt ──▶ the job's own spans
                                                                 └── ended by run.ended: state, reason, error

The span begins with the function, and ends when the store has recorded the end. So its attributes are those of the
ledger. Needs ``pip install "cronsensus[otel]"``.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from cronsensus.errors import MissingExtra
from cronsensus.events import RunEnded
from cronsensus.model.job import is_internal
from cronsensus.model.occurrence import Claim
from cronsensus.node.hooks import Admission, Admit, Hooks, InContext
from cronsensus.process.forking import register_for_forks
from cronsensus.process.logger import Logger
from cronsensus.scheduler import Scheduler
from cronsensus.timing.clock import SystemClock
from cronsensus.timing.instants import format_instant, to_micros

try:
    from opentelemetry import context as contexts
    from opentelemetry import trace
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise MissingExtra(f'spans need {error.name}, which is not installed; pip install "cronsensus[otel]"') from error

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext, Tracer, TracerProvider

MOST_OPEN = 10_000
"""Open spans at most. If lost events leave more, the oldest are ended without the outcome of their runs."""
MOST_REMEMBERED = 1_000
"""Unfinished runs of which the span of the last attempt is remembered."""
EXTRA_NAME = "opentelemetry"
FAILED_ENDS = frozenset({"failed", "crashed", "refused"})
"""Ends that mark a span as an error, also without an exception."""
FINAL_ENDS = frozenset({"succeeded", "failed", "cancelled", "skipped"})

_format = TraceContextTextMapPropagator()
_clock = SystemClock()
_log = Logger("cronsensus.opentelemetry")


def trace_runs(scheduler: Scheduler, *, tracer_provider: TracerProvider | None = None) -> None:
    """Make a span for each attempt on this scheduler's node, linked to the span that enqueued its run.

    Without a provider that records, no span is made, and nothing is written with a run.

    Args:
        scheduler: of each replica, and of each program that only enqueues; before its start.
        tracer_provider: defaults to that of ``opentelemetry.trace.set_tracer_provider``, which may be set later.

    Raises:
        ConfigurationError: the scheduler is started.

    Example:
        >>> from cronsensus import Scheduler
        >>> from cronsensus.integrations.opentelemetry import trace_runs
        >>> scheduler = Scheduler("memory://")
        >>> trace_runs(scheduler)
    """
    tracer = trace.get_tracer("cronsensus", version("cronsensus"), tracer_provider)
    spans = _Spans(scheduler, tracer, uses_global=tracer_provider is None)
    scheduler._add_room(lambda _: Hooks(_Tracing(spans)), _current_headers)  # noqa: SLF001 - an integration of ours


def _current_headers() -> Mapping[str, str] | None:
    """Return the current trace context in the form of W3C's Trace Context; ``None``: there is no span."""
    if not trace.get_current_span().get_span_context().is_valid:
        return None
    headers: dict[str, str] = {}
    _format.inject(headers)
    return headers


class _Tracing(Admission):
    """Lets every claim start, with a span."""

    def __init__(self, spans: _Spans) -> None:
        self._spans = spans

    def concerns_claim(self, claim: Claim) -> bool:
        return self._spans.are_wanted() and not is_internal(claim.job)

    def decide_claim(self, claim: Claim) -> Admit:
        return Admit({EXTRA_NAME: _Attempt(self._spans, claim)})


class _Attempt(InContext):
    """The span of a run; it is made when its function is about to be called, here or in a child process."""

    def __init__(self, spans: _Spans, claim: Claim) -> None:
        self._spans = spans
        self._claim = claim

    def enter_context(self) -> None:
        if (span := self._spans.start_span(self._claim)) is not None:
            contexts.attach(trace.set_span_in_context(span))

    def pack_call(self) -> tuple[str, Any]:
        headers: dict[str, str] = {}
        if (span := self._spans.start_span(self._claim)) is not None:
            _format.inject(headers, trace.set_span_in_context(span))
        return f"{__name__}:EnteredElsewhere", headers


class EnteredElsewhere(InContext):
    """The attempt's span in a job's own process; it is open in the process of the node."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._headers = headers

    def enter_context(self) -> None:
        """Make the job's own spans children of it."""
        contexts.attach(_format.extract(self._headers))


class _Spans:
    """The open spans of a scheduler."""

    def __init__(self, scheduler: Scheduler, tracer: Tracer, *, uses_global: bool) -> None:
        self._scheduler = scheduler
        self._tracer = tracer
        self._uses_global = uses_global
        self._subscribed = False
        register_for_forks(self)
        self.forked()

    def forked(self) -> None:
        """Forget the spans of the parent, which ends them."""
        self._lock = threading.Lock()
        self._open: OrderedDict[tuple[int, int], tuple[Span, int]] = OrderedDict()
        self._known: OrderedDict[int, SpanContext] = OrderedDict()

    def are_wanted(self) -> bool:
        """Whether there is a provider. Without one no events and no spans are made."""
        if not self._subscribed:
            if self._uses_global and isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
                return False
            # Before a run starts: the end of a run that started earlier has an event only if its function returns.
            self._scheduler.on(RunEnded, self._end_span)
            self._subscribed = True
        return True

    def start_span(self, claim: Claim) -> Span | None:
        """Start the span of an attempt; ``None``: that failed, which must not stop the run."""
        try:
            return self._start_span(claim)
        except Exception:  # noqa: BLE001 - logged; a provider, a sampler and a processor are the application's
            _log.exception("the span of run %d of %r could not be started", claim.id, claim.job)
            return None

    def _start_span(self, claim: Claim) -> Span:
        started_at = _clock.now()
        lateness = max(0.0, (started_at - claim.due_at).total_seconds())
        attributes = {
            **_describe_claim(claim), "cronsensus.node": self._scheduler.node_name, "cronsensus.lateness": lateness
        }  # fmt: skip
        enqueued = trace.get_current_span(_format.extract(claim.headers or {})).get_span_context()
        previous = self._known.get(claim.id)
        links = [
            trace.Link(enqueuing_span, {"cronsensus.link": word})
            for enqueuing_span, word in ((enqueued, "enqueued"), (previous, "attempt before"))
            if enqueuing_span is not None and enqueuing_span.is_valid
        ]
        span = self._open_span(claim.job, attributes, started_at, links)
        if span.is_recording():
            self._keep_span((claim.id, claim.token), span, to_micros(started_at) * 1000)
        return span

    def _open_span(self, job: str, attributes: Mapping[str, Any], at: datetime, links: list[trace.Link]) -> Span:
        # A new trace: a run may begin days after it was enqueued, and a single span may enqueue a thousand.
        return self._tracer.start_span(
            f"process {job}", contexts.Context(), trace.SpanKind.CONSUMER,
            attributes, links, to_micros(at) * 1000, record_exception=False, set_status_on_exception=False,
        )  # fmt: skip

    def _keep_span(self, key: tuple[int, int], span: Span, began_ns: int) -> None:
        with self._lock:
            self._open[key] = span, began_ns
            self._known[key[0]] = span.get_span_context()
            self._known.move_to_end(key[0])
            evicted = self._open.popitem(last=False)[1][0] if len(self._open) > MOST_OPEN else None
            if len(self._known) > MOST_REMEMBERED:
                self._known.popitem(last=False)
        if evicted is not None:
            evicted.end()

    def _end_span(self, event: RunEnded) -> None:
        """End the span of an attempt; on the thread of subscribers."""
        with self._lock:
            span, began_ns = self._open.pop((event.occurrence, event.token), (None, 0))
            if event.end in FINAL_ENDS:
                self._known.pop(event.occurrence, None)
        if span is None:
            return  # its function was never called
        span.set_attribute("cronsensus.state", event.end)
        if event.reason is not None:
            span.set_attribute("cronsensus.reason", event.reason)
        if (error := event.error) is not None:
            span.set_attribute("error.type", error.type)
            span.add_event("exception", {
                "exception.type": error.type, "exception.message": error.message,
                "exception.stacktrace": error.traceback,
            })  # fmt: skip
            span.set_status(trace.StatusCode.ERROR, f"{error.type}: {error.message}")
        elif event.end in FAILED_ENDS:
            span.set_attribute("error.type", event.end)
            span.set_status(trace.StatusCode.ERROR, event.reason or event.end)
        # Not now, which is later by what the store took to answer.
        span.end(None if event.seconds is None else began_ns + round(event.seconds * 1e9))


def _describe_claim(claim: Claim) -> dict[str, Any]:
    attributes: dict[str, Any] = {
        "messaging.system": "cronsensus", "messaging.operation.name": "process", "messaging.operation.type": "process",
        "messaging.destination.name": claim.job, "messaging.message.id": str(claim.id), "cronsensus.job": claim.job,
        "cronsensus.run": claim.id, "cronsensus.key": claim.key, "cronsensus.attempt": claim.attempt,
        "cronsensus.token": claim.token, "cronsensus.session": claim.session, "cronsensus.origin": claim.origin.value,
    }  # fmt: skip
    if claim.scheduled_for is not None:
        attributes["cronsensus.scheduled_for"] = format_instant(claim.scheduled_for)
    return attributes
