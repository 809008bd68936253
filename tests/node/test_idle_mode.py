"""A crowd of nodes that mostly sleeps, on a clock that jumps to the next wake-up: what it costs, what it notices."""

import heapq
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from itertools import count, pairwise

import pytest
from cronsensus.node.idle_mode import HINTED, NEIGHBOURS_KEPT, begin, go_on

from cronsensus import JobSpec, Policies, every
from cronsensus.clock import ManualClock
from cronsensus.membership.renewer import SessionRenewer
from cronsensus.model.ending import Ending
from cronsensus.model.occurrence import Item, Occurrence, OccurrenceFilter
from cronsensus.node.executors.base import Call
from cronsensus.node.round import Round
from cronsensus.node.situation import Facts, Idle, Memory
from cronsensus.node.turn_order import ACTIVE, LAST_PLACE, STAGGER, TERM, idle_until, is_active, place, turn
from cronsensus.stores.announcements import Announcements
from cronsensus.stores.memory import MemoryStore
from tests.node.recording_executor import RecordingExecutor, new_session, node_by_hand
from tests.node.test_decide import HERE, NOW, WATCH, holder, view

LEASE = timedelta(seconds=10)
SECOND = timedelta(seconds=1)
RUNS = timedelta(milliseconds=1)


class Hands(RecordingExecutor):
    """Ends each call after ``lasts``."""

    def __init__(self, crowd: "Crowd", number: int) -> None:
        super().__init__()
        self.crowd, self.number = crowd, number

    def start(self, call: Call) -> None:
        super().start(call)
        self.crowd.after(self.crowd.lasts.total_seconds(), partial(self.end, call))

    def end(self, call: Call) -> None:
        if self.number not in self.crowd.dead:
            self.calls.remove(call)
            self.crowd.nodes[self.number].active_runs.ended(call, Ending(kind="returned"))
            self.crowd.turn(self.number)


class Counted(MemoryStore):
    """A store that counts what it is asked, and hands hints to the crowd."""

    crowd: "Crowd"

    def _look(self, *args, **more):
        self.crowd.asked["look"] += 1
        return super()._look(*args, **more)

    def renew(self, *args, **more):
        self.crowd.asked["renew"] += 1
        return super().renew(*args, **more)

    def sessions(self, **more):
        self.crowd.asked["sessions"] += 1
        return super().sessions(**more)

    def notify(self):
        for number in self.crowd.living:
            self.crowd.after(0.0005, partial(self.crowd.turn, number))

    def announce(self, decided):
        if self.crowd.announces:
            self.crowd.after(0.0005, partial(self.crowd.announcements.note, decided))


class Crowd:
    """Nodes on one store. A node's crank is turned when it asked for it, when a run of it ends, and at each hint."""

    def __init__(self, count_of: int, *, hosts: int = 1, concurrency: int = 20, lasts: timedelta = RUNS) -> None:
        self.clock, self.lasts, self.hosts = ManualClock(), lasts, hosts
        self.asked: Counter[str] = Counter()
        self.dead: set[int] = set()
        self.announces = True
        self.announcements = Announcements()
        self.store = Counted(clock=self.clock)
        self.store.crowd = self
        self.concurrency = concurrency
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._turn_of: dict[int, int] = {}
        self.hands = [Hands(self, number) for number in range(count_of)]
        self.keepers = [self._keeper(number) for number in range(count_of)]
        self.nodes = [self._node(number) for number in range(count_of)]
        for number, node in enumerate(self.nodes):
            node.begin()
            self.after(0.001 * number, partial(self.turn, number))

    def _node(self, number: int) -> Round:
        host = f"host-{number % self.hosts}"
        return node_by_hand(
            self.store,
            self.clock,
            self.hands[number],
            lease=LEASE,
            name=str(number),
            concurrency=self.concurrency,
            new_session=new_session(str(number), host=host, pid=1 + number, concurrency=self.concurrency),
            on_session=self.keepers[number].keep,
            on_work=partial(self.keep, number),
            evidence=lambda view: view.host == host and int(view.node) in self.dead,
            announced=lambda: self.announcements.kept,
        )

    def _keeper(self, number: int) -> SessionRenewer:
        return SessionRenewer(
            self.clock,
            lease=LEASE,
            holds=lambda: bool(self.nodes[number].active_runs),
            on_renewal=lambda *_: None,
        )

    @property
    def living(self) -> list[int]:
        return [number for number in range(len(self.nodes)) if number not in self.dead]

    def put(self, name: str, period: str, **policies: object) -> None:
        trigger = every(period, start=self.clock.now())
        self.store.define_jobs(
            [JobSpec(name=name, function="work", trigger=trigger, policies=Policies.read(policies))], release="1"
        )
        self.store.notify()

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.clock.monotonic() + seconds, next(self._order), what))

    def keep(self, number: int) -> None:
        """Turn a node's keeper."""
        if number in self.dead:
            return
        this = self._turn_of[~number] = next(self._order)
        self.after(self.keepers[number].renew(self.store) + 1e-5, partial(self._keep_if, number, this))

    def _keep_if(self, number: int, this: int) -> None:
        if self._turn_of[~number] == this:
            self.keep(number)

    def turn(self, number: int, this: int | None = None) -> None:
        """Turn a node's crank, unless it was turned since that was asked for."""
        if number in self.dead or (this is not None and this != self._turn_of.get(number)):
            return
        this = self._turn_of[number] = next(self._order)
        wait = self.nodes[number].step()
        # A few microseconds late, as any thread is, and so never a little before.
        self.after(wait + 1e-5, partial(self.turn, number, this))

    def run(self, seconds: float, until=lambda: False) -> float:
        """Let that much time pass, or less if something comes about; return how much."""
        begun = self.clock.monotonic()
        while self._events[0][0] <= begun + seconds and not until():
            at, _, what = heapq.heappop(self._events)
            self.clock.advance(max(0.0, at - self.clock.monotonic()))
            what()
        if not until():
            self.clock.advance(max(0.0, begun + seconds - self.clock.monotonic()))
        return self.clock.monotonic() - begun

    def ran(self, job: str = "job") -> list[Occurrence]:
        return self.store.occurrences(OccurrenceFilter(job=job), limit=10_000, newest_first=False)

    def runs_elsewhere(self, node: str) -> bool:
        return any(name != node for name in self.running)

    @property
    def running(self) -> Counter[str]:
        return Counter(str(one.node) for one in self.ran() if one.state == "running")


def lateness(one: Occurrence) -> float:
    assert one.started_at is not None
    return (one.started_at - one.due_at) / SECOND


def looks_of(nodes: int, seconds: int) -> float:
    """Return the reads that a number of nodes make for each occurrence."""
    crowd = Crowd(nodes)
    crowd.put("job", "1s")
    crowd.run(30)
    crowd.run(0.5)
    before, ran = sum(crowd.asked.values()), len(crowd.ran())
    crowd.run(seconds)
    occurrences = crowd.ran()[ran:]
    assert len(occurrences) == seconds
    assert len({one.node for one in occurrences}) > min(nodes, ACTIVE + 3) - 1, "the same ones do everything for ever"
    assert max(map(lateness, occurrences)) <= 0.001
    return (sum(crowd.asked.values()) - before) / seconds


def test_thirty_nodes_look_little_more_often_than_four():
    few, many = looks_of(4, 60), looks_of(30, 60)
    assert many <= few + 30 / 5, "an idle node adds less than one look in five seconds"


@pytest.mark.parametrize("nodes", [5, 30])
def test_long_runs_spread_to_idle_nodes(nodes):
    crowd = Crowd(nodes, concurrency=1, lasts=timedelta(hours=1))
    crowd.put("job", "1s", overlap="allow")
    crowd.run(nodes + 0.9)
    late = [lateness(one) for one in crowd.ran() if one.started_at]
    assert len(late) == nodes
    assert max(late) <= HINTED[1] + LAST_PLACE * STAGGER / SECOND
    assert set(crowd.running.values()) == {1}


def test_many_long_runs_take_the_slots_of_all_nodes():
    crowd = Crowd(30, concurrency=10, lasts=timedelta(hours=1))
    start = crowd.clock.now()
    crowd.store.define_jobs(
        [JobSpec(name=f"j{i}", function="work", trigger=every("1d", start=start + 20 * SECOND)) for i in range(300)],
        release="1",
    )
    crowd.store.notify()
    crowd.run(19.9)
    assert [len(hands.calls) for hands in crowd.hands] == [0] * 30
    crowd.run(1)
    assert [len(hands.calls) for hands in crowd.hands] == [10] * 30


@pytest.mark.parametrize("hosts", [1, 10])
def test_a_dead_process_is_noticed_by_its_own_host(hosts):
    crowd = Crowd(30, hosts=hosts, lasts=timedelta(hours=1))
    crowd.put("job", "100s", max_crashes=100)
    crowd.run(100.5)
    for _ in range(20):
        ((node, _),) = crowd.running.items()
        if sum(int(node) % hosts == number % hosts for number in crowd.living) < 2:
            break  # the last one of its host: nobody can tell
        crowd.run(7.3)
        crowd.dead.add(int(node))
        took = crowd.run(30, until=partial(crowd.runs_elsewhere, node))
        assert took <= 1


@pytest.mark.parametrize("trigger", [None, every("100s", start=ManualClock().now())])
def test_a_run_of_a_dead_active_set_is_taken_over_soon_after_its_lease(trigger):
    crowd = Crowd(30, hosts=30, lasts=timedelta(hours=1))
    crowd.store.define_jobs([JobSpec(name="job", function="work", trigger=trigger)], release="1")
    crowd.run(1)
    crowd.store.enqueue([Item(job="job")])
    crowd.store.notify()
    crowd.run(0.3)
    ((node, _),) = crowd.running.items()
    ids = {one.node: one.id for one in crowd.store.sessions()}
    due = None if trigger is None else trigger.next_after(crowd.clock.now())
    crowd.dead |= {int(name) for name, one in ids.items() if is_active(one, sorted(ids.values()), due)}
    assert int(node) in crowd.dead
    took = crowd.run(30, until=partial(crowd.runs_elsewhere, node))
    assert took <= LEASE / SECOND + 1


def test_an_idle_node_with_a_free_slot_fills_it_at_once():
    crowd = Crowd(6, concurrency=1, lasts=timedelta(hours=1))
    crowd.store.define_jobs([JobSpec(name="job", function="work")], release="1")
    crowd.run(1)
    crowd.store.enqueue([Item(job="job")] * 12)
    crowd.store.notify()
    crowd.run(2)
    for hands in crowd.hands:
        (call,) = hands.calls
        hands.end(call)
        crowd.run(0.005)
        assert len(hands.calls) == 1


def test_idle_nodes_go_on_soon_after_the_active_set_died():
    crowd = Crowd(30)
    crowd.put("job", "1s", overlap="allow", catch_up="all")
    crowd.run(20.5)
    ids = {one.node: one.id for one in crowd.store.sessions()}
    for until in (crowd.clock.now(), crowd.clock.now() + TERM):
        crowd.dead |= {int(name) for name, one in ids.items() if is_active(one, sorted(ids.values()), until)}
    before = len(crowd.ran())
    crowd.run(5)
    after = crowd.ran()[before:]
    assert len(after) >= 4
    assert max(map(lateness, after)) <= 1.5


def test_many_nodes_without_work_sleep():
    crowd = Crowd(30)
    crowd.run(10)
    before = sum(crowd.asked.values())
    crowd.run(600)
    assert (sum(crowd.asked.values()) - before) / 30 <= 2 * 10


def test_turn_order_is_the_same_for_all_nodes():
    sessions = [f"s{number}" for number in range(30)]
    instant = ManualClock().now()
    active = [one for one in sessions if is_active(one, sessions, instant)]
    assert len(active) == ACTIVE
    turns = sorted(turn(one, sessions, instant) - instant for one in active)
    assert turns == [place * STAGGER for place in range(ACTIVE)]
    idle = [one for one in sessions if one not in active]
    until = sorted((idle_until(one, sessions, instant) - instant) / SECOND for one in idle)
    assert max(until) <= 10
    assert all(b - a <= 0.5 for a, b in pairwise(until)), "a gap in which no node looks"
    assert all(is_active(one, sessions[:4], instant) for one in sessions[:4])


def test_what_is_announced_is_not_looked_at_by_all():
    told, untold = Crowd(4), Crowd(4)
    untold.announces = False
    for crowd in (told, untold):
        crowd.put("job", "1s")
        crowd.run(30.5)
        assert max(map(lateness, crowd.ran())) <= 0.001
    assert told.asked["look"] < untold.asked["look"] - 30


@pytest.mark.parametrize("announces", [True, False], ids=["announced", "announcements are lost"])
@pytest.mark.parametrize("second", range(20, 28))
def test_two_nodes_that_end_silently_before_their_turn_make_no_due_time_late(second, announces):
    crowd = Crowd(4, hosts=4)
    crowd.announces = announces
    crowd.put("job", "1s", overlap="allow")
    crowd.run(second - 0.4)
    sessions = {node.lease.session: number for number, node in enumerate(crowd.nodes) if node.lease}
    due = crowd.ran()[0].due_at + len(crowd.ran()) * SECOND
    order = sorted(sessions, key=lambda one: place(one, tuple(sessions), due))
    crowd.dead |= {sessions[one] for one in order[:2]}
    before = len(crowd.ran())
    crowd.run(5)
    assert len(crowd.ran()) - before == 5
    assert max(map(lateness, crowd.ran()[before:])) <= 4 * STAGGER / SECOND


# --- one sleep --------------------------------------------------------------------------------------------------------

NODE = Facts(session="a", watch=WATCH)


@pytest.mark.parametrize(
    ("runs", "expected", "fast_evidence", "look_in", "watch_in"),
    [
        (True, None, True, 9.0, WATCH),
        (True, 3.0, True, 9.0, WATCH),
        (False, 3.0, True, 9.0, 2.0 + WATCH),
        (False, 0.5, True, 9.0, WATCH),
        (False, None, True, 9.0, 9.0),
        (True, 3.0, False, 9.0, 9.0),
        (True, None, True, WATCH, WATCH),
        (True, None, True, -1.0, WATCH),
    ],
    ids=[
        "others run something", "and more is due later", "something is due later", "it is due since the look",
        "nothing", "no fast evidence", "the look comes as soon", "the look is overdue",
    ],
)  # fmt: skip
def test_idle_node_watches_the_processes_of_its_host_from_when_others_may_run(
    runs, expected, fast_evidence, look_in, watch_in
):
    memory = Memory(
        looked_at=HERE - 1, look_at=HERE + look_in, expected=None if expected is None else NOW + expected * SECOND
    )
    facts = Facts(session="a", watch=WATCH, fast_evidence=fast_evidence)
    todo, after = begin(memory, view(), facts, HERE, runs=runs)
    assert after.idle == Idle(until=HERE + look_in, watch_at=HERE + watch_in)
    assert todo.sleep == max(0.0, min(look_in, watch_in))
    assert todo.read_neighbours is (watch_in < look_in), "only those that are watched before the look are read"


@pytest.mark.parametrize(("kept_for", "reads"), [(NEIGHBOURS_KEPT, False), (NEIGHBOURS_KEPT + 0.001, True)])
def test_idle_node_reads_its_neighbours_again_when_they_are_old(kept_for, reads):
    memory = Memory(looked_at=HERE, look_at=HERE + 9, neighbours_at=HERE - kept_for)
    assert begin(memory, view(), NODE, HERE, runs=True)[0].read_neighbours is reads


def test_notification_ends_an_idle_sleep_soon_and_never_later_than_it_would_have_ended():
    soon, _ = go_on(Idle(until=HERE + 60, watch_at=HERE + 60), (), NODE, HERE)
    assert soon is not None
    assert HINTED[0] <= soon.until - HERE <= HINTED[1]
    assert go_on(Idle(until=HERE + 0.01, watch_at=HERE + 60), (), NODE, HERE)[0] == Idle(
        until=HERE + 0.01, watch_at=HERE + 60
    )
    assert go_on(Idle(until=HERE, watch_at=HERE + 60), (), NODE, HERE)[0] is None


def test_dead_neighbour_ends_an_idle_sleep_at_the_time_to_watch_and_not_at_its_end():
    neighbours, facts = (holder("b"), holder("c")), Facts(session="a", watch=WATCH, gone=frozenset({"b"}))
    assert go_on(Idle(until=HERE + 9, watch_at=HERE), neighbours, facts, HERE) == (None, (holder("c"),))
    assert go_on(Idle(until=HERE, watch_at=HERE), neighbours, facts, HERE) == (None, neighbours)
    assert go_on(Idle(until=HERE + 9, watch_at=HERE), neighbours, NODE, HERE) == (
        Idle(until=HERE + 9, watch_at=HERE + WATCH),
        neighbours,
    )
