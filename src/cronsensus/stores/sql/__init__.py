"""Stores on SQL databases, through SQLAlchemy Core.

One question per file: ``schema`` which tables, ``migrations`` how a store comes to have them, ``handle`` connections
and transactions, ``store`` which verb runs in what transaction, ``transaction`` what a verb works with, ``dialect``
what differs between databases.

The verbs: ``looking``, ``firing``, ``choosing`` and ``claiming``, ``acquiring``, ``finishing``, ``sessions``,
``locks``, ``defining``, ``retiring``, ``pausing``, ``operating``, ``pruning``, ``reading`` and ``reading_jobs``. Rows
and values they share: ``jobrows``, ``definitions``, ``occurrencerows``, ``trail``.

A database is a package of its own: ``sqlite``.
"""
