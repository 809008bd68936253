"""Jobs that come after others: a run waits for the end of its upstreams, or is skipped.

``declare.py`` reads a user's options, ``downstream.py`` lists the jobs after a job, and ``upstreams.py`` reads how the
upstreams of a run ended. ``admission.py`` and ``waking.py`` are the hooks at a node. ``run.py`` and ``crossing.py``
give a ``Run`` its upstreams, also in a process of its own. The rules are pure, in ``model/gate.py``. The node and the
stores do not know this package.
"""
