"""``guard``: APScheduler 3 goes on keeping time and running functions; the store decides which process runs a time.

Needs ``pip install "cronsensus[apscheduler]"``.
"""

from cronsensus.integrations.apscheduler.guard import guard

__all__ = ["guard"]
