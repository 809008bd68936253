"""Subscribe to a scheduler's events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, overload

from cronsensus.bus import Bus
from cronsensus.declared.functions import is_async
from cronsensus.errors import InvalidOption
from cronsensus.events import Event, kinds_of
from cronsensus.opened.opened_store import OpenedStore

E = TypeVar("E", bound=Event)
F = TypeVar("F", bound=Callable[..., object])


class Subscriptions:
    """Subscribes functions to events, and unsubscribes them."""

    def __init__(self, bus: Bus, opened: OpenedStore) -> None:
        """Start without subscribers; the verbs of ``opened`` are measured while somebody is subscribed to them."""
        self._bus = bus
        self._opened = opened

    @overload
    def on(self, event: type[E]) -> Callable[[Callable[[E], Any]], Callable[[E], Any]]: ...
    @overload
    def on(self, event: type[E], function: Callable[[E], Any]) -> Callable[[E], Any]: ...
    @overload
    def on(self, event: str) -> Callable[[F], F]: ...
    @overload
    def on(self, event: str, function: F) -> F: ...
    def on(self, event: str | type[Event], function: Any = None) -> Any:
        """Call a function with each event of a kind: ``@scheduler.on("run.ended")``, or ``on("run.ended", function)``.

        It is called soon after the event, on a thread that all subscribers of this scheduler share, so keep it short.
        An exception is logged, and does no harm. While the function blocks, the others wait, and in the end events are
        dropped; the scheduler goes on. Subscribe before the start or after it.

        Args:
            event: a name (``"run.started"``, ``"run.ended"``, ``"takeover"``, ``"plan.carried_out"``,
                ``"session.lost"``, ``"store.verb"``), its class in ``cronsensus.events``, or ``"*"`` for all.
            function: a plain function of one argument, the event.

        Returns:
            the function, which ``off`` takes.

        Raises:
            InvalidOption: there is no such event, or the function is async.
        """
        kinds_of(event)
        if function is None:
            return lambda function: self.on(event, function)
        if not callable(function):
            raise InvalidOption(f"on({event!r}, {function!r}): pass a function that takes the event")
        if is_async(function):
            raise InvalidOption(
                f"on({event!r}, …): {function!r} is async, and subscribers are called on a thread without an event "
                "loop; pass a plain function, such as  lambda event: loop.call_soon_threadsafe(queue.put_nowait, event)"
            )
        self._bus.on(event, function)
        self._opened.measure()
        return function

    def off(self, event: str | type[Event], function: Callable[..., object]) -> bool:
        """Unsubscribe a function from an event; ``False``: it was not subscribed.

        Raises:
            InvalidOption: there is no such event.
        """
        was_on = self._bus.off(event, function)
        self._opened.measure()
        return was_on
