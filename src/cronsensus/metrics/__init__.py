"""Numbers about jobs, runs, nodes and the store, for Prometheus and whatever reads its format.

Needs ``pip install "cronsensus[metrics]"``.
"""

from cronsensus.errors import MissingExtra

try:
    import prometheus_client  # noqa: F401 - asked for here, before the modules that need it
except ImportError as error:
    raise MissingExtra(
        f'metrics need {error.name}, which is not installed; pip install "cronsensus[metrics]"'
    ) from error

from cronsensus.metrics.app import metrics, metrics_wsgi
from cronsensus.metrics.collector import Metrics

__all__ = ["Metrics", "metrics", "metrics_wsgi"]
