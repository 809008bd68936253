"""The read-only API of the dashboard: the same JSON documents as ``-o json`` of the commands.

To act, use the pages or the command line: both show first what will happen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from cronsensus.dashboard.run_filters import FILTERS, read_search
from cronsensus.dashboard.statuses import status_of
from cronsensus.errors import CronsensusError, InvalidOption
from cronsensus.insight.as_data import (
    batch_data,
    failures_data,
    job_data,
    json_leaf,
    log_data,
    occurrence_data,
    pick_fields,
    run_data,
    run_page_data,
    session_data,
    trail_data,
)
from cronsensus.insight.clock_changes import zone_of
from cronsensus.insight.failures import group_failures, open_failures
from cronsensus.insight.health import read_health
from cronsensus.insight.life import lives_of
from cronsensus.insight.lookup import require_job
from cronsensus.insight.next_times import next_times
from cronsensus.insight.run_list import MOST_READ, list_runs
from cronsensus.insight.run_report import run_report
from cronsensus.insight.time_words import read_time
from cronsensus.insight.trail_list import TRAIL_FILTERS, list_trail, read_trail_search
from cronsensus.insight.why import explain_time
from cronsensus.security.masking import mask
from cronsensus.stores.base import Store

_PAGE = 50
_MOST_ROWS = 500
_MOST_LOG_LINES = 200

Given = Mapping[str, str]


class NotThereError(LookupError):
    """The requested object does not exist."""


@dataclass(frozen=True, slots=True)
class Read:
    """A path of the API.

    Attributes:
        summary: what the answer holds, in a sentence.
        answer: makes the answer.
        takes: parameters of the query, each with what it means; the first ``needs`` of them are required.
    """

    summary: str
    answer: Callable[[Store, Given], Any]
    takes: Mapping[str, str]
    needs: int = 0


def _health(store: Store, query: Given) -> Any:
    health = read_health(store, node=query.get("node"))
    return {"ok": health.ok, "sentence": health.sentence, "counts": fields_of(store.counts())}


def fields_of(value: object) -> dict[str, Any]:
    """Return the attributes of a value."""
    return pick_fields(value, " ".join(value.__dataclass_fields__))  # type: ignore[attr-defined]


def _jobs(store: Store, query: Given) -> Any:
    limit = _limit(query)
    views = store.jobs(after=query.get("after", ""), limit=limit + 1)
    next_after = views[limit - 1].spec.name if len(views) > limit else None
    return {"jobs": [job_data(view) for view in views[:limit]], "after": next_after}


def _job(store: Store, query: Given) -> Any:
    view = require_job(store, query["name"])
    trigger, now = view.spec.trigger, store.now()
    fires = trigger is not None and view.retired_at is None and view.spec.keeper is None
    times = next_times(trigger, now, 10, zone_of(trigger)) if fires and trigger is not None else []
    return {
        **job_data(view),
        "times": [time.utc for time in times],
        "trail": [trail_data(act) for act in store.trail(target=view.spec.name, limit=10)],
    }


def _runs(store: Store, query: Given) -> Any:
    search = read_search(query, store.now(), batch=_number(query, "batch"))
    page = list_runs(store, search, after=_number(query, "after"), limit=_limit(query))
    return run_page_data(page)


def _run(store: Store, query: Given) -> Any:
    occurrence = store.occurrence(_number(query, "id") or 0)
    if occurrence is None:
        raise NotThereError("there is no such run; it may have been pruned")
    report = run_report(store, occurrence, log_lines=_MOST_LOG_LINES)
    return {
        **occurrence_data(occurrence),
        "batch": None if report.batch is None else batch_data(report.batch),
        "attempts": [run_data(run) for run in report.attempts],
        "logs": [log_data(*entry) for entry in report.log],
        "trail": [trail_data(act) for act in report.acts],
    }


def _why(store: Store, query: Given) -> Any:
    view = require_job(store, query["job"])
    at = read_time(query["at"], store.now(), what="at")
    explanation = explain_time(store, view, at)
    return {"job": view.spec.name, "at": at, "sentences": [str(sentence) for sentence in explanation.sentences]}


def _nodes(store: Store, _: Given) -> Any:
    sessions = [session for session in store.sessions(ended=True, limit=_MOST_ROWS) if session.is_node]
    lives = lives_of(store, sessions)
    return {"nodes": [session_data(node, lives.get(node.id)) for node in sessions]}


def _locks(store: Store, _: Given) -> Any:
    return {"locks": [fields_of(lock) for lock in store.locks(limit=_MOST_ROWS)]}


def _trail(store: Store, query: Given) -> Any:
    search = read_trail_search(query, store.now())
    page = list_trail(store, search, after=_number(query, "after"), limit=_limit(query))
    return {"trail": [trail_data(act) for act in page.acts], "after": page.after}


def _failed(store: Store, query: Given) -> Any:
    since = read_time(query["since"], store.now(), what="since") if query.get("since") else None
    since = since or store.now() - timedelta(days=1)
    failures = open_failures(store, job=query.get("job") or None, since=since)
    return {"groups": [failures_data(group) for group in group_failures(failures)]}


_PAGE_PARAMETERS = {"after": "where the page before ended", "limit": f"most rows (1 to {_MOST_ROWS}; {_PAGE})"}
READS: Mapping[str, Read] = {
    "health": Read("Whether a node lives, and counts.", _health, {"node": "this node, not just any"}),
    "jobs": Read("Jobs by name.", _jobs, _PAGE_PARAMETERS),
    "job": Read("A job, its next ten times and what was done to it.", _job, {"name": "its name"}, 1),
    "runs": Read(
        f'Runs. At most {MOST_READ:,} are looked through for an answer: "stopped" says that there may be more.',
        _runs,
        {**FILTERS, "batch": "only its items", **_PAGE_PARAMETERS},
    ),
    "run": Read("A run with attempts, log and acts; of a batch how far it is.", _run, {"id": "its number"}, 1),
    "failed": Read("What failed and was not run again, by error.", _failed, {"job": "only of this", "since": "1d"}),
    "why": Read("Why a time ran or did not.", _why, {"job": "its name", "at": "a time"}, 2),
    "nodes": Read("Nodes, the newest first, and what is known of their lives.", _nodes, {}),
    "locks": Read("Locks that are held.", _locks, {}),
    "trail": Read("Who did what, and why; the newest first.", _trail, {**TRAIL_FILTERS, **_PAGE_PARAMETERS}),
}


def api_routes(store: Callable[[], Store]) -> list[Route]:
    """Return the routes of all reads, and that of their description."""
    routes = [Route(f"/api/{name}", _endpoint(read, store)) for name, read in READS.items()]

    def described(request: Request) -> Response:
        return _json(describe_api(str(request.scope.get("root_path", ""))))

    def unknown(_: Request) -> Response:
        return _json({"error": f"there is no such read; there are {', '.join(READS)}, and openapi.json"}, 404)

    return [*routes, Route("/api/openapi.json", described), Route("/api/{other:path}", unknown)]


def describe_api(base: str) -> dict[str, Any]:
    """Return the description of the API in the form of OpenAPI 3.1."""
    paths = {}
    for name, read in READS.items():
        parameters = [
            {"name": key, "in": "query", "required": at < read.needs, "description": text, "schema": {"type": "string"}}
            for at, (key, text) in enumerate(read.takes.items())
        ]
        answers = {
            "200": {"description": read.summary, "content": {"application/json": {"schema": {"type": "object"}}}}
        }
        paths[f"/api/{name}"] = {"get": {"summary": read.summary, "parameters": parameters, "responses": answers}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "cronsensus", "version": "1"},
        "servers": [{"url": base or "/"}],
        "paths": paths,
    }


def _endpoint(read: Read, store: Callable[[], Store]) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        query = dict(request.query_params)
        missing = [key for key in list(read.takes)[: read.needs] if not query.get(key)]
        unknown = [key for key in query if key not in read.takes]
        if missing or unknown:
            problem = f"{missing[0]}= is missing" if missing else f"{unknown[0][:60]!r} is no parameter"
            return _json({"error": f"{problem}; it takes {', '.join(read.takes) or 'none'}"}, 400)
        try:
            return _json(read.answer(store(), query))
        except NotThereError as error:
            return _json({"error": str(error)}, 404)
        except CronsensusError as error:
            return _json({"error": mask(str(error))}, status_of(error))

    return answer


def _json(data: Any, status: int = 200) -> Response:
    text = json.dumps(data, default=json_leaf, allow_nan=False)
    return Response(text, status, {"cache-control": "no-store"}, media_type="application/json")


def _limit(query: Given) -> int:
    limit = _number(query, "limit")
    return _PAGE if limit is None else max(1, min(limit, _MOST_ROWS))


def _number(query: Given, name: str) -> int | None:
    text = query.get(name, "")
    if not text:
        return None
    if not text.isdecimal() or len(text) > 18:
        raise InvalidOption(f"{name}= is a number, not {text[:60]!r}")
    return int(text)
