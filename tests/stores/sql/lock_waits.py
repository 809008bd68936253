"""Whether a transaction waits for a lock on MySQL."""

import threading

from tests.servers.fixtures import mysql_connection


def waits_for_a_lock(url: str) -> bool:
    """Return whether a transaction on the database of ``url`` waits for a lock."""
    with mysql_connection(url) as connection:
        cursor = connection.cursor()
        # InnoDB shows what it saw when this was last asked, unless that is a tenth of a second ago: never poll faster.
        threading.Event().wait(0.15)
        # Of this test's own database: others use the server at the same time.
        cursor.execute(
            "SELECT COUNT(*) FROM information_schema.innodb_trx t "
            "JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id "
            "WHERE t.trx_state = 'LOCK WAIT' AND p.db = DATABASE()"
        )
        return bool((cursor.fetchone() or [0])[0])
