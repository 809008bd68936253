"""Pages that show jobs, runs and nodes in a browser. Nothing changes by them.

Needs ``pip install "cronsensus[dashboard]"``.
"""

from cronsensus.dashboard.app import dashboard

__all__ = ["dashboard"]
