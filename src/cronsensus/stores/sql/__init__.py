"""Stores on SQL databases, through SQLAlchemy Core. Floor 3.

One question per file: ``schema`` which tables, ``migrations`` how a store comes to have them, ``store`` which verb runs
in what transaction, ``transaction`` what a verb works with, ``dialect`` what differs between databases. The verbs:
``looking``, ``firing``, ``claiming``, ``acquiring``, ``finishing``, ``sessions``, ``locks``, ``jobs``, ``operating``,
``pruning``, ``reading``. SQLite: ``sqlite``, ``errors``, ``filesystems``, ``wake``.
"""
