"""Watch for events and send alerts: a single run for each alert, for the whole cluster.

The run is an occurrence of an internal job, so the kernel's guarantees hold for it: one node has it, another takes it
over within a second of a death, and its token fences a node that was frozen. It never ends: each scan is an attempt
that snoozes, and keeps only the position of the scan (``Mark``). If a message cannot be sent, the attempt fails, and is
tried again from the same mark.

Not prevented: if a node dies between the receiver's answer and its own snooze, the message is sent again, with the same
id.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import json, structs

from cronsensus.alerts.alert import Alert
from cronsensus.alerts.conditions import (
    Expected,
    conditions_opened_by,
    find_dropped_jobs,
    find_job_conditions,
    find_node_conditions,
    find_waiting_conditions,
    merge_failures_in_row,
)
from cronsensus.alerts.events import SCAN_OVERLAP, SLOW_PREFIX, Event, Mark, read_events, read_mark
from cronsensus.alerts.message_words import MOST_EVENTS, events_as_data, write_subject, write_text
from cronsensus.alerts.muting import list_muted
from cronsensus.alerts.sending import LONGEST_WAIT, Message, Target, send_message
from cronsensus.errors import AlertNotSent, DuplicateJob, InvalidOption, Retry
from cronsensus.insight.clock_changes import zone_of
from cronsensus.insight.time_words import exact_time
from cronsensus.insight.why import explain_time
from cronsensus.model.ends import Again
from cronsensus.model.job import ALERT, JobSpec, is_internal
from cronsensus.model.occurrence import Item
from cronsensus.model.states import State
from cronsensus.node.hooks import EndsAs
from cronsensus.node.run import BaseRun
from cronsensus.process.logger import Logger
from cronsensus.stores.base import Store
from cronsensus.timing.clock import SystemClock
from cronsensus.timing.instants import from_micros, to_micros

SCAN_EVERY = timedelta(seconds=2)
"""Between two scans."""
CHECK_EVERY = timedelta(seconds=10)
"""Between two checks of what is expected of jobs."""
LONGEST_SNOOZE = timedelta(seconds=LONGEST_WAIT) + timedelta(minutes=1)
"""The next scan or try is never further away, even if a receiver asked to wait."""
MOST_MESSAGES = 4
"""Messages of an alert in ``MESSAGE_WINDOW``; further events go with the next message."""
MESSAGE_WINDOW = timedelta(seconds=60)
MOST_EXPLAINED = 10
"""A message with more events has no sentences of ``explain_time``, which takes several reads for each event."""
JOB_PREFIX = ALERT
RUN_KEY = "watch"
JOB_POLICIES: dict[str, Any] = {
    "retries": 2**31 - 1, "retry_delay": "1s", "retry_max_delay": "60s", "max_crashes": 2**31 - 1, "timeout": "60s",
    "concurrency": 1, "priority": 1_000_000, "keep": "1d",
}  # fmt: skip
"""Policies of the jobs: they never end, and go before other work."""

_log = Logger("cronsensus.alerts")
Send = Callable[[Target, Message, str | None], None]
_decode = json.Decoder(Mark).decode


class Alerts:
    """The alerts of one scheduler."""

    def __init__(
        self,
        alerts: Sequence[Alert],
        store: Callable[[], Store],
        expected: Callable[[], Mapping[str, Expected]] = dict,
        dashboard_url: Callable[[], str | None] = lambda: None,
        retired: Callable[[], Collection[str]] = tuple,
    ) -> None:
        """Prepare the alerts; the arguments that are functions are called at each scan.

        Args:
            alerts: the alerts.
            store: the store to watch.
            expected: what is expected of jobs, by name.
            dashboard_url: where people see the dashboard.
            retired: the jobs that the code declares to be gone on purpose.

        Raises:
            InvalidOption: something else than alerts.
            DuplicateJob: two alerts have the same name.
        """
        for alert in alerts:
            if not isinstance(alert, Alert):
                raise InvalidOption(f"alerts=[{alert!r}]: write alerts=[Alert('https://…', on=['failed'])]")
        self.by_name: dict[str, Alert] = {alert.name: alert for alert in alerts}
        if len(self.by_name) < len(alerts):
            names = [alert.name for alert in alerts]
            twice = next(name for name in names if names.count(name) > 1)
            raise DuplicateJob(f"two alerts are called {twice!r}; give one of them another name=…")
        self._store = store
        self._expected = expected
        self._dashboard_url = dashboard_url
        self._retired = retired
        self._warned: set[str] = set()

    def function_of(self, alert: Alert) -> Callable[..., Any]:
        """Return the function of an alert's job."""

        def watch(run: BaseRun) -> None:
            self._watch_once(alert, run)

        return watch

    def ensure_runs(self, store: Store, specs: Sequence[JobSpec]) -> None:
        """Enqueue the run of each alert under a fixed key, unless it exists.

        Called when the jobs are declared, and every half minute: an operator may have cancelled it.
        """
        self._warn_of_unmatched_patterns([spec.name for spec in specs if not is_internal(spec.name)])
        items = [Item(job=spec.name, key=RUN_KEY) for spec in specs if spec.name.startswith(JOB_PREFIX)]
        for enqueued in store.enqueue(items):
            # The run of an alert that was retired is cancelled, and the alert is declared again. Or the store's clock
            # was set back, and its run waits for a time that has been.
            is_over = enqueued.state.final or (
                enqueued.state is State.PENDING and self._sleeps_too_long(store, enqueued.id)
            )
            if is_over and store.forget(enqueued.job, RUN_KEY, by="cronsensus", why="watched anew", only=enqueued.id):
                store.enqueue([Item(job=enqueued.job, key=RUN_KEY)])

    @staticmethod
    def _sleeps_too_long(store: Store, number: int) -> bool:
        run = store.occurrence(number)
        return run is not None and run.state is State.PENDING and run.due_at - store.now() > LONGEST_SNOOZE

    def _warn_of_unmatched_patterns(self, jobs: Sequence[str]) -> None:
        for alert in self.by_name.values():
            if jobs and alert.name not in self._warned and alert.fits_none(jobs):
                self._warned.add(alert.name)
                _log.warning(
                    "alert %s is about no job that this program declares: jobs=%s; it tells of those that other "
                    "programs declare, or that are added later. This program has %s",
                    alert.name,
                    list(alert.jobs),
                    ", ".join(jobs[:5]) + (" …" if len(jobs) > 5 else ""),
                )

    def _watch_once(self, alert: Alert, run: BaseRun) -> None:
        store = self._store()
        own_run = store.occurrence(run.id)
        mark = read_mark(store) if own_run is None or own_run.note is None else _decode(own_run.note)
        if own_run is not None and own_run.note is not None:
            try:
                mark = self.send_next(alert, store, mark)
            except AlertNotSent as error:
                if error.after is None:
                    raise
                raise Retry(str(error), after=error.after) from error
        after = timedelta(0) if mark.pending else SCAN_EVERY
        raise EndsAs(Again(after, failed=False, note=json.encode(mark).decode()), "watching")

    def send_next(self, alert: Alert, store: Store, mark: Mark, send: Send | None = None) -> Mark:
        """Send the pending message of an earlier scan, or scan for new events; return the mark for the next call.

        Args:
            alert: the alert.
            store: the store to watch.
            mark: from the last call, or ``read_mark``.
            send: sends a message to its target; ``None``: over the network.

        Raises:
            AlertNotSent: the message was not taken, as far as is known.
        """
        return (self._send_pending if mark.pending else self._send_new)(alert, store, mark, send or send_message)

    def _send_pending(self, alert: Alert, store: Store, mark: Mark, send: Send) -> Mark:
        """Send the pending message; return the mark without it."""
        muted = _list_muted_jobs(store, mark.pending)
        if events := [event for event in mark.pending if event.job not in muted]:
            send(alert.target, self.make_message(alert, store, events, named_by=mark.pending), alert.secret)
        return structs.replace(mark, pending=(), sent=(*mark.sent, to_micros(store.now())))

    def _send_new(self, alert: Alert, store: Store, mark: Mark, send: Send) -> Mark:
        """Scan for new events, and send them; return the mark for the next scan, the same if it is too soon to send."""
        events_found, next_mark = read_events(
            store, mark, takeovers="taken_over" in alert.on, items="items_failed" in alert.on
        )
        events_found = merge_failures_in_row(store, events_found, alert.in_row, mark.open_conditions)
        # A node that was seen to be gone has been reported before its session ended.
        events_found = [
            event for event in events_found if event.key.replace("node:", "gone:", 1) not in mark.open_conditions
        ]
        conditions, next_mark = self._read_conditions(alert, store, next_mark, events_found)
        events_found += conditions
        muted = _list_muted_jobs(store, events_found)
        # A condition that lasts longer than the mute of its job is reported then.
        open_conditions = {
            key: at
            for key, at in next_mark.open_conditions.items()
            if key in mark.open_conditions or key.partition(":")[2] not in muted
        }
        next_mark = structs.replace(next_mark, open_conditions=open_conditions)
        events = [event for event in events_found if alert.wants_event(event) and event.job not in muted]
        now = to_micros(store.now())
        sent = tuple(at for at in mark.sent if now - MESSAGE_WINDOW // timedelta(microseconds=1) < at <= now)
        if not events:
            return structs.replace(next_mark, sent=sent)
        if len(sent) >= MOST_MESSAGES:
            return mark
        if len(events) <= MOST_EVENTS:
            # Keep the message in the mark before it is sent: after a death in between it keeps its id.
            return structs.replace(next_mark, sent=sent, pending=tuple(events))
        send(alert.target, self.make_message(alert, store, events), alert.secret)
        return structs.replace(next_mark, sent=(*sent, now))

    def _read_conditions(
        self, alert: Alert, store: Store, mark: Mark, events_found: list[Event]
    ) -> tuple[list[Event], Mark]:
        """Return the events of conditions that began or ended; they are checked once in ``CHECK_EVERY``."""
        open_conditions, now = mark.open_conditions | conditions_opened_by(events_found), store.now()
        expected = self._expected()
        checks_stalled, backlog = "stalled" in alert.on, alert.backlog if "backlog" in alert.on else None
        checks_nodes = "node_lost" in alert.on
        checks_drops = not {"overdue", "retired"}.isdisjoint(alert.on)
        has_checks = (
            open_conditions or expected or checks_stalled or checks_nodes or checks_drops or backlog is not None
        )
        # A mark in the future was made before the store's clock was set back.
        if not has_checks or 0 <= to_micros(now) - mark.checked < CHECK_EVERY // timedelta(microseconds=1):
            return [], structs.replace(mark, open_conditions=open_conditions)
        dropped: dict[str, Expected] = {}
        events: list[Event] = []
        if checks_drops:
            # Less far back than the mark remembers seen events.
            since = from_micros(max(mark.checked - SCAN_OVERLAP // timedelta(microseconds=2), mark.floor))
            events, dropped = find_dropped_jobs(store, mark.dropped, since, meant=self._retired())
            # A job that is declared again has recovered when it succeeds. A job that is gone on purpose is no longer
            # wrong.
            resolved = {
                f"overdue:{name}" for name in mark.dropped if name not in dropped and self._is_gone(store, name)
            }
            open_conditions = {key: at for key, at in open_conditions.items() if key not in resolved}
        retired = {event.key: to_micros(event.at) for event in events}
        conditions, open_conditions = find_job_conditions(store, {**expected, **dropped}, open_conditions, now)
        events += conditions
        if checks_stalled or backlog is not None:
            conditions, open_conditions = find_waiting_conditions(
                store, open_conditions, now, stalled=checks_stalled, backlog=backlog
            )
            events += conditions
        if checks_nodes:
            conditions, open_conditions = find_node_conditions(store, open_conditions, now)
            events += conditions
        slow = {event.key: to_micros(event.at) for event in events if event.event == "slow"}
        reported = {key: at for key, at in mark.seen.items() if key in slow or not key.startswith(SLOW_PREFIX)}
        events = [event for event in events if event.key not in reported]
        reported = slow | retired | reported
        return events, structs.replace(
            mark, open_conditions=open_conditions, checked=to_micros(now), seen=reported, dropped=tuple(sorted(dropped))
        )

    @staticmethod
    def _is_gone(store: Store, job: str) -> bool:
        view = store.job(job)
        return view is None or view.retired_at is not None

    def make_message(
        self, alert: Alert, store: Store, events: Sequence[Event], *, named_by: Sequence[Event] = ()
    ) -> Message:
        """Return the message for events; ``named_by``: the events of which its id is made, if not these."""
        views = {entry.job: store.job(entry.job) for entry in events[:MOST_EVENTS] if entry.job is not None}

        def show_time(event: Event, at: datetime) -> str:
            view = views.get(event.job or "")
            return exact_time(at) if view is None else exact_time(at, zone_of(view.spec.trigger))

        data = events_as_data(events)
        for entry, event in zip(data, events, strict=False):
            view, base = views.get(event.job or ""), self._dashboard_url()
            entry["url"] = None if base is None or event.run is None else f"{base.rstrip('/')}/runs/{event.run}"
            explain = view is not None and event.scheduled_for is not None and event.event in {"failed", "missed"}
            entry["why"] = None
            if explain and len(events) <= MOST_EXPLAINED and view is not None and event.scheduled_for is not None:
                entry["why"] = " ".join(map(str, explain_time(store, view, event.scheduled_for).sentences))
        subject_and_text = write_subject(events), write_text(events, show_time)
        return Message(alert.name, store.namespace, events, *subject_and_text, data, named_by or events)

    def try_out(self, alert: Alert, namespace: str) -> str | None:
        """Send a test message; return what went wrong."""
        now = SystemClock().now()
        event = Event(
            key=f"test:{now}", event=alert.on[0], at=now, job="test", node="test", reason="only a test"
        )  # a unique key: a receiver that remembers ids would take the next test for this one
        message = Message(
            alert.name, namespace, [event], "only a test", "This is only a test.", events_as_data([event]), [event]
        )
        try:
            send_message(alert.target, message, alert.secret)
        except Exception as error:  # noqa: BLE001 - returned to the caller
            return f"{type(error).__name__}: {error}"
        return None


def _list_muted_jobs(store: Store, events: Sequence[Event]) -> set[str]:
    """Return the muted jobs; without events it does not read them."""
    return {mute.job for mute in list_muted(store)} if events else set()
