"""Pages that show jobs, runs and nodes in a browser, and act on them.

Needs ``pip install "cronsensus[dashboard]"``.
"""

from cronsensus.errors import MissingExtra

try:
    import jinja2  # noqa: F401 - asked for here, before the modules that need them
    import starlette  # noqa: F401
except ImportError as error:
    raise MissingExtra(
        f'the dashboard needs {error.name}, which is not installed; pip install "cronsensus[dashboard]"'
    ) from error

from cronsensus.dashboard.app import dashboard
from cronsensus.dashboard.wsgi import dashboard_wsgi

__all__ = ["dashboard", "dashboard_wsgi"]
