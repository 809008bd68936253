"""A node's sessions, one after the other."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from cronsensus.membership.lease import IDLE_LEASE
from cronsensus.node.session import DECLARE_AGAIN_EVERY, OwnSession
from cronsensus.node.settings import NodeSettings
from cronsensus.stores.base import Store
from cronsensus.stores.memory import MemoryStore
from cronsensus.timing.clock import ManualClock
from tests.node.recording_executor import new_session

LEASE = timedelta(seconds=10)


class Scene:
    """An own session on a store, that counts how often it declares, and says what comes of it."""

    def __init__(self, lease: timedelta = LEASE) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        self.declared = 0
        self.comes: list[bool | Exception] = []
        self.own = OwnSession(
            self.store,
            self.clock,
            NodeSettings(name="a", lease=lease, concurrency=1),
            new_session=new_session(),
            declare=self._declare,
            on_lease_shortened=lambda: None,
        )

    def _declare(self, _: Store) -> bool:
        self.declared += 1
        answer = self.comes.pop(0) if self.comes else False
        if isinstance(answer, Exception):
            raise answer
        return answer

    def live(self) -> list[str]:
        return [one.id for one in self.store.sessions()]


@pytest.mark.parametrize("lease", [LEASE, IDLE_LEASE, 2 * IDLE_LEASE])
def test_session_that_holds_nothing_has_a_long_lease_and_never_a_shorter_one_than_was_asked(lease: timedelta) -> None:
    scene = Scene(lease)
    scene.own.open_session()
    (session,) = scene.store.sessions()
    assert session.expires_in == max(lease, IDLE_LEASE)


def test_session_whose_declaration_failed_is_closed_before_the_next_is_opened() -> None:
    scene = Scene()
    scene.comes = [ValueError("refused")]
    with pytest.raises(ValueError, match="refused"):
        scene.own.open_session()
    assert len(scene.live()) == 1
    assert scene.own.lease is None
    lease = scene.own.open_session()
    assert scene.live() == [lease.session]


def test_session_that_is_closed_is_trusted_no_more_and_the_others_hear_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    lease = scene.own.open_session()
    heard: list[Any] = []
    monkeypatch.setattr(scene.store, "notify", lambda: heard.append(scene.live()))
    assert lease.is_trusted
    scene.own.close_session()
    assert lease.is_lost
    assert heard == [[]], "once the store knows"


def test_node_declares_once_more_after_a_while_and_then_as_long_as_a_newer_release_is_there() -> None:
    scene = Scene()
    scene.own.open_session()
    scene.comes = [True, False]
    for seconds, declared in (
        (DECLARE_AGAIN_EVERY, 1),
        (1, 2),
        (DECLARE_AGAIN_EVERY, 2),
        (1, 3),
        (DECLARE_AGAIN_EVERY + 1, 3),
    ):
        scene.clock.advance(timedelta(seconds=seconds))
        scene.own.declare_again()
        assert scene.declared == declared
