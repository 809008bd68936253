"""Batches: a job that is called once for each item of a list, by whichever nodes have free slots.

``declare.py`` is what a user writes, ``batch.py`` what of that a node needs, ``phases.py`` an attempt of a batch,
``pages.py`` its items on their way into the store and their results on the way out; ``admission.py`` and ``waking.py``
are its hooks at a node, ``run.py`` what a ``Run`` has of it. The node and the stores do not know this package.
"""
