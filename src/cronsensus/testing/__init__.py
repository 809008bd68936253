"""Test tools for users and for authors of stores."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

if TYPE_CHECKING:  # a pytest that tests no job loads nothing of it
    from cronsensus.scheduler import Scheduler
    from cronsensus.testing.scheduler_kit import Kit
    from cronsensus.testing.stage import KitOptions


def kit(scheduler: Scheduler, **options: Unpack[KitOptions]) -> Kit:
    """Put ``scheduler`` into memory and at a time that the test moves, in a ``with`` block.

    Args:
        scheduler: not started; it may have the URL of a real store.
        options: see ``KitOptions``: ``start``, ``tz``, ``nodes``, ``store``, ``startup``, ``audit`` and
            ``allow_failures``.

    Example:
        >>> from cronsensus import Scheduler, cron
        >>> scheduler = Scheduler("postgresql://shop@db/shop", tz="Europe/Paris")
        >>> @scheduler.job(cron("30 2 * * *"))
        ... def nightly() -> None: ...
        >>> with kit(scheduler, start="2027-03-27 12:00") as shop:
        ...     _ = shop.travel(to="2027-03-29 00:00")
        ...     shop.assert_ran_once(nightly, on="2027-03-28").started_at.isoformat()
        '2027-03-28T01:00:00+00:00'
    """
    from cronsensus.testing.scheduler_kit import Kit

    return Kit(scheduler, **options)


__all__ = ["Kit", "kit"]


def __getattr__(name: str) -> Any:
    if name == "Kit":
        from cronsensus.testing.scheduler_kit import Kit

        return Kit
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
