"""Verbs of the scheduling round: look, step, acquire."""

from __future__ import annotations

import hashlib
import socket
import sys
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, ClassVar, assert_never

from cronsensus.errors import StoreCorrupt, StoreError
from cronsensus.model.acquiring import MOST_EARLY, VERDICTS, Ask, AskNamed, NotWon
from cronsensus.model.ends import Again, End, Final, Parked, Then, recorded_as
from cronsensus.model.job import JobSpec, JobState
from cronsensus.model.occurrence import (
    CUT_WORDS,
    MOST_IN_FUTURE,
    Claim,
    Cut,
    LogLine,
    Note,
    Settled,
    scheduled_key,
    too_early,
)
from cronsensus.model.plan import Plan
from cronsensus.model.states import State
from cronsensus.model.step import Done, Step, Want
from cronsensus.payload.codec import clean, clean_optional, write_error
from cronsensus.process.logger import Logger
from cronsensus.stores.redis.client import TooFewReplicas
from cronsensus.stores.redis.redis_codec import (
    Row,
    job_state,
    occurrence_id,
    or_none,
    read_claim,
    read_instant,
    read_spec,
    session_views,
    to_length,
    to_micros_text,
    unpack_answer,
    write_line,
    write_range,
)
from cronsensus.stores.redis.redis_errors import Refusal
from cronsensus.stores.redis.redis_handle import Handle
from cronsensus.stores.redis.redis_presence import PresenceObserver
from cronsensus.stores.unreadable import READING_RAISES
from cronsensus.stores.values import Partition, View, newest_of
from cronsensus.timing.clock import SystemClock
from cronsensus.timing.instants import from_micros, within_stores

_log = Logger("cronsensus.stores")
_CLOCK = SystemClock()
MOST_SESSIONS_SHOWN = 64
_VERDICTS = {word.value: [state.value, reason.value] for word, (state, reason) in VERDICTS.items()}
LEFT_OUT_FOR = 60.0
"""Seconds for which a handle skips jobs whose definition it cannot read."""


class RoundVerbs(Handle):
    """The verbs of a node's round."""

    starts_as_it_fires: ClassVar[bool] = True
    """Whether the usual plans are fired and started in one pass (``fire_and_start``). A subclass with ``False`` fires
    all of them first and then claims; the answers of every verb are the same."""
    _own_session: str

    def _prepare_rounds(self) -> None:
        """Initialise what looks and claims remember: the functions sent, and the definitions that cannot be read."""
        self._functions: tuple[tuple[str, ...], str, frozenset[str]] = ((), "", frozenset())
        self._left_out: dict[str, bool] = {}
        self._left_out_at = 0.0
        self._observer = PresenceObserver()
        self._guests: tuple[str, frozenset[str]] = ("", frozenset())
        """The number of sessions opened at the last look, and which of the live ones are no nodes."""

    # --- look ---------------------------------------------------------------------------------------------------------

    def _look(self, limit: int, partition: Partition | None, ahead: timedelta) -> View:
        """Look, by indexes: jobs that are not due cost nothing."""
        sockets: list[socket.socket] = []
        opened_at_last_look, known_guests = self._guests
        answer = self._read_script(
            "look", limit, newest_of(limit), *(partition or (0, 1)), to_length(ahead), self._own_session,
            self._observer.known, opened_at_last_look, tell=sockets.append,
        )  # fmt: skip
        (
            now,
            jobs,
            has_more,
            next_job,
            backlog,
            next_pending,
            holders,
            live_nodes,
            guests,
            sessions_opened,
            signs,
            parked,
        ) = answer
        if guests is not False:
            known_guests = frozenset(guests)
            self._guests = sessions_opened, known_guests
        return View(
            now=from_micros(int(now)),
            jobs=tuple(self._read_states(jobs)),
            more=has_more,
            next_job=read_instant(next_job),
            backlog=backlog,
            next_pending=read_instant(next_pending),
            holders=tuple(session_views(self._unreadable, holders)),
            sessions=tuple(
                sorted(session for session in live_nodes if session not in known_guests)[:MOST_SESSIONS_SHOWN]
            ),
            absent=self._observer.note_signs(sockets[-1], sessions_opened, or_none(signs)),
            parked=parked,
        )

    def _read_states(self, rows: Sequence[Row]) -> list[JobState]:
        """Return the states of jobs. An unreadable job is left out and logged, so that the others still fire."""
        return self._unreadable.keep_readable(
            rows,
            lambda row: job_state(self._keyspace, row),
            lambda row: f"job {row[0]} is due, cannot be fired, and",
        )

    # --- step ---------------------------------------------------------------------------------------------------------

    def _step(self, session: str, step: Step) -> Done:
        """Carry out the step in a single script."""
        report_and_plans = (
            self._encode_notes(step.notes),
            self._encode_ends(step.ends),
            [[*self._encode_claim(release.claim), *self._encode_cut(release.cut)] for release in step.give_back],
            self._encode_plans(step.plans, step.want),
            to_length(step.want.ahead) if step.want else 0,
            step.want.reserve if step.want else 0,
            step.want.nodes if step.want else 1,
            step.want.oldest if step.want else False,
        )
        limit = 0
        if step.want is not None:
            limit = max(step.want.limit, 0)
            answer = self._claiming_step(report_and_plans, session, step.want)
        elif step.ends or step.plans:
            answer = self._decide_script("step", *report_and_plans, session)
        else:
            answer = self._write_script("step", *report_and_plans, session)
        noted, settled, returned, carried_out, lost, *claims = answer
        return Done(
            noted=tuple(noted),
            settled=tuple(self._read_settled(step.ends, settled)),
            returned=tuple(returned),
            carried_out=tuple(carried_out),
            claims=tuple(self._read_claims(session, claims, limit)),
            lost=lost,
        )

    # --- claims -------------------------------------------------------------------------------------------------------

    def _acquire(
        self, session: str, asks: Sequence[Ask | AskNamed], lease: timedelta
    ) -> list[tuple[Claim | NotWon, ...]]:
        """Claim occurrences, and give nominal times that are not run their verdicts; all in a single script."""
        self._client.require_replicas()
        encoded_asks = [_encode_ask(ask) for ask in asks]
        try:
            answers, *claims = self._decide_script(
                "acquire",
                session,
                to_length(lease),
                to_length(MOST_IN_FUTURE),
                encoded_asks,
                _VERDICTS,
                to_length(MOST_EARLY),
            )
        except Refusal as refused:
            farthest = max((time, ask.job) for ask in asks for time in ask.times)
            raise too_early(farthest[1], farthest[0], from_micros(int(refused.rest))) from None
        except TooFewReplicas as short:
            self._encode_releases(unpack_answer(short.answer)[1][-2])
            raise
        # A claim whose definition or arguments cannot be read was released.
        won = {occurrence_id(claim.id): claim for claim in self._read_claims(session, claims)}
        started = iter([row[0] for row in claims[1]])
        return [
            tuple(NotWon(word) if word else won.get(next(started), NotWon.LOST) for word in answer)
            for answer in answers
        ]

    def _claiming_step(self, report_and_plans: tuple[Any, ...], session: str, want: Want) -> Row:
        """Carry out a step that claims; send the session's functions if the script asks for them."""
        self._client.require_replicas()
        if self._left_out and _CLOCK.monotonic() - self._left_out_at > LEFT_OUT_FOR:
            self._left_out = {}
        names, digest, _ = self._known_functions(want.functions)
        for sent_names in (None, names):
            try:
                answer = self._decide_script(
                    "step",
                    *report_and_plans,
                    session,
                    max(want.limit, 0),
                    digest,
                    sent_names,
                    self._left_out,
                    to_length(want.lease),
                )
            except TooFewReplicas as short:
                if answered := unpack_answer(short.answer)[1]:
                    self._encode_releases(answered[-2])
                raise
            if answer is not False:
                row: Row = answer
                return row
        raise StoreError(f"session {session} forgot its functions while it was told them; please report this")

    def _known_functions(self, functions: Collection[str]) -> tuple[tuple[str, ...], str, frozenset[str]]:
        """Return the functions with a digest that stands for them: they may be thousands, the same for each claim."""
        cached = self._functions
        if cached[0] != (names := tuple(functions)) or not cached[1]:
            text = "\n".join(sorted(names)).encode()
            cached = self._functions = names, hashlib.blake2b(text, digest_size=16).hexdigest(), frozenset(names)
        return cached

    def _read_claims(self, session: str, answer: Row, limit: int = sys.maxsize) -> list[Claim]:
        """Return claims; those after the first ``limit`` are reserved.

        Claims of a job whose definition cannot be read are released at once.
        """
        now, rows, specs = answer
        specs_by_job: dict[str, JobSpec] = {}
        for job, text in specs:
            try:
                specs_by_job[job] = read_spec(text)
            except StoreCorrupt as error:
                self._skip_for_a_while(job, f"work of job {job} waits, cannot be run, and the job", error)
        claimed_at = from_micros(int(now))
        claims, unreadable_rows = [], []
        for place, row in enumerate(rows):
            try:
                claims.append(read_claim(row, specs_by_job, session, claimed_at, reserved=place >= limit))
            except READING_RAISES as error:
                unreadable_rows.append(row)
                if row[1] in specs_by_job:
                    self._skip_for_a_while(row[0], f"run {row[0]} waits, cannot be run, and", error)
        if unreadable_rows:
            self._encode_releases(unreadable_rows)
        return claims

    def _skip_for_a_while(self, number: str, what: str, error: Exception) -> None:
        """Skip a job, or an occurrence, in claims for a while."""
        self._unreadable.log_unreadable(what, error)
        self._left_out |= {number: True}
        self._left_out_at = _CLOCK.monotonic()

    def _encode_releases(self, rows: Sequence[Row]) -> None:
        """Release claims that are not to be started. If that fails, they end with the session."""
        try:
            self._write_script(
                "step", [], [], [[row[0], row[7], None, False, False] for row in rows], [], 0, 0, 1, False
            )
        except StoreError as error:
            _log.warning("%d claims could not be given back; they end with their session: %s", len(rows), error)

    def _encode_plans(self, plans: Sequence[Plan], want: Want | None) -> list[list[Any]]:
        functions: Collection[str] = ()
        if plans and want and self.starts_as_it_fires:
            functions = self._known_functions(want.functions)[2]
        return [
            [
                self._keyspace.job_number(plan.job_id),
                plan.job,
                str(plan.revision),
                to_micros_text(plan.watermark_seen),
                plan.active_seen,
                to_micros_text(plan.watermark),
                to_micros_text(plan.next_due),
                to_micros_text(plan.not_before),
                plan.cancel_previous,
                [
                    [
                        to_micros_text(occurrence.scheduled_for),
                        scheduled_key(occurrence.scheduled_for),
                        to_micros_text(occurrence.due_at),
                        to_micros_text(occurrence.expires_at),
                        occurrence.parked_on,
                    ]
                    for occurrence in plan.occurrences
                ],
                [[to_micros_text(verdict.last), write_range(verdict)] for verdict in plan.verdicts],
                plan.definition,
                plan.function if plan.function in functions else False,
            ]
            for plan in plans
        ]

    # --- results ------------------------------------------------------------------------------------------------------

    def _encode_ends(self, ends: Sequence[End]) -> list[list[Any]]:
        return [
            [
                occurrence_id(end.id),
                str(end.token),
                end.session,
                to_length(end.elapsed),
                recorded_as(end.then) or False,
                clean_optional(end.then.reason),
                write_error(end.error),
                _encode_next_state(end.then),
            ]
            for end in ends
        ]

    def _read_settled(self, ends: Sequence[End], answers: Sequence[Row]) -> list[Settled]:
        return [
            Settled(end.id, end.token, accepted=accepted, state=State(state) if state else None)
            for end, (accepted, state) in zip(ends, answers, strict=True)
        ]

    def _encode_claim(self, claim: Claim) -> list[str]:
        return [occurrence_id(claim.id), str(claim.token), claim.session]

    def _encode_cut(self, cut: Cut | None) -> tuple[str | bool, bool]:
        """Return the reason for which a run was cut off, if it was, and whether that is a crash."""
        return False if cut is None else CUT_WORDS[cut], cut == "crashed"

    def _encode_notes(self, notes: Sequence[Note]) -> list[list[Any]]:
        return [
            [
                occurrence_id(note.id),
                str(note.token),
                None if note.progress is None else " ".join(map(repr, map(float, note.progress))),
                [write_line(LogLine(line.at, clean(line.level), clean(line.text))) for line in note.lines],
                note.session,
                None if note.ran is None else to_length(note.ran),
            ]
            for note in notes
        ]


def _encode_ask(ask: Ask | AskNamed) -> list[Any]:
    """Return a request in the form of ``acquire.lua``: without an intent, it is for a single occurrence."""
    if isinstance(ask, Ask):
        return [ask.job, ask.intent, [[to_micros_text(time), scheduled_key(time)] for time in ask.times]]
    return [ask.job, False, [[to_micros_text(ask.named.scheduled_for), ask.named.key]], ask.fingerprint]


def _encode_next_state(next_state: Then) -> list[Any]:
    """Return the next state of an occurrence, in the form of ``reporting.lua``."""
    match next_state:
        case Final():
            return ["final", next_state.state.value, next_state.result]
        case Again():
            return ["again", within_stores(to_length(next_state.after)), next_state.failed, next_state.note]
        case Parked():
            return ["parked", next_state.on, None if next_state.listed is None else str(next_state.listed)]
        case _:
            assert_never(next_state)
