"""Claims of a process that is no node: programs that keep the time or the queue themselves, and guarded calls.

``outside.py`` is what they use; ``claims.py`` has the session and what it holds, ``owned_claim.py`` one such claim.
"""

from cronsensus.outside.outside import Answer, Outside, Refused, Wanted, Won

__all__ = ["Answer", "Outside", "Refused", "Wanted", "Won"]
