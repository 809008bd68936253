"""Pages that show jobs, runs and nodes in a browser, and act on them.

Needs ``pip install "cronsensus[dashboard]"``.
"""

from cronsensus.dashboard.app import dashboard
from cronsensus.dashboard.wsgi import dashboard_wsgi

__all__ = ["dashboard", "dashboard_wsgi"]
