"""Batches: a job that is called once for each item of a list, by whichever nodes have free slots.

``declare.py`` reads a user's options into ``batch.py``. ``phases.py`` is an attempt of a batch: it lists the items, or
collects their results, and ``pages.py`` writes and reads those. ``admission.py`` and ``waking.py`` are the hooks at a
node, and ``run.py`` is the batch's part of ``Run``. The node and the stores do not know this package.
"""
