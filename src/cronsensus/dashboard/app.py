"""The routes of the dashboard, and the application that answers them."""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode

from cronsensus.audit import audit
from cronsensus.dashboard import api, reads
from cronsensus.dashboard.access import Access, App, Auth, may_operate, who_acts
from cronsensus.dashboard.actions import ACTIONS, DONE_MESSAGES, PAGE_ZONE, Form, NoTargetError
from cronsensus.dashboard.attempt_bars import draw_attempts
from cronsensus.dashboard.audits import COUNT_COLUMNS, SPANS, Audits
from cronsensus.dashboard.batch_bar import draw_segments
from cronsensus.dashboard.day_cells import day_cells
from cronsensus.dashboard.forms import FIELD, FormRefusedError, keep_token, read_form, token_for
from cronsensus.dashboard.graph import MOST_JOBS, graph_page, graph_svg, night_link, rule_words
from cronsensus.dashboard.healthz import Healthz
from cronsensus.dashboard.job_index import JobIndex
from cronsensus.dashboard.language import (
    COOKIE,
    Words,
    choose_language,
    minute,
    read_moment,
)
from cronsensus.dashboard.live import DATA_OF, TAG, Live, page_tag
from cronsensus.dashboard.many_runs import MANY_RUNS_ACTIONS
from cronsensus.dashboard.now import By, read_now_page
from cronsensus.dashboard.numbers import count_nodes, read_nodes
from cronsensus.dashboard.page_zone import CHOSEN, PageZone, choose_zone
from cronsensus.dashboard.passwords import from_environment
from cronsensus.dashboard.past import MOST_READ, draw_calendar, plot_durations
from cronsensus.dashboard.queue import SPAN, read_queue_page
from cronsensus.dashboard.recent import Recent
from cronsensus.dashboard.run_again import run_again
from cronsensus.dashboard.run_filters import list_command, list_path, read_search
from cronsensus.dashboard.run_now import run_now
from cronsensus.dashboard.statuses import STORE_AWAY, status_of
from cronsensus.dashboard.strip import strip_svg
from cronsensus.errors import (
    CronsensusError,
    InvalidOption,
    InvalidPayload,
    InvalidTransition,
    MissingExtra,
    UnknownJob,
)
from cronsensus.insight.batches import batch_view
from cronsensus.insight.clock_changes import zone_of
from cronsensus.insight.definition_words import list_changes, list_policies
from cronsensus.insight.failures import MOST_FAILURES, group_failures, open_failures
from cronsensus.insight.graph import graph_of
from cronsensus.insight.ledger import ledger_page
from cronsensus.insight.lookup import require_job
from cronsensus.insight.next_times import next_times
from cronsensus.insight.run_list import RunSearch, list_runs
from cronsensus.insight.run_report import LogEntry, run_report
from cronsensus.insight.sentences import Sentence, Text
from cronsensus.insight.summaries import why_ended
from cronsensus.insight.time_words import read_time, shorten
from cronsensus.insight.trail_list import MOST_READ as TRAIL_READ
from cronsensus.insight.trail_list import TRAIL_FILTERS, list_trail, read_trail_search
from cronsensus.insight.why import explain_time
from cronsensus.model.batch import shown_key
from cronsensus.model.glance import Past
from cronsensus.model.job import Era
from cronsensus.model.ledger import TrailEntry
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import Origin, State
from cronsensus.payload.codec import dumps_masked, loads
from cronsensus.scheduler import Scheduler
from cronsensus.security.masking import mask, mask_data
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_edge, rules_of
from cronsensus.timing.instants import LATEST

try:
    import jinja2
    import markupsafe
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, RedirectResponse, Response
    from starlette.routing import Mount, Route
    from starlette.staticfiles import StaticFiles
except ImportError as error:
    raise MissingExtra(
        f'the dashboard needs {error.name or "a package"}, which is not installed; pip install "cronsensus[dashboard]"'
    ) from error

_HERE = Path(__file__).parent
_MOST_RUNS = 12
_MOST_LOG_LINES = 200
_MOST_LOCKS = 200
_MOST_TRAIL = 50
_LONGEST_REASON = 1000
_MOST_CHANGES = 12
_MOST_LINES = 50
_SHOW_COMMAND = re.compile(r"\bcronsensus runs show ([0-9]{1,18})\b")
_NO_PAGE = "There is no such page"
_YEAR_SECONDS = 365 * 24 * 3600
_EMPTY_TAG = 'data-seen=""'
_FILTERS_OF_LANGUAGE = (
    "clock",
    "minute",
    "precise",
    "short",
    "hour",
    "day",
    "coarse",
    "took",
    "what_for",
    "why_ended",
    "reason",
    "value",
    "tick",
    "weekday",
)
STATES_OF_ITEMS = frozenset({"pending", "running", "succeeded", "failed", "cancelled", "skipped"})


def dashboard(
    source: Scheduler | Store,
    *,
    auth: Auth | None = None,
    read_only: bool = False,
    by: str = "dashboard",
    live: Literal["stream", "poll"] = "stream",
) -> App:
    """Return the dashboard as an ASGI application, to be served alone or mounted under any prefix.

    Without ``auth`` and without a password in the environment (``CRONSENSUS_DASHBOARD_TOKEN``, or ``…_USER`` and
    ``…_PASSWORD``) it answers a browser on this machine only, and refuses requests that came through a proxy.

    Args:
        source: the Scheduler, or the store, to show. It is read for each page, and never closed.
        auth: takes the request (Starlette's) and returns ``"read"``, ``"operate"``, or ``None``: refused; plain or
            async. It may set ``request.state.user``: who acts, for the trail. An exception refuses the request.
        read_only: nobody can act.
        by: who acts, for the trail, where ``auth`` names nobody.
        live: how open pages stay current: by a stream of events, or by polling.

    Raises:
        ConfigurationError: a password in the environment is too short, or half of it is missing.
    """
    pages = _Pages(source, live)
    current = Live()
    routes = [
        Route("/", pages.now),
        Route("/jobs", pages.jobs),
        Route("/job", pages.job),
        Route("/runs", pages.runs),
        Route("/runs/{number}", pages.run),
        Route("/runs/{number}/items", pages.items),
        Route("/nodes", pages.nodes),
        Route("/queue", pages.queue),
        Route("/graph", pages.graph),
        Route("/locks", pages.locks),
        Route("/trail", pages.trail),
        Route("/failed", pages.failed),
        *api.api_routes(lambda: pages.store),
        Route("/do/{action}", pages.show_action, methods=["GET"]),
        Route("/do/{action}", pages.run_action, methods=["POST"]),
        Route("/live", current.answer),
        Route("/ledger", pages.ledger),
        Mount("/static", StaticFiles(directory=_HERE / "static")),
    ]
    handlers: Mapping[Any, Callable[[Request, Exception], Response]] = {
        HTTPException: pages.no_page,
        FormRefusedError: pages.no_form,
        UnknownJob: pages.no_job,
        NoTargetError: pages.no_target,
        CronsensusError: pages.no_answer,
    }
    app = current.app = Starlette(routes=routes, exception_handlers=handlers)
    return Access(app, auth or from_environment(), read_only=read_only, by=by, healthz=Healthz(lambda: pages.store))


class _Pages:
    """Reads what a page shows, and writes it as HTML. Its methods run in threads, because a store may be slow."""

    def __init__(self, source: Scheduler | Store, live: str) -> None:
        self._source = source
        self._live = live
        self._index = JobIndex()
        self._recent = Recent()
        self._audits = Audits()
        self._acting = threading.Lock()
        code = source if isinstance(source, Scheduler) else None
        self._actions = {**ACTIONS, **MANY_RUNS_ACTIONS, "trigger": run_now(code), "retry": run_again()}
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_HERE / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(
            shorten=shorten, json=dumps_masked, stamp=_stamp, exact=_exact, strip=strip_svg,
            linked=_linked, list_changes=list_changes, item_key=shown_key, segments=draw_segments,
            graph_svg=graph_svg, day_cells=day_cells, rule_words=rule_words, night_link=night_link,
            **{name: _make_filter(name) for name in _FILTERS_OF_LANGUAGE},
        )  # fmt: skip

    @property
    def store(self) -> Store:
        return self._source.store if isinstance(self._source, Scheduler) else self._source

    # --- pages --------------------------------------------------------------------------------------------------------

    def now(self, request: Request) -> Response:
        store = self.store
        by, everything = request.query_params.get("by", ""), request.query_params.get("all") == "1"
        grouping: By = "job" if by == "job" else "list" if by == "list" else "node"
        page = read_now_page(store, by=grouping, everything=everything, recent=self._recent, zone=_zone(request).zone)
        return self._page(request, "now.html", page.now, page=page, all=everything, command="cronsensus doctor")

    def jobs(self, request: Request) -> Response:
        query = request.query_params.get("q", "").strip()[:200]
        store = self.store
        # The same field finds jobs and runs: nobody remembers which of two fields takes the number.
        if (number := _number(query)) is not None and store.occurrence(number) is not None:
            return RedirectResponse(f"{_base(request)}/runs/{number}", 303)
        after = request.query_params.get("after", "")[:400]
        only = request.query_params.get("only", "")
        page = reads.read_job_page(store, self._index, after=after, words=query, only=only)
        next_query = urlencode({"q": query, "only": only, "after": page.more}) if page.more else ""
        return self._page(
            request, "jobs.html", store.now(), page=page, words=query, only=only, after=after, more=next_query,
            chips=[(only, urlencode({"q": query, "only": only})) for only in ("", *reads.JOB_FILTERS)],
            counts=store.counts(), length=reads.STRIP_LENGTH, command="cronsensus jobs list",
        )  # fmt: skip

    def job(self, request: Request) -> Response:
        store = self.store
        view = require_job(store, request.query_params.get("name", ""))
        name, now, trigger = view.spec.name, store.now(), view.spec.trigger
        fires = trigger is not None and view.retired_at is None and view.spec.keeper is None
        before = request.query_params.get("before", "")
        after = _number(before)
        past = store.last_of([name], limit=MOST_READ).get(name, Past())
        row = reads.make_job_row(view, replace(past, glances=past.glances[: reads.MOST_MEASURED]), now)
        runs = store.occurrences(OccurrenceFilter(job=name), after=after, limit=_MOST_RUNS + 1)
        zone = zone_of(trigger)
        full_graph = graph_of(rules_of(every_edge(store)))
        downstream = [
            dependent for dependent, rules in full_graph.rules.items() if any(rule.job == name for rule in rules)
        ]
        times = next_times(trigger, now, 10, zone) if fires and trigger is not None else []
        acts = store.trail(target=name, limit=_MOST_CHANGES)
        return self._page(
            request, "job.html", now, before=full_graph.rules.get(name, ()), downstream=downstream, view=view, row=row,
            zone=zone,
            calendar=draw_calendar(past, now, _zone(request, zone).zone), plot=plot_durations(past, row.p50, row.p95),
            eras=_other_eras(store.history(name).eras, acts), trail=acts, policies=list_policies(view.spec),
            times=times,
            runs=runs[:_MOST_RUNS], reasons=any(why_ended(run) for run in runs[:_MOST_RUNS]),
            earlier=runs[_MOST_RUNS - 1].id if len(runs) > _MOST_RUNS else None,
            args=view.spec.args, kwargs=view.spec.kwargs,
            length=reads.STRIP_LENGTH, command=f"cronsensus jobs show {name}",
        )  # fmt: skip

    def ledger(self, request: Request) -> Response:
        """Show the ledger of a job; without a job, the audit of all."""
        if "job" not in request.query_params:
            return self._audit(request)
        store = self.store
        view = require_job(store, request.query_params.get("job", ""))
        name, now, zone = view.spec.name, store.now(), zone_of(view.spec.trigger)
        at = request.query_params.get("at", "").strip()[:80]
        moment = read_moment(at, now, _zone(request, zone).zone) if at else None
        until = read_moment(request.query_params.get("until", "")[:80], now, UTC) or now
        page = ledger_page(store, view, view.created_at, until, now=now, limit=_MOST_LINES)
        older = "" if page.more_before is None else urlencode({"job": name, "until": page.more_before.isoformat()})
        return self._page(
            request, "ledger.html", now, 400 if at and moment is None else 200,
            view=view, zone=zone, at=at, unreadable=bool(at) and moment is None,
            sentences=explain_time(store, view, moment).sentences if moment is not None else (),
            report=audit(store, jobs=(name,), since=now - reads.DAY), lines=page.lines[::-1], older=older,
            command=f"cronsensus audit {name} --from 1d",
        )  # fmt: skip

    def _audit(self, request: Request) -> Response:
        store, span = self.store, request.query_params.get("span", "")
        new_audit = self._audits.make_audit(store, span) if span in SPANS else None
        audited = new_audit or self._audits.last
        return self._page(
            request, "audit.html", store.now(), audited=audited, busy=span in SPANS and new_audit is None,
            spans=SPANS, columns=COUNT_COLUMNS, trouble={"failed", "missed", "duplicates"},
            command="cronsensus audit --from " + (audited.span if audited is not None else "1d"),
        )  # fmt: skip

    def runs(self, request: Request) -> Response:
        """Show the runs that match the query."""
        store, query = self.store, dict(request.query_params)
        now, after = store.now(), _number(query.get("after", ""))
        try:
            search = read_search(query, now, batch=_number(query.get("batch", "")), zone=_zone(request).zone)
            problem = ""
        except InvalidOption as error:
            search, problem = RunSearch(), str(error)
        page = list_runs(store, search, after=after, limit=reads.PAGE)
        return self._page(
            request, "runs.html", now, 400 if problem else 200, page=page, wanted=search, given=query, after=after,
            wrong=problem, more="" if page.after is None else list_path(query, after=str(page.after)),
            filtered=list_path(query) != "/runs", list_path=list_path, origins=[str(one) for one in Origin],
            still=page.read > 2 * reads.PAGE, command=list_command(query),
        )  # fmt: skip

    def run(self, request: Request) -> Response:
        store = self.store
        number = _number(request.path_params["number"])
        occurrence = None if number is None else store.occurrence(number)
        if occurrence is None:
            return self._missing(request, "There is no such run")
        view = store.job(occurrence.job)
        words, attempt = request.query_params.get("log", "").strip()[:200], request.query_params.get("attempt", "")
        report = run_report(store, occurrence, log_lines=_MOST_LOG_LINES, keep=_log_filter(words, _number(attempt)))
        same = OccurrenceFilter(job=occurrence.job, parent=occurrence.parent)
        # The neighbours of a batch may be items: its own, or those of the batch before, which is then shown.
        before, following = (
            [
                number
                for neighbour in store.occurrences(same, after=occurrence.id, limit=1, newest_first=newest)
                if (number := neighbour.id if occurrence.parent else neighbour.parent or neighbour.id) != occurrence.id
            ]
            for newest in (True, False)
        )
        sentences: tuple[Sentence, ...] = ()
        if occurrence.scheduled_for is not None and occurrence.origin is Origin.SCHEDULE and view is not None:
            explained = explain_time(store, view, occurrence.scheduled_for).sentences
            # The error, and the button to run it again, are on this page.
            sentences = tuple(sentence for sentence in explained if sentence.code is not Text.SEE_ERROR)
        return self._page(
            request, "run.html", store.now(), zone=None if view is None else zone_of(view.spec.trigger),
            one=occurrence, view=view, report=report, sentences=sentences, words=words, attempt=attempt,
            before=before, following=following, bars=draw_attempts(report.attempts, store.now()),
            steps=_steps(occurrence, report.attempts[0].started_at if report.attempts else occurrence.started_at),
            args=occurrence.args, kwargs=mask_data(occurrence.kwargs),
            result=_result(occurrence), command=f"cronsensus runs show {occurrence.id}",
        )  # fmt: skip

    def items(self, request: Request) -> Response:
        """Show the items of a batch, in the order of its list; ``state`` narrows them."""
        store = self.store
        number = _number(request.path_params["number"])
        batch = None if number is None else store.occurrence(number)
        if batch is None:
            return self._missing(request, "There is no such run")
        after, state = request.query_params.get("after", ""), request.query_params.get("state", "")
        states = (State(state),) if state in STATES_OF_ITEMS else ()
        items = store.occurrences(
            OccurrenceFilter(parent=number, states=states), limit=reads.PAGE + 1, newest_first=False,
            after=_number(after),
        )  # fmt: skip
        more_query = {"state": state} if states else {}
        return self._page(
            request, "items.html", store.now(), one=batch, items=items[: reads.PAGE], state=state if states else "",
            batch=batch_view(store, batch, store.runs(batch.id), store.now()),
            more=urlencode({**more_query, "after": items[reads.PAGE - 1].id}) if len(items) > reads.PAGE else "",
            command=f"cronsensus runs list --batch {number}" + (f" --state {state}" if states else ""),
        )  # fmt: skip

    def nodes(self, request: Request) -> Response:
        store = self.store
        nodes, now = read_nodes(store), store.now()
        return self._page(
            request, "nodes.html", now, nodes=nodes, standing=count_nodes(nodes, now - reads.DAY),
            command="cronsensus nodes list --ended",
        )  # fmt: skip

    def failed(self, request: Request) -> Response:
        store = self.store
        job = request.query_params.get("job", "")[:400]
        span = request.query_params.get("since", "")[:20] or "1d"
        now = store.now()
        try:
            since, problem = read_time(span, now, what="since"), ""
        except CronsensusError as error:
            since, span, problem = now - reads.DAY, "1d", str(error)
        failures = open_failures(store, job=job or None, since=since)
        return self._page(
            request, "failed.html", now, 400 if problem else 200,
            groups=group_failures(failures), total=len(failures), most=MOST_FAILURES, job=job, since=span,
            wrong=problem, command=f"cronsensus runs failed --since {span}",
        )  # fmt: skip

    def queue(self, request: Request) -> Response:
        after_text = request.query_params.get("after", "")
        after = _number(after_text)
        page = read_queue_page(self.store, after)
        return self._page(
            request, "queue.html", page.now, page=page, after=after, span=SPAN.seconds // 60,
            command="cronsensus runs list --state pending",
        )  # fmt: skip

    def graph(self, request: Request) -> Response:
        store = self.store
        now, job = store.now(), request.query_params.get("job", "")[:400]
        full_graph = graph_of(rules_of(every_edge(store)))
        at_text = request.query_params.get("at", "").strip()[:80]
        at = read_moment(at_text, now, UTC) if at_text else None
        page = graph_page(store, full_graph, job, at)
        return self._page(
            request, "graph.html", now, page=page, job=job, most=MOST_JOBS,
            command="cronsensus graph" + (f" --job {job}" if job else ""),
        )  # fmt: skip

    def locks(self, request: Request) -> Response:
        store = self.store
        locks = store.locks(limit=_MOST_LOCKS + 1)
        return self._page(
            request, "locks.html", store.now(), locks=locks[:_MOST_LOCKS], more=len(locks) > _MOST_LOCKS,
            command="cronsensus locks list",
        )  # fmt: skip

    def trail(self, request: Request) -> Response:
        store = self.store
        query = {name: request.query_params.get(name, "").strip()[:400] for name in TRAIL_FILTERS}
        after, now, problem = _number(request.query_params.get("before", "")), store.now(), ""
        try:
            search = read_trail_search(query, now, _zone(request).zone)
        except CronsensusError as error:
            search, problem = read_trail_search({"target": query["target"]}, now), str(error)
        page = list_trail(store, search, after=after, limit=_MOST_TRAIL)
        filters = {name: text for name, text in query.items() if text}
        options = [f"{'' if name == 'target' else f'--{name} '}{shlex.quote(text)}" for name, text in filters.items()]
        return self._page(
            request, "trail.html", now, 400 if problem else 200, page=page, given=query, filtered=bool(filters),
            wrong=problem, most_read=TRAIL_READ,
            more="" if page.after is None else urlencode({"before": page.after, **filters}),
            command=" ".join(["cronsensus trail", *options]),
        )  # fmt: skip

    # --- acting -------------------------------------------------------------------------------------------------------

    def show_action(self, request: Request) -> Response:
        """Show what an action would do."""
        if not may_operate(request.scope):
            return self._missing(request, "You may look, and not act", status=403)
        action = self._actions.get(request.path_params["action"])
        if action is None:
            return self._missing(request, _NO_PAGE)
        return self._form(request, action.form(self.store, _given(request) | {PAGE_ZONE: _zone(request).name}))

    async def run_action(self, request: Request) -> Response:
        """Carry out an action, if its target has not changed since the form was shown."""
        fields = await read_form(request)
        return await run_in_threadpool(self._act_alone, request, fields)

    def _act_alone(self, request: Request, fields: dict[str, str]) -> Response:
        # If two people send the same form at once, the second sees that the target has changed.
        with self._acting:
            return self._run_action(request, fields)

    def _run_action(self, request: Request, fields: dict[str, str]) -> Response:
        name = request.path_params["action"]
        action = self._actions.get(name)
        if action is None:
            return self._missing(request, _NO_PAGE)
        store = self.store
        form = action.form(store, fields)
        reason = fields.get("reason", "").strip()[:_LONGEST_REASON]
        problem = None
        if form.refused is not None:
            problem = form.refused
        elif fields.get("seen", "") != form.seen:
            problem = ("It has changed since this form was opened. Look again.",)
        elif form.reason and not reason:
            problem = ("Say why, in a few words: whoever finds it wants to know.",)
        if problem is not None:
            return self._form(request, form, problem, 409)
        try:
            path = action.carry_out(store, fields, who_acts(request.scope), reason)
        except (InvalidOption, InvalidPayload, InvalidTransition) as error:
            return self._form(request, form, ("{0}", str(error)), 409)
        store.notify()
        separator = "&" if "?" in path else "?"
        return RedirectResponse(f"{_base(request)}{path}{separator}{urlencode({'did': name})}", 303)

    def _form(
        self, request: Request, form: Form, problem: tuple[Any, ...] | None = None, status: int = 200
    ) -> Response:
        token = token_for(request)
        response = self._page(
            request, "form.html", self.store.now(), status, form=form, wrong=problem, token=token, field=FIELD,
            action=request.path_params["action"], command=form.command,
        )  # fmt: skip
        keep_token(request, response, token, _base(request))
        return response

    # --- what went wrong ----------------------------------------------------------------------------------------------

    def no_page(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        if status != 404:
            return Response(status_code=status, headers=getattr(error, "headers", None))
        return self._missing(request, _NO_PAGE)

    def no_job(self, request: Request, error: Exception) -> Response:
        return self._missing(request, "There is no such job", str(error).partition(";")[0])

    def no_target(self, request: Request, error: Exception) -> Response:
        return self._missing(request, str(error))

    def no_form(self, request: Request, error: Exception) -> Response:
        return self._missing(request, str(error), status=getattr(error, "status", 400))

    def no_answer(self, request: Request, error: Exception) -> Response:
        """Answer with the error: of the request, of a record that cannot be read, or of a store that is away."""
        status = status_of(error) if isinstance(error, CronsensusError) else 500
        if status != STORE_AWAY:
            title = "This cannot be shown" if status == 500 else "The address asks for something that cannot be"
            return self._missing(request, title, mask(str(error)), status)
        happened, _, next_command = mask(str(error)).partition("; ")
        return self._page(
            request, "away.html", None, 503, what=happened, then=next_command, command="cronsensus doctor"
        )

    def _missing(self, request: Request, title: str, detail: str = "", status: int = 404) -> Response:
        details = {
            "title": title,
            "detail": detail,
            "gone": status == 404 and title != _NO_PAGE,
            "command": "cronsensus jobs list",
        }
        return self._page(request, "missing.html", None, status, **details)

    # --- as HTML ------------------------------------------------------------------------------------------------------

    def _page(self, request: Request, template: str, now: datetime | None, status: int = 200, **data: Any) -> Response:
        chosen_language = request.query_params.get("lang")
        language = choose_language(
            chosen_language, request.cookies.get(COOKIE), request.headers.get("accept-language", "")
        )
        base = _base(request)
        namespace = self._source.settings.value("namespace") if isinstance(self._source, Scheduler) else (
            self._source.namespace
        )  # fmt: skip
        zone = _zone(request, data.get("zone"))
        language_and_zone = {"zone": zone, "t": Words(language, now, zone.zone)}
        text = self._templates.get_template(template).render(
            base=base,
            here=template.partition(".")[0],
            now=now,
            namespace=namespace,
            switch=lambda name, value: _switched(request, name, value),
            acts=may_operate(request.scope),
            live=self._live,
            done=DONE_MESSAGES.get(request.query_params.get("did", "")),
            do=lambda action, **target: f"{base}/do/{action}?{urlencode(target)}",
            job_link=lambda name: f"{base}/job?{urlencode({'name': name})}",
            **data | language_and_zone,
        )
        tag, data_of = page_tag(text), "" if now is None else now.isoformat()
        text = text.replace(_EMPTY_TAG, f'data-seen="{tag}"', 1)
        headers = {"cache-control": "no-store", "vary": "accept-language, cookie", TAG: tag, DATA_OF: data_of}
        response = HTMLResponse(text, status, headers=headers)
        cookies = [(COOKIE, language)] if chosen_language == language else []
        cookies += [(CHOSEN, zone.choice)] if request.query_params.get("zone") == zone.choice else []
        for name, value in cookies:
            secure = request.url.scheme == "https"
            response.set_cookie(
                name, value, max_age=_YEAR_SECONDS, path=base or "/", httponly=True, samesite="lax", secure=secure
            )
        return response


def _zone(request: Request, job: tzinfo | None = None) -> PageZone:
    """Return the zone of a page; ``job``: that of the schedule, on a page of one job."""
    return choose_zone(request.query_params.get("zone"), request.cookies, job)


def _switched(request: Request, name: str, value: str) -> str:
    """Return the address of this page in another language or zone."""
    others = [pair for pair in request.query_params.multi_items() if pair[0] not in {name, "did"}]
    return f"?{urlencode([*others, (name, value)])}"


def _make_filter(name: str) -> Any:
    """Return the filter that writes a value in the language and zone of its page."""

    @jinja2.pass_context
    def render_value(context: jinja2.runtime.Context, *values: Any) -> str:
        return str(getattr(context["t"], name)(*values))

    return render_value


def _given(request: Request) -> dict[str, str]:
    """Return the query of a request; the ids of ticked runs are joined into a text."""
    query = dict(request.query_params)
    return query | {"runs": " ".join(request.query_params.getlist("runs"))} if "runs" in query else query


def _number(text: str) -> int | None:
    """Return the id that a text holds; ``None``: it is no id that a store may have."""
    return int(text) if text.isdecimal() and len(text) < 19 else None


def _base(request: Request) -> str:
    """Return the path under which the dashboard is mounted."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def _other_eras(eras: Sequence[Era], acts: Sequence[TrailEntry]) -> list[Era]:
    """Return the eras that no entry of the trail covers, the newest first."""
    in_trail = {act.at for act in acts if act.action == "define"}
    return [era for era in reversed(eras) if era.since not in in_trail][:_MOST_CHANGES]


def _steps(occurrence: Occurrence, started: datetime | None) -> list[tuple[str, datetime | None, timedelta | None]]:
    """Return the steps of an occurrence, each with the time since the step before.

    A claim has no time of its own on record: an attempt begins with it. A parked batch is never due.
    """
    stations = [
        ("Scheduled", occurrence.scheduled_for),
        ("Due", None if occurrence.due_at >= LATEST else occurrence.due_at),
        ("Decided", occurrence.created_at),
        ("Claimed, started", started),
        ("Finished", occurrence.finished_at),
    ]
    steps: list[tuple[str, datetime | None, timedelta | None]] = []
    previous: datetime | None = None
    for name, at in stations:
        steps.append((name, at, None if at is None or previous is None else at - previous))
        previous = at or previous
    return steps


def _log_filter(text: str, attempt: int | None) -> Callable[[LogEntry], bool] | None:
    """Return which lines of a log are shown; ``None``: all."""
    if not text and attempt is None:
        return None
    lowered = text.lower()
    return lambda entry: attempt in {None, entry[1]} and lowered in f"{entry[2].level} {entry[2].text}".lower()


def _result(occurrence: Occurrence) -> str:
    return "" if occurrence.result is None else dumps_masked(loads(occurrence.result))


def _linked(text: str, base: str) -> str:
    """Return a sentence as HTML; a command that shows a run becomes a link to its page."""
    escaped = str(markupsafe.escape(text))
    return markupsafe.Markup(_SHOW_COMMAND.sub(rf'<a href="{markupsafe.escape(base)}/runs/\1">\g<0></a>', escaped))  # noqa: S704 - escaped


def _exact(instant: datetime) -> str:
    """Return an instant in the form that the page's script reads."""
    return f"{instant.astimezone(UTC).isoformat('T', 'milliseconds')[:-6]}Z"


def _stamp(instant: datetime) -> str:
    return minute(instant).replace(" ", "T")
