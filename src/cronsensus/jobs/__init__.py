"""What users do with jobs, with or without a node in this process: define, enqueue, trigger, retry, list, rewind.

``job.py`` is what a decorator gives, ``handle.py`` one occurrence; ``definitions.py`` and ``operations.py`` are those
verbs of a scheduler.
"""
