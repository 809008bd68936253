"""Stores on SQL databases. What they say is in ``queries/*.sql``, and goes to the database's own driver.

One question per file: ``schema`` which tables, ``migrations`` how a store comes to have them, ``sql_handle``
connections and transactions, ``sql_store`` which verb runs in what transaction, ``transaction`` what a verb works with,
``dialect`` what differs between databases, ``queries`` and ``sending`` how a statement by name comes to its database,
``connection`` and ``connections`` what it goes over, ``engine`` where SQLAlchemy comes in, ``lending`` and
``borrowing`` how a transaction is shared with the code of a user.

The verbs: ``looking``, ``firing``, ``claim_query`` and ``claiming``, ``acquiring``, ``finishing``, ``sessions``,
``sql_locks``, ``defining``, ``retiring``, ``pausing``, ``operating``, ``pruning``, ``sql_reading`` and
``reading_jobs``. Rows and values they share: ``job_rows``, ``definitions``, ``occurrence_rows``, ``trail``.

A database is a package of its own: ``sqlite``.
"""
