"""Reading: bounded, in pages, and of one moment."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

from cronsensus.model.job import JobHistory
from cronsensus.model.ledger import Counts
from cronsensus.model.occurrence import LogLine, Note, OccurrenceFilter
from cronsensus.model.plan import VerdictRange
from cronsensus.model.states import Origin, Reason, State
from cronsensus.testing.conformance.fixtures import HOUR, MINUTE, SECOND, START, StoreTest, minute
from cronsensus.testing.conformance.steps import give_back, say


class Reading(StoreTest):
    """Hazards of reading: a page that leaves something out, and a look that changes something."""

    def test_reads_of_missing_things_are_empty(self) -> None:
        self.define()
        assert self.store.job("nobody") is None
        assert self.firing("nobody") is None
        assert self.store.occurrence(987_654) is None
        assert (JobHistory(), []) == (self.store.history("nobody"), self.store.ranges("nobody"))
        assert not any([self.store.runs(987_654), self.store.logs(987_654), self.all(job="nobody")])
        assert not any(
            [self.store.history("job").pauses, self.store.ranges("job"), self.store.locks(), self.store.trail()]
        )

    def test_reading_writes_nothing(self) -> None:
        self.define()
        self.session()
        self.queue()
        self.done()
        first, second = self.snapshot(), self.snapshot()
        assert first == second
        assert self.store.counts() == self.store.counts()

    def test_an_answer_does_not_change_afterwards(self) -> None:
        self.queue()
        self.session()
        made = self.enqueue()
        job, occurrence, sessions = self.view("queue"), self.look(made), self.store.sessions()
        shown = repr((job, occurrence, sessions))
        self.take()
        self.queue(priority=4)
        self.store.close_session("s1")
        assert shown == repr((job, occurrence, sessions))

    # --- jobs -------------------------------------------------------------------------------------------------------

    def test_jobs_are_read_by_name_in_pages(self) -> None:
        names = ["b", "a", "Z", "é", "zz", "🧨", "z", "a b"]
        self.define(*(self.job(name) for name in names))
        assert sorted(names) == [job.spec.name for job in self.store.jobs()]
        pages, after = [], ""
        while page := self.store.jobs(after=after, limit=3):
            pages.append(len(page))
            assert [self.view(job.spec.name) for job in page] == page
            after = page[-1].spec.name
        assert [3, 3, 2] == pages

    def test_retired_jobs_are_read_only_if_asked_for(self) -> None:
        self.define(self.job("a"), self.job("b"), self.job("c"))
        self.store.retire("b", by="ann", why="")
        assert ["a", "c"] == [job.spec.name for job in self.store.jobs()]
        assert ["a", "b", "c"] == [job.spec.name for job in self.store.jobs(retired=True)]
        assert ["c"] == [job.spec.name for job in self.store.jobs(after="a", limit=1)]

    # --- attempts ---------------------------------------------------------------------------------------------------

    def test_attempts_of_several_occurrences_are_read_together(self) -> None:
        self.queue()
        self.session(lease=HOUR)
        self.fill(2)
        done, running = self.claim(lease=HOUR)
        waiting = self.enqueue("waiting", delay=HOUR).id
        self.finish(done)
        give_back(self.store, [running])
        again = self.take(lease=HOUR)
        nobody = 10**9
        read = self.store.runs(running.id, nobody, waiting, done.id, running.id)
        assert [*self.store.runs(running.id), *self.store.runs(done.id)] == read
        assert [running.token, again.token, done.token] == [run.token for run in read]
        assert [] == self.store.runs(waiting) == self.store.runs(nobody) == self.store.runs()

    # --- occurrences ------------------------------------------------------------------------------------------------

    def test_occurrences_are_read_newest_first_or_oldest_first_in_pages(self) -> None:
        self.queue()
        ids = self.fill(7)
        for newest_first in (True, False):
            read: list[int] = []
            while page := self.store.occurrences(
                OccurrenceFilter(), after=read[-1] if read else None, limit=3, newest_first=newest_first
            ):
                assert len(page) <= 3
                read += [one.id for one in page]
            assert sorted(ids, reverse=newest_first) == read

    def test_pages_stay_whole_while_others_write(self) -> None:
        self.queue()
        ids = self.fill(4)
        page = self.store.occurrences(OccurrenceFilter(), limit=2)
        self.fill(3)
        rest = self.store.occurrences(OccurrenceFilter(), after=page[-1].id)
        assert ids[::-1] == [one.id for one in page + rest]

    def test_occurrences_are_read_by_every_condition(self) -> None:
        self.define(self.job(overlap="allow"))
        self.queue()
        self.session("s1", lease=HOUR)
        self.session("s2", lease=HOUR)
        self.fire(minute(1), minute(2), minute(3))
        self.enqueue("key", priority=1)
        self.clock.advance(2 * MINUTE)
        first = self.take("s1", limit=1, lease=HOUR)
        second = self.take("s2", limit=1, lease=HOUR)
        self.finish(first, State.FAILED)
        by_key = {one.id: one.key for one in self.all()}
        a, b, c, key = sorted(by_key)
        assert {a, key} == {first.id, second.id}

        def found(**where: object) -> list[int]:
            return [one.id for one in self.all(**where)]

        assert [a, b, c] == found(job="job")
        assert [key] == found(job="queue")
        assert [b, c] == found(job="job", states=(State.PENDING,))
        assert [a, key] == found(states=(State.FAILED, State.RUNNING))
        assert [a, b, c] == found(origin=Origin.SCHEDULE)
        assert [key] == found(key="key")
        assert [] == found(key="key", job="job")
        assert [b, c] == found(scheduled_from=minute(2))
        assert [a, b] == found(scheduled_until=minute(2))
        assert [b] == found(scheduled_from=minute(2), scheduled_until=minute(2))
        assert [first.id] == found(session="s1")
        assert [] == found(session="s2", states=(State.PENDING,))
        assert [a, b, c, key] == found()

    def test_a_filtered_read_is_paged_like_any_other(self) -> None:
        self.queue("a")
        self.queue("b")
        for _ in range(4):
            self.enqueue(job="a")
            self.enqueue(job="b")
        page = self.store.occurrences(OccurrenceFilter(job="a"), limit=3, newest_first=False)
        rest = self.store.occurrences(OccurrenceFilter(job="a"), after=page[-1].id, newest_first=False)
        assert (3, 1) == (len(page), len(rest))
        assert {"a"} == {one.job for one in page + rest}

    # --- logs and ranges --------------------------------------------------------------------------------------------

    def test_logs_are_read_in_pages(self) -> None:
        self.queue()
        self.session()
        self.fill(2)
        claim, other = self.claim()
        for number in range(5):
            for one in (claim, other):
                say(self.store, [Note(one.id, one.token, None, (LogLine(START, "info", f"{one.id} {number}"),))])
        read: list[str] = []
        after = 0
        while page := self.store.logs(claim.id, after=after, limit=2):
            assert len(page) <= 2
            read += [line.text for _, _, line in page]
            after = page[-1][0]
        assert [f"{claim.id} {number}" for number in range(5)] == read

    def test_ranges_are_read_if_they_touch_the_stretch_asked_for(self) -> None:
        self.define()
        ranges = [
            VerdictRange(minute(first), minute(last), State.SKIPPED, Reason.OVERLAP, None)
            for first, last in ((1, 2), (3, 6), (7, 7))
        ]
        self.fire(verdicts=ranges)

        def found(since: int | None = None, until: int | None = None) -> list[VerdictRange]:
            start, end = (None if number is None else minute(number) for number in (since, until))
            return [ledger_range.range for ledger_range in self.store.ranges("job", since=start, until=end)]

        assert ranges == found()
        assert ranges[1:] == found(since=3) == found(since=6)
        assert ranges[:2] == found(until=3)
        assert ranges[:1] == found(until=2)
        assert [ranges[1]] == found(since=4, until=5)
        assert [] == found(since=8)

    def test_ranges_are_read_in_pages(self) -> None:
        self.define()
        ranges = [
            VerdictRange(minute(number), minute(number), State.SKIPPED, Reason.OVERLAP, 1) for number in range(1, 6)
        ]
        self.fire(verdicts=ranges)
        read, after = [], 0
        while page := self.store.ranges("job", after=after, limit=2):
            assert len(page) <= 2
            read += [one.range for one in page]
            after = page[-1].id
        assert ranges == read

    # --- many at once -----------------------------------------------------------------------------------------------

    def test_the_last_of_several_jobs_are_read_newest_first_and_no_more_than_asked_for(self) -> None:
        for name in ("a", "b", "idle"):
            self.queue(name)
        self.session()
        made = {name: self.fill(4, name) for name in ("a", "b")}
        [claim] = [one for one in self.claim(limit=8) if one.id == made["b"][3]]
        self.finish(claim)
        found = self.store.last_of(["b", "nobody", "a", "idle", "a"], limit=3)
        assert {"a", "b", "idle"} == set(found)
        for name, numbers in made.items():
            assert numbers[:0:-1] == [glance.id for glance in found[name].glances]
            for glance in found[name].glances:
                whole = self.look(glance.id)
                assert (whole.job, whole.state, whole.scheduled_for) == (glance.job, glance.state, glance.scheduled_for)
                assert (whole.due_at, whole.crashes, whole.failures) == (glance.due_at, glance.crashes, glance.failures)
                assert (whole.node, whole.reason, whole.created_at) == (glance.node, glance.reason, glance.created_at)
                assert (whole.started_at, whole.finished_at) == (glance.started_at, glance.finished_at)
        assert ((), ()) == (found["idle"].glances, found["idle"].ranges)
        assert {} == self.store.last_of([])

    def test_the_last_verdicts_of_a_job_are_those_that_a_read_of_its_ranges_ends_with(self) -> None:
        self.define()
        self.fire(
            verdicts=[
                VerdictRange(minute(number), minute(number), State.SKIPPED, Reason.OVERLAP, 1) for number in range(1, 5)
            ]
        )
        ranges = self.store.ranges("job")
        assert len(ranges) > 2
        assert tuple(reversed(ranges[-2:])) == self.store.last_of(["job"], limit=2)["job"].ranges

    def test_what_runs_and_what_ended_since_is_read_and_nothing_else(self) -> None:
        self.queue()
        self.session()
        numbers = self.fill(4)
        claims = {claim.id: claim for claim in self.claim(limit=3)}
        first, second, third = (claims[number] for number in numbers[:3])
        self.finish(first)
        self.clock.advance(1)
        between = self.store.now()
        self.clock.advance(1)
        self.finish(second)
        self.store.cancel(numbers[3], by="ann", why="")
        waiting = self.enqueue(delay=HOUR)
        found = self.store.ran_since(between)
        assert [numbers[3], third.id, second.id] == [one.id for one in found]
        assert [State.CANCELLED, State.RUNNING, State.SUCCEEDED] == [one.state for one in found]
        assert [*numbers[3:0:-1], first.id] == [one.id for one in self.store.ran_since(START)]
        assert [numbers[3], third.id] == [one.id for one in self.store.ran_since(START, limit=2)]
        assert waiting.id not in {one.id for one in self.store.ran_since(START)}
        assert [] == self.open("other").ran_since(START)

    # --- counts -----------------------------------------------------------------------------------------------------

    def test_counts_count(self) -> None:
        assert Counts(jobs=0, paused=0, pending=0, running=0, sessions=0, limit=10_000) == self.store.counts()
        for number in range(4):
            self.queue(str(number))
        self.store.pause("0", by="ann", why="")
        self.store.retire("1", by="ann", why="")
        self.session("overdue")
        self.lease_out()
        self.session("s1")
        self.session("closed")
        self.store.close_session("closed")
        self.fill(5, "2")
        claims = self.claim(limit=3)
        self.finish(claims[0])
        assert Counts(jobs=3, paused=1, pending=2, running=2, sessions=1, limit=10_000) == self.store.counts()

    def test_counts_stop_at_their_limit(self) -> None:
        for number in range(4):
            self.queue(str(number))
            self.store.pause(str(number), by="ann", why="")
            self.session(f"s{number}")
        self.fill(8, "0")
        self.claim(limit=4)
        assert Counts(jobs=2, paused=2, pending=2, running=2, sessions=2, limit=2) == self.store.counts(limit=2)

    def test_times_are_read_as_they_were_written(self) -> None:
        self.queue()
        self.session()
        self.clock.advance(0.123456)
        found = self.done()
        assert START + 123456 * (SECOND / 1_000_000) == found.created_at == found.started_at == found.finished_at
