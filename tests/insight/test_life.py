"""Whether a session is alive, how that is known, and since when it is not."""

import os
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cronsensus.insight.health import read_health
from cronsensus.insight.life import life_of, lives_of
from cronsensus.model.session import SessionView
from tests.hand_cluster import START, HandCluster

IDLE = timedelta(minutes=10)
DRAINS = "draining (idle), its process runs on this host"
OVERDUE = "gone: 1m 40s past its lease, last seen 11m 40s ago"


def a_view(seen: float = 0, lease: timedelta = IDLE, **given: Any) -> SessionView:
    """Return an open session that renewed its lease so many seconds before the start."""
    renewed_at = START - timedelta(seconds=seen)
    fields: dict[str, Any] = {
        "id": "s", "node": "web-1", "host": "elsewhere", "pid": 7, "pid_started": 1, "release": "r1", "version": "1",
        "concurrency": 20, "functions": 1, "state": "alive", "started_at": renewed_at, "renewed_at": renewed_at,
        "ended_at": None, "ended_why": None, "expires_in": lease - timedelta(seconds=seen), "holds": 0,
    }  # fmt: skip
    return SessionView(**fields | given)


@pytest.mark.parametrize(
    ("one", "sign", "process", "expected"),
    [
        (a_view(240), None, "runs", ("alive", "process", "alive (idle), its process runs on this host")),
        (a_view(240), False, "runs", ("alive", "process", "alive (idle), its process runs on this host")),
        (a_view(240, holds=1), None, "runs", ("alive", "process", "alive, its process runs on this host")),
        (a_view(240, state="draining"), None, "runs", ("alive", "process", DRAINS)),
        (a_view(31), True, "gone", ("gone", "process", "gone: its process ended, last seen 31s ago")),
        (a_view(31), True, "stopped", ("stopped", "process", "stopped, last seen 31s ago")),
        (a_view(700, state="dead"), True, "stopped", ("stopped", "process", "stopped, last seen 11m 40s ago")),
        (a_view(700, state="dead"), True, "runs", ("gone", "lease", OVERDUE)),
        (a_view(240), True, None, ("alive", "connection", "alive (idle), connected to the server")),
        (a_view(240), False, None, ("gone", "connection", "gone: its connections ended, last seen 4m ago")),
        (a_view(4), False, None, ("gone", "connection", "gone: its connections ended, last seen 4s ago")),
        (a_view(4), None, None, ("alive", "lease", "alive (idle), seen 4s ago")),
        (a_view(30), None, None, ("alive", "lease", "alive (idle), seen 30s ago")),
        (a_view(31), None, None, ("unknown", "lease", "unknown, last seen 31s ago")),
        (a_view(40, timedelta(minutes=1), holds=1), None, None, ("alive", "lease", "alive, seen 40s ago")),
        (a_view(-3), None, None, ("alive", "lease", "alive (idle), seen now")),
    ],
)  # fmt: skip
def test_life_of_a_session_goes_by_the_lease_the_process_the_sign_and_the_renewal_in_this_order(
    one: SessionView, sign: bool | None, process: Any, expected: tuple[str, str, str]
) -> None:
    life = life_of(one, START, sign=sign, process=process)
    assert (life.state, life.known_by, str(life.sentence)) == expected
    assert life.seen == (
        timedelta(0) if life.is_alive and expected[1] != "lease" else max(START - one.renewed_at, timedelta(0))
    )


class Signs:
    """The signs that a store shows, one answer after the other."""

    def __init__(self, *answers: dict[str, bool]) -> None:
        self.answers = list(answers)
        self.asked: list[list[str]] = []

    def __call__(self, sessions: list[str]) -> dict[str, bool]:
        self.asked.append(list(sessions))
        return self.answers.pop(0)


def move_elsewhere(cluster: HandCluster, session: str) -> None:
    """Make a session one of a process table that this host does not see."""
    known: Any = cluster.store
    known._space.sessions[session].spec = replace(known._space.sessions[session].spec, host="elsewhere")


def test_lives_of_a_cluster_asks_for_signs_only_of_sessions_that_the_kernel_does_not_know(
    cluster: HandCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.join("here")
    move_elsewhere(cluster, there := cluster.join("there"))
    monkeypatch.setattr(cluster.store, "_signs", signs := Signs({there: True}))
    cluster.advance(60)
    lives = lives_of(cluster.store, cluster.store.sessions())
    assert {one: life.known_by for one, life in lives.items()} == {"session-of-here": "process", there: "connection"}
    assert signs.asked == [[there]]


@pytest.mark.parametrize(("again", "state"), [(True, "alive"), (False, "gone")])
def test_a_sign_that_is_missed_once_may_be_a_connection_that_was_cut(
    cluster: HandCluster, monkeypatch: pytest.MonkeyPatch, again: bool, state: str
) -> None:
    move_elsewhere(cluster, there := cluster.join("there"))
    monkeypatch.setattr(cluster.store, "_signs", signs := Signs({there: False}, {there: again}))
    assert lives_of(cluster.store, cluster.store.sessions())[there].state == state
    assert signs.asked == [[there], [there]]


def test_health_by_the_name_of_this_host_does_not_pass_on_a_session_of_an_earlier_container(
    cluster: HandCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = os.uname().nodename
    move_elsewhere(cluster, before := cluster.join(f"{name}:1"))
    monkeypatch.setattr(cluster.store, "_signs", lambda _: {before: True})
    found = read_health(cluster.store, node=name)
    assert (found.ok, [life.state for _, life in found.others]) == (False, ["unknown"])
    assert "connected to the server, but no process that the host of this name sees" in found.sentence
    assert read_health(cluster.store).ok
    cluster.join(f"{name}:2")
    assert read_health(cluster.store, node=name).ok


def test_health_of_a_cluster_of_which_nothing_is_known_fails_and_says_when_it_was_seen(cluster: HandCluster) -> None:
    cluster.every("tick")
    move_elsewhere(cluster, cluster.join("there"))
    assert read_health(cluster.store).ok
    cluster.advance(240)
    found = read_health(cluster.store)
    assert not found.ok
    assert found.sentence == (
        "fail: the store answers, but no node is known to be alive: there is unknown, last seen 4m ago"
    )
