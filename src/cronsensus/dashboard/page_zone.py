"""The zone in which a page shows all of its times: the viewer's, unless another was chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo

from cronsensus.errors import CronsensusError
from cronsensus.triggers.zones import load_zone

CHOSEN, VIEWERS = "cronsensus_zone", "cronsensus_viewer_zone"
"""Cookies: the viewer's choice, and the zone of the browser, which the page's script sets."""
CHOICES = ("viewer", "utc", "job")
_LONGEST_ZONE = 64


@dataclass(frozen=True, slots=True)
class PageZone:
    """The zone of a page.

    Attributes:
        choice: one of ``CHOICES``; ``job`` only on a page of one job.
        viewer: the name of the browser's zone, or nothing where it is not known.
        job: the name of the zone of the job's schedule, or nothing.
    """

    choice: str
    zone: tzinfo
    viewer: str
    job: str

    @property
    def name(self) -> str:
        """Its name, as people know it."""
        return str(self.zone)


def choose_zone(in_query: str | None, cookies: Mapping[str, str], job: tzinfo | None = None) -> PageZone:
    """Return the zone of a page: by the query, else an earlier choice, else the browser's, else UTC."""
    viewers_zone: tzinfo = UTC
    viewer = cookies.get(VIEWERS, "")[:_LONGEST_ZONE]
    try:
        viewers_zone = load_zone(viewer)
    except CronsensusError:
        viewer = ""
    choice = next((choice for choice in (in_query, cookies.get(CHOSEN)) if choice in CHOICES), "viewer")
    if choice == "job" and job is None:
        choice = "viewer"
    zones = {"viewer": viewers_zone, "utc": UTC, "job": job or UTC}
    return PageZone(choice or "viewer", zones[choice or "viewer"], viewer, "" if job is None else str(job))
