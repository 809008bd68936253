"""Sentences about jobs, runs and nodes: codes with values, and the table of their English texts.

A code is a member of one of the tables below, and its value is its text in English. Another language is a table with
the same codes and slots: ``dashboard/chinese_sentences.py``. What users or the store wrote is a value, never a code.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, unique
from typing import Any, Union

from cronsensus.insight.time_words import brief_duration, exact_time
from cronsensus.triggers.base import Trigger

Value = Union["Sentence", str, int, datetime, timedelta, Trigger, Sequence[Union["Sentence", str]], None]
"""The value of a slot. An instant is written in its own zone."""


class Code(Enum):
    """The key of a text; its value is the text in English, with named slots."""

    def __call__(self, **values: Value) -> Sentence:
        """Return the sentence with ``values`` in its slots."""
        return Sentence(self, values)

    @property
    def slots(self) -> frozenset[str]:
        """The names of the values that the text has."""
        return slots_of(self.value)


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, or a part of a sentence, as a code and values; ``str`` gives its English text."""

    code: Code
    values: Mapping[str, Value]

    def __str__(self) -> str:
        return ENGLISH.render(self)


class Language(string.Formatter):
    """Renders sentences in English; a subclass renders them in another language.

    A slot has a specification where a number is counted: ``{items:item|items}`` is "1 item" or "2 items", and
    ``{open:,}`` is "2,000".
    """

    comma = ", "

    def text_of(self, code: Code) -> str:
        """Return the text of a code."""
        return str(code.value)

    def render(self, sentence: Sentence | str) -> str:
        """Return a sentence in this language; plain text stays unchanged."""
        if isinstance(sentence, str):
            return sentence
        return self.vformat(self.text_of(sentence.code), (), sentence.values)

    def format_field(self, value: Any, format_spec: str) -> str:
        """Return a value in this language."""
        match value:
            case Sentence():
                return self.render(value)
            case datetime():
                return exact_time(value, value.tzinfo)  # type: ignore[arg-type]  # it is aware
            case timedelta():
                return brief_duration(value)
            case Trigger():
                return value.describe()
            case list() | tuple():
                return self.comma.join(self.format_field(part, "") for part in value)
            case None:
                return "none"
            case int() if "|" in format_spec:
                one, many = format_spec.split("|")
                return f"{value:,} {one if value == 1 else many}"
            case _:
                return format(value, format_spec)


ENGLISH = Language()


def slots_of(text: str) -> frozenset[str]:
    """Return the names of the slots of a text."""
    return frozenset(name for _, name, _, _ in string.Formatter().parse(text) if name)


def distance_text(instant: datetime, now: datetime) -> Sentence:
    """Return how far ``instant`` lies from ``now``: ``in 5m`` or ``2h 3m ago``."""
    apart = instant - now
    if abs(apart) < timedelta(seconds=1):
        return Clause.NOW()
    return Clause.IN(time=apart) if apart > timedelta(0) else Clause.AGO(time=-apart)


@unique
class Text(Code):
    """Whole sentences, with their full stops."""

    # What became of a time.
    SUCCEEDED = "Yes: it ran and succeeded, as run {run}."
    FAILED = "It ran and failed, as run {run}: {why}."
    CLAIMED = "It is claimed, as run {run} on {node}: it waits there for a free slot."
    RUNNING_FOR = "It is running now, as run {run} on {node} for {time}."
    RUNNING = "It is running now, as run {run} on {node}."
    OVER_TIME = (
        "That is over its timeout of {limit} (timeout: still working): a thread cannot be stopped, so it keeps its "
        "place until its function returns, and is failed or tried again only then; executor='process' ends at its "
        "timeout."
    )
    PENDING = "It waits, as run {run}."
    CANCELLED = "It was cancelled: {why}."
    SKIPPED_ITSELF = "The job skipped itself: {detail}."
    NOT_IN_TIME = "No: it did not start in time ({reason})."
    NAMED_TOO_LATE = "No: {keeper} named it {time}, {delay} after its time, which is too late."
    NAMED_BESIDE_OTHERS = "No: when {keeper} named it, as many runs were active as it may have at a time: {most}."
    WAITED_FOR_EXECUTOR = "No: it was won in time, and waited too long for its executor: {detail}."
    MADE_BY_OPERATOR = "It was made by an operator ({origin}) as run {run}."
    STARTED_LATE = "It started {delay} after its nominal time."
    SEE_ERROR = "See its error: cronsensus runs show {run}; run it again: cronsensus runs retry {run}."
    NO_TAKEOVER = "No other node tries it (on_crash=fail)."
    CRASHED_TOO_OFTEN = "After {crashes:crash|crashes} no other node tries it (max_crashes={most})."
    TRIED_AGAIN = "Run {run} was tried again as run {again}: {state}."
    BACKFILLED = "It was backfilled as run {run}: {state}."
    DUE_AND = "It was due {time}, and {why}."
    GIVEN_UP = "It was given up {time}."

    # Its attempts.
    ATTEMPT_RUNS = "Attempt {attempt} on {node}, started {start}, runs for {took}."
    ATTEMPT_SUCCEEDED = "Attempt {attempt} on {node}, started {start}, succeeded after {took}."
    ATTEMPT_CRASHED = (
        "Attempt {attempt} on {node}, started {start}, ended with its node after {took}: the run was taken over "
        "({why})."
    )
    ATTEMPT_RELEASED = (
        "Attempt {attempt} on {node}, started {start}, was given back after {took} because its node drained."
    )
    ATTEMPT_SNOOZED = "Attempt {attempt} on {node}, started {start}, looked for {took} and waits ({why})."
    ATTEMPT_RETRIED = (
        "Attempt {attempt} on {node}, started {start}, failed after {took} ({why}) and was to be tried again."
    )
    ATTEMPT_ENDED = "Attempt {attempt} on {node}, started {start}, {end} after {took}."
    ATTEMPT_ENDED_WHY = "Attempt {attempt} on {node}, started {start}, {end} after {took}: {why}."

    # Why no run was made.
    NO = "No: {why}."
    NO_STATE = "No: {state}, {why}."
    NO_PAUSED = "No: the job was paused {pause}."
    NO_OVERLAP = "No: run {run} was not over when this time was decided, and overlap={overlap}."
    NO_OVERLAP_FOR = "No: run {run}, for {time} was not over when this time was decided, and overlap={overlap}."
    NO_RETIRED = "No: the job was retired before it ran."
    FOUND_LATE = "No: it was found {time}, {delay} after its time, and {why}."
    FOUND_LATE_TOGETHER = (
        "No: it was found {time}, {delay} after its time, together with {others:other|others}, and {why}."
    )
    KEPT_TIME = "That was {time}."
    UPSTREAM_FAILED = "No: it comes after {jobs}, which failed or was cancelled."
    UPSTREAM_SUCCEEDED = "No: it comes after {jobs} only if that fails, and it did not."
    UPSTREAM_SKIPPED = "No: it comes after {jobs}, which was skipped."
    UPSTREAM_MISSING = "No: it comes after {jobs}, which has no run for that time."
    UPSTREAM_PRUNED = "No: it comes after {jobs}, and what became of that was pruned before it could be asked."
    UPSTREAM_LATE = "No: it comes after {jobs}, which was not over in time (wait_for)."
    SEE_WHY = "See why: {command}."
    SEE_RUN = "See it: {command}."
    UPSTREAM_SUCCEEDED_SINCE = "It has succeeded since; run this one, and what comes after it: {command}."
    RUN_UPSTREAM_AGAIN = "Run it again, and this one after it: {command}."

    # No verdict, or no such time.
    TO_COME = "Not yet: it lies in the future, {when}."
    TO_COME_PAUSED = "The job is paused: {paused}. Unless it is resumed by then, it will be skipped."
    NO_VERDICT = "The ledger has no verdict on it, although it is decided. That must not be: cronsensus audit."
    PAUSED_NOW = "No: the job is paused: {paused}. The ledger will say so once it is resumed."
    NOT_FIRED = "Not yet: it was due {when}, and no node has fired it."
    NODES_WILL_LOOK = "Nodes are alive: they will look within moments."
    PRUNED = "Nobody can say any more: the ledger was pruned up to {time}."
    KEPT_FOR = "Runs are kept for {keep} (keep)."
    NEAREST = "The nearest is {time}."
    NEAREST_TWO = "The nearest are {before} and {after}."
    BECAME_OF = "What became of {time}:"
    WAS_RETIRED = "No: {job} was retired {time}."
    NOT_NAMED = "No: {keeper} keeps its times, and no process has named this one."
    NO_TRIGGER = "No: {job} has no trigger; it only runs when it is told to."
    DECLARED_LATER = "No: {job} was first declared {time}, and a job starts after that."
    BACKFILL = "To run it for earlier times: {command}."
    NOT_NOMINAL = "No: {time} is not a nominal time of {job} ({schedule})."
    STANDS_STILL = "{standstill}."
    REWIND = "Take it back to now: {command}."

    # The nodes then.
    NO_NODE_ON_RECORD = "No node is on record (ended ones are kept for a day); start one: cronsensus run MODULE:ATTR."
    NO_NODE_THEN = "No node was alive then: {event}."
    NO_NODE_BETWEEN = "No node was alive then: {ended}; {came}."

    # Why a pending run does not start.
    WAITS_FOR_CALL = (
        "It {was}, and is free for the next call of the guarded function; if none comes, it is closed in time."
    )
    LEFT_BY_KEEPER = "{keeper} has left it to be run later: {reason}."
    WAITS_FOR_KEEPER = (
        "It was cut off, and {keeper} runs it again in the next process that looks, within seconds where one lives."
    )
    NEVER_DUE = "It is never due; cancel it, or enqueue it anew with a time."
    LOOKS_AGAIN = "It looks again {when}: {reason}."
    DUE = "It is due {when}."
    DUE_AFTER_FAILURES = "It is due {when} after {failures:failed attempt|failed attempts}."
    NOT_DECLARED = "No running release declares the job {job}, which was retired {when}."
    KEPT_UNTIL = "What waits is kept until {time}, in case one does, and then cancelled."
    PARKED = "It is parked: it {what}."
    COMES_AFTER_NOTHING = "It comes after nothing any more, and goes on when a node looks."
    COMES_AFTER = "It comes after {jobs}, and waits for that."
    COMES_AFTER_AND_WAITS_FOR = "It comes after {jobs}, and waits for {open}."
    WAITS_FOR_ITEMS = (
        "It is a batch of {total:item|items}, and waits for {open:,} of them: {running:,} run, {pending:,} wait."
    )
    NO_NODE = "No node is alive: start one with cronsensus run MODULE:ATTR."
    NODES_DRAIN = "The nodes that are there take nothing new ({nodes}): start another."
    CONCURRENCY = "No more than {most} of {job} may run at a time (concurrency), and there are: {runs}."
    WAITS_FOR_RUN = "It waits for run {run}, which is {state} (overlap={overlap})."
    NODES_FULL = "Every node is full: start another, or allow them more (--concurrency)."
    DUE_JUST_NOW = "It was due {when}: a node will take it within moments."
    NODES_HAVE_FREE_SLOTS = "It was due {when}, and nodes with a free slot are alive: {nodes}."
    NO_FUNCTION = "Most likely none of them has the function {function}: start a node whose code declares it."


@unique
class Clause(Code):
    """Parts of sentences."""

    NOW = "now"
    IN = "in {time}"
    AGO = "{time} ago"
    AHEAD = "{time} ahead of the store's clock"
    IN_BRACKETS = "{what} ({more})"
    DETAILED = "{clause}: {detail}"
    BY_BECAUSE = "by {who}, because: {why}"
    BY_AT = "by {who} {time}"
    BY_AT_BECAUSE = "by {who} {time}, because: {why}"
    PAUSED_UNTIL = "{start}, until {end}"
    PAUSED_STILL = "{start}, it still is"
    PAUSED_BY = "{pause}, by {who}"
    PAUSED_BY_BECAUSE = "{pause}, by {who}, because: {why}"
    SOMEBODY = "somebody"
    NO_REASON_GIVEN = "no reason given"
    NO_REASON = "no reason on record"
    NO_ERROR = "no error on record"
    NODE_LOST = "node lost"
    FAILED_TIMES = "failed {times:time|times}"
    WAS_CUT_OFF = "was cut off"
    WAITS_FOR = "waits for {what}"
    RUN_ON = "run {run} on {node}"
    OF_RELEASE = "{node} (release {release})"
    ENDED = "{node} was {end} {time}"
    CAME = "{node} came {time}"
    STANDS_STILL = "{job} stands still until {until} ({when}): {why}"
    WATERMARK_AHEAD = "its watermark lies {ahead} ahead of the store's clock"
    LATER_THAN_TRIGGER = "its trigger has a time {when}, and the store a later one"
    STOPPED = "stopped, last seen {ago}"
    PROCESS_ENDED = "gone: its process ended, last seen {ago}"
    PAST_ITS_LEASE = "gone: {overdue} past its lease, last seen {ago}"
    CONNECTIONS_ENDED = "gone: its connections ended, last seen {ago}"
    UNKNOWN = "unknown, last seen {ago}"
    PROCESS_RUNS = "{lives}, its process runs on this host"
    CONNECTED = "{lives}, connected to the server"
    SEEN = "{lives}, seen {ago}"
    NOT_SEEN_HERE = "{life}, but no process that the host of this name sees"
    IDLE = "{state} (idle)"
    ALIVE = "alive"
    DRAINING = "draining"
    NOT_FIRED_YET = "no node has fired it yet"
    OF_RUN = "{origin} of run {run}"
    FIRST_OF_TWO = "{time} comes twice: this is the first"
    SECOND_OF_TWO = "{time} comes twice: this is the second"
    AFTER_THE_GAP = "{times} does not exist that day: right after the gap"
    CLOCKS_GO_FORWARD = "clocks go forward by {time}"
    CLOCKS_HAVE_CHANGED = "clocks have changed: from here on {offset}"


@unique
class Because(Code):
    """The reasons of the ledger, by the names of ``Reason``, as clauses; the slots are policies of the job."""

    OVERLAP = "an earlier run was not over when this time was decided, and overlap={overlap}"
    COALESCED = "catch_up=latest runs only the last of those that passed meanwhile"
    PAUSED = "the job was paused"
    LATE = "grace is {grace}"
    NO_CATCH_UP = "catch_up=none runs nothing late"
    BEYOND_WINDOW = "catch_up_window is {catch_up_window}"
    REPLACED = "the next one was due, and overlap=cancel_previous"
    CRASHED = "its node ended while it ran (on_crash={on_crash}, max_crashes={max_crashes})"
    TIMEOUT = "it ran longer than its timeout of {timeout}"
    OPERATOR = "an operator cancelled it"
    RETIRED = "the job was retired"
    BATCH_ENDED = "the batch that it is an item of had ended"
    UPSTREAM_FAILED = "what it comes after failed"
    UPSTREAM_SUCCEEDED = "what it comes after did not fail"
    UPSTREAM_SKIPPED = "what it comes after was skipped"
    UPSTREAM_MISSING = "what it comes after has no run for that time"
    UPSTREAM_PRUNED = "what became of the job before it was pruned"
    UPSTREAM_LATE = "what it comes after was not over in time (wait_for)"
    JOB_SAID_SO = "the job said so"
