"""Basics: the schema, handles, the clock, notifications, what a store says of itself, and namespaces."""

# ruff: noqa: D102, S101, SIM300 - the name of a test is its sentence; asserts read: expected == actual

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest

from cronsensus.errors import InvalidTransition, LeaseLost, StoreError, UnknownJob
from cronsensus.model.job import JobHistory
from cronsensus.model.ledger import CLOCK_SET_BACK, PRUNE
from cronsensus.model.occurrence import Item, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores.values import StoreCapabilities
from cronsensus.testing.conformance.fixtures import (
    DAY,
    HOSTILE,
    HOUR,
    LEASE,
    MINUTE,
    SECOND,
    START,
    StoreTest,
    a_session,
    minute,
    state_of,
)
from cronsensus.testing.conformance.steps import an_end, carry_out, give_back, settle, take
from cronsensus.timing.clock import SystemClock
from cronsensus.timing.instants import parse_instant


class _Ahead(SystemClock):
    """The host's clock, as an operator has set it."""

    def now(self) -> datetime:
        return super().now() + DAY


class Basics(StoreTest):
    """Hazards before the first job: a store that is not what it says."""

    def set_backs(self) -> list[tuple[datetime, datetime]]:
        """Read which stretches of the store's clock came twice, by its own word."""
        entries = [entry for entry in self.store.trail(target="") if entry.action == CLOCK_SET_BACK]
        return [(parse_instant(entry.details["from"]), parse_instant(entry.details["until"])) for entry in entries]

    # --- set-up -----------------------------------------------------------------------------------------------------

    def test_a_store_that_is_not_migrated_says_so(self) -> None:
        store = self.open()
        try:
            store.check()
        except StoreError:
            assert store.migrate(), "it refuses to be used, and has nothing to migrate"
            store.check()
        else:
            assert [] == store.migrate()

    def test_a_migrated_store_has_nothing_left_to_migrate(self) -> None:
        assert [] == self.store.migrate()
        assert [] == self.sibling().migrate()

    def test_a_migrated_store_can_be_used(self) -> None:
        self.store.check()
        self.sibling().check()

    def test_migrating_again_keeps_what_is_stored(self) -> None:
        self.define()
        before = self.snapshot()
        self.open().migrate()
        assert before == self.snapshot()

    def test_handles_of_the_factory_and_siblings_reach_one_store(self) -> None:
        self.define()
        assert self.view() == self.open().job("job")
        assert self.view() == self.sibling().job("job")

    def test_a_sibling_is_of_the_same_kind_and_namespace(self) -> None:
        other = self.open("other")
        sibling = other.sibling()
        self._opened.append(sibling)
        assert type(other) is type(sibling)
        assert self.namespace_of("other") == sibling.namespace
        assert other.capabilities == sibling.capabilities

    def test_closing_a_handle_leaves_the_others_open(self) -> None:
        sibling = self.sibling()
        self.define(store=sibling)
        sibling.close()
        sibling.close()
        assert "job" == self.view().spec.name

    def test_capabilities_are_data(self) -> None:
        capabilities = self.store.capabilities
        assert isinstance(capabilities, StoreCapabilities)
        assert capabilities.clock in {"server", "host", "process"}
        assert capabilities.lease_clock in {"server", "host", "monotonic"}
        assert capabilities.hosts in {"one", "many"}
        assert capabilities.name
        assert capabilities.survives

    def test_describe_says_where_the_store_is(self) -> None:
        described = self.store.describe()
        assert described
        assert all(isinstance(name, str) for name in described)

    # --- the clock --------------------------------------------------------------------------------------------------

    def test_now_is_the_clock_of_the_store(self) -> None:
        assert START == self.store.now()
        self.clock.advance(timedelta(microseconds=1))
        assert START + timedelta(microseconds=1) == self.store.now()
        self.clock.step(-DAY)
        assert START - DAY + timedelta(microseconds=1) == self.sibling().now()

    def test_every_verb_goes_by_the_clock_of_the_store(self) -> None:
        opened_at = self.store.open_session(a_session("s1"), lease=LEASE)
        self.define()
        self.queue()
        self.clock.advance(HOUR)
        made = self.enqueue()
        assert START == opened_at
        assert START == self.view().watermark
        assert START + HOUR == self.look(made).created_at == self.look(made).due_at
        assert START + HOUR == self.store.look().now
        assert not self.store.renew("s1", lease=LEASE).alive
        assert START + HOUR == self.store.renew("s1", lease=LEASE).now

    def test_the_clock_is_whole_microseconds_in_utc(self) -> None:
        now = self.store.now()
        assert timedelta(0) == now.utcoffset()

    def test_a_clock_made_from_the_hosts_is_the_one_that_is_asked(self) -> None:
        clock = _Ahead()
        store = self.make_store(clock)
        self._opened.append(store)
        store.migrate()
        assert clock.now() - store.now() < HOUR
        assert store.look().now > SystemClock().now() + HOUR

    def test_a_clock_that_was_set_back_is_written_down_with_what_came_twice(self) -> None:
        self.queue()
        self.clock.advance(MINUTE)
        self.enqueue()
        before = self.store.now()
        self.clock.step(-MINUTE)
        after = self.store.now()
        self.enqueue()
        [(since, until)] = self.set_backs()
        assert since <= after < before <= until
        assert until - since < MINUTE + SECOND
        self.enqueue()
        assert 1 == len(self.set_backs())

    def test_a_clock_that_goes_on_or_was_set_ahead_is_nothing_to_write_down(self) -> None:
        self.queue()
        for _ in range(3):
            self.enqueue()
            self.clock.advance(MINUTE)
            self.enqueue()
            self.clock.step(MINUTE)
        assert [] == self.set_backs()

    def test_a_verb_that_is_refused_hides_no_clock_that_was_set_back(self) -> None:
        self.queue()
        self.clock.step(-MINUTE)
        with pytest.raises(UnknownJob):
            self.enqueue(job="nobody")
        self.enqueue()
        assert 1 == len(self.set_backs())

    def test_a_wall_clock_set_ahead_ends_leases_only_where_they_run_on_it(self) -> None:
        self.session()
        self.clock.step(HOUR)
        on_monotonic = self.store.capabilities.lease_clock == "monotonic"
        assert on_monotonic == self.store.renew("s1", lease=LEASE).alive
        assert on_monotonic == (not self.store.reclaim() and "s1" in self.store.look().sessions)

    def test_a_wall_clock_set_back_prolongs_leases_only_where_they_run_on_it(self) -> None:
        self.session()
        self.clock.step(-HOUR)
        self.lease_out()
        on_monotonic = self.store.capabilities.lease_clock == "monotonic"
        assert on_monotonic == (not self.store.renew("s1", lease=LEASE).alive)

    # --- wake-ups ---------------------------------------------------------------------------------------------------

    def test_a_wait_ends_by_itself(self) -> None:
        assert self.store.wait(0.001) in {True, False}

    def test_notify_wakes_a_waiting_handle_if_the_store_says_it_can(self) -> None:
        self._wakes_a_waiting_handle(self.store.notify)

    def test_enqueue_wakes_a_waiting_handle_if_the_store_says_it_can(self) -> None:
        self.define()
        self._wakes_a_waiting_handle(lambda: self.store.enqueue([Item(job="job")]))

    def _wakes_a_waiting_handle(self, tell: Callable[[], object]) -> None:
        waiting, heard = self.sibling(), threading.Event()

        def listen() -> None:
            while not heard.is_set():
                if waiting.wait(60.0 if self.store.capabilities.notify else 0.01):
                    heard.set()

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        for _ in range(3000):
            tell()
            if heard.wait(0.01) or not self.store.capabilities.notify:
                break
        assert heard.is_set() or not self.store.capabilities.notify
        heard.set()
        waiting.close()
        thread.join(60)
        assert not thread.is_alive()

    def test_closing_a_handle_ends_a_wait_in_another_thread(self) -> None:
        waiting, begun = self.sibling(), threading.Event()

        def listen() -> None:
            begun.set()
            waiting.wait(60)

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        begun.wait(60)
        waiting.close()
        thread.join(30)
        assert not thread.is_alive()

    def test_notify_never_raises(self) -> None:
        self.store.notify()
        self.sibling().close()
        self.store.notify()

    # --- namespaces -------------------------------------------------------------------------------------------------

    def test_jobs_of_one_namespace_are_unknown_in_another(self) -> None:
        self.define()
        other = self.open("other")
        assert other.job("job") is None
        assert state_of(other) is None
        assert not any([other.jobs(retired=True), other.ranges("job")])
        assert JobHistory() == other.history("job")
        assert not other.retire("job", by="ann", why="")
        for verb in (other.trigger, other.pause, other.resume):
            with pytest.raises(UnknownJob):
                verb("job", by="ann", why="")
        with pytest.raises(UnknownJob):
            other.enqueue([Item(job="job")])
        with pytest.raises(UnknownJob):
            other.backfill("job", [minute(1)], by="ann")

    def test_one_name_is_two_jobs_in_two_namespaces(self) -> None:
        other = self.open("other")
        self.define(self.job(args=(1,)))
        self.define(self.job(args=(2,)), store=other)
        theirs = other.job("job")
        assert theirs is not None
        assert ((1,), (2,)) == (self.view().spec.args, theirs.spec.args)
        assert self.view().id != theirs.id
        other.pause("job", by="ann", why="")
        assert self.view().paused_at is None

    def test_which_release_is_the_newer_one_is_known_in_each_namespace_by_itself(self) -> None:
        other = self.open("other")
        for store, older, newer in ((self.store, "r1", "r2"), (other, "r2", "r1")):
            self.define(self.job(args=(older,)), release=older, store=store)
            self.session("newer", release=newer, store=store)
            assert ("job",) == self.define(self.job(args=(newer,)), release=newer, store=store).changed
            assert ("job",) == self.define(self.job(args=(older,)), release=older, store=store).superseded

    def test_hostile_namespaces_are_ordinary_and_different_namespaces(self) -> None:
        stores = {name: self.open(name) for name in HOSTILE}
        self.store.migrate()
        for name, store in stores.items():
            assert self.namespace_of(name) == store.namespace
            assert store.job("job") is None
            self.define(self.job(args=(name,)), store=store)
        for name, store in stores.items():
            assert [(name,)] == [job.spec.args for job in store.jobs()]
        assert [] == self.store.jobs()

    def test_occurrences_of_one_namespace_cannot_be_reached_from_another(self) -> None:
        queue = self.queue()
        made = self.enqueue("key")
        other = self.open("other")
        self.define(self.job(queue, trigger=None), store=other)
        self.session("theirs", store=other)
        assert other.occurrence(made.id) is None
        assert [] == other.occurrences(OccurrenceFilter())
        assert [] == take(other, "theirs", 10, [queue], lease=LEASE)
        assert not other.look().backlog
        assert (0, 0) == (other.counts().pending, other.counts().running)
        for verb in (other.cancel, other.retry):
            with pytest.raises(LookupError):
                verb(made.id, by="ann", why="")
        assert other.enqueue([Item(job=queue, key="key")])[0].created

    def test_runs_of_one_namespace_cannot_be_finished_from_another(self) -> None:
        self.queue()
        self.session()
        self.enqueue()
        claim = self.take()
        other = self.open("other")
        settled = settle(other, [an_end(id=claim.id, token=claim.token, state=State.FAILED)])[0]
        assert not settled.accepted
        assert [False] == give_back(other, [claim])
        assert State.RUNNING is self.look(claim).state
        assert not any([other.runs(claim.id), other.logs(claim.id)])

    def test_a_session_of_one_namespace_is_unknown_in_another(self) -> None:
        self.session()
        other = self.open("other")
        assert not other.renew("s1", lease=LEASE).alive
        assert not other.drain("s1", by="ann", why="")
        assert not any([other.close_session("s1"), other.reclaim(["s1"]), other.sessions(ended=True)])
        with pytest.raises(LeaseLost):
            take(other, "s1", 10, ["job"], lease=LEASE)
        with pytest.raises(LeaseLost):
            other.lock("name", "holder", ttl=LEASE, session="s1")
        assert self.store.renew("s1", lease=LEASE).alive

    def test_reclaiming_in_one_namespace_leaves_the_dead_of_another(self) -> None:
        self.queue()
        self.session()
        self.enqueue()
        claim = self.take()
        self.lease_out()
        assert [] == self.open("other").reclaim()
        assert [claim.id] == [taken.id for taken in self.store.reclaim()]

    def test_a_lock_of_one_namespace_is_free_in_another(self) -> None:
        other = self.open("other")
        ours = self.store.lock("name", "a", ttl=LEASE)
        theirs = other.lock("name", "b", ttl=LEASE)
        assert ours is not None
        assert theirs is not None
        assert ["a"] == [lock.holder for lock in self.store.locks()]
        assert other.unlock(theirs)
        assert self.store.lock("name", "c", ttl=LEASE) is None

    def test_plans_of_one_namespace_are_lost_in_another(self) -> None:
        self.define()
        plan = self.plan(minute(1))
        other = self.open("other")
        self.define(store=other)
        assert [False] == carry_out(other, [plan])
        assert [] == other.occurrences(OccurrenceFilter())
        assert [True] == carry_out(self.store, [plan])

    def test_a_release_of_one_namespace_supersedes_none_in_another(self) -> None:
        self.define(release="old")
        other = self.open("other")
        self.session("theirs", release="new", store=other)
        assert ("job",) == self.define(self.job(args=(1,)), release="old").changed

    def test_pruning_and_the_trail_keep_to_their_namespace(self) -> None:
        self.queue()
        self.session()
        kept = self.done()
        self.store.trigger("queue", by="ann")
        other = self.open("other")
        self.clock.advance(100 * DAY)
        assert 0 == other.prune(self.store.now())
        assert [PRUNE] == [entry.action for entry in other.trail()]
        assert kept == self.look(kept.id)
        with pytest.raises(InvalidTransition):
            self.store.cancel(kept.id, by="ann", why="")
