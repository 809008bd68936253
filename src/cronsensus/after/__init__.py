"""Jobs that come after others: a run waits for the end of its upstreams, or is skipped.

``declare.py`` is what a user writes, ``downstream.py`` what comes after a job, ``upstreams.py`` what the ledger says of
what a run comes after; ``admission.py`` and ``waking.py`` are its hooks at a node, ``run.py`` and ``crossing.py`` what
a ``Run`` has of it, also in a process of its own. The rules are pure and stand in ``model/gate.py``. The node and the
stores do not know this package.
"""
