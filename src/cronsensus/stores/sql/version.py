"""Which schema this code knows."""

from __future__ import annotations

VERSION = 3
"""The schema that this code knows; the number of the newest migration."""
