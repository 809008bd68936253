"""In which zone a page shows its times: all of it in one, the viewer's unless somebody chose another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo

from cronsensus.errors import CronsensusError
from cronsensus.triggers.zones import load_zone

CHOSEN, VIEWERS = "cronsensus_zone", "cronsensus_viewer_zone"
"""Cookies: what was chosen, and the zone of the browser, which its script writes down."""
CHOICES = ("viewer", "utc", "job")
_LONGEST = 64


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


def choose_zone(asked: str | None, cookies: Mapping[str, str], job: tzinfo | None = None) -> PageZone:
    """Return the zone of a page: asked for, or chosen before, or the browser's, or UTC where that is not known."""
    found: tzinfo = UTC
    viewer = cookies.get(VIEWERS, "")[:_LONGEST]
    try:
        found = load_zone(viewer)
    except CronsensusError:
        viewer = ""
    choice = next((one for one in (asked, cookies.get(CHOSEN)) if one in CHOICES), "viewer")
    if choice == "job" and job is None:
        choice = "viewer"
    zones = {"viewer": found, "utc": UTC, "job": job or UTC}
    return PageZone(choice or "viewer", zones[choice or "viewer"], viewer, "" if job is None else str(job))
