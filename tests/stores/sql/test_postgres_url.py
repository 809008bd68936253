"""What the URL of a PostgreSQL store says, and what nobody gets to read of it."""

import pytest

from cronsensus.errors import ConfigurationError, InvalidOption, MissingExtra
from cronsensus.stores import open_store
from cronsensus.stores.sql.postgres.postgres_url import read_url

SECRET = "pa:s@s/w?rd"
WRITTEN = "pa%3As%40s%2Fw%3Frd"


def test_the_parts_of_a_url_reach_the_driver():
    url = read_url(f"postgresql://ann:{WRITTEN}@db.example:5433/shop?sslmode=require&application_name=mine")
    wanted = {"user": "ann", "password": SECRET, "host": "db.example", "port": "5433", "dbname": "shop"}
    assert wanted.items() <= url.connection.items()
    assert (url.connection["sslmode"], url.connection["application_name"]) == ("require", "mine")
    assert (url.schema, url.timeout, url.pooler) == ("cronsensus", 10.0, "auto")


def test_options_of_ours_do_not_reach_the_driver():
    url = read_url("postgres:///shop?schema=Jobs_2&timeout=2500ms&pooler=session&host=/run/postgresql")
    assert (url.schema, url.timeout, url.pooler) == ("Jobs_2", 2.5, "session")
    assert not {"schema", "timeout", "pooler"} & url.connection.keys()
    assert url.where == "postgresql://" + url.where.removeprefix("postgresql://").split("@")[0] + (
        "@/shop?host=/run/postgresql&port=5432&schema=Jobs_2"
    )


def test_several_hosts_may_be_named():
    url = read_url("postgresql://a,b:5433/shop?target_session_attrs=read-write")
    assert (url.connection["host"], url.connection["port"]) == ("a,b", ",5433")
    assert "@a:5432,b:5433/shop" in url.where
    assert "@a:6432,b:6432/shop" in read_url("postgresql:///shop?host=a,b&port=6432").where


def test_of_several_hosts_the_one_is_taken_that_takes_writes_and_one_that_stands_still_is_soon_passed_over():
    several = read_url("postgresql://a,b/shop").connection
    assert (several["target_session_attrs"], several["connect_timeout"]) == ("read-write", "2")
    said = read_url("postgresql://a,b/shop?target_session_attrs=primary&connect_timeout=9").connection
    assert (said["target_session_attrs"], said["connect_timeout"]) == ("primary", "9")
    assert "target_session_attrs" not in read_url("postgresql://a/shop").connection


def test_a_silent_peer_is_found_out_on_every_connection():
    given = read_url("postgresql://db/shop").connection
    assert {"connect_timeout", "keepalives", "keepalives_idle", "tcp_user_timeout"} <= given.keys()
    assert read_url("postgresql://db/shop?connect_timeout=2").connection["connect_timeout"] == "2"


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://db/shop?shema=jobs", r"unknown option 'shema' for a PostgreSQL URL; did you mean 'schema'"),
        ("postgresql://db/shop?ssl_mode=require", "did you mean 'sslmode'"),
        ("postgresql://db/shop?schema=pg_mine", "schema='pg_mine'"),
        ('postgresql://db/shop?schema=a"b', "schema="),
        ("postgresql://db/shop?schema=", "schema=''"),
        ("postgresql://db/shop?schema=" + "x" * 64, "up to 63 letters"),
        ("postgresql://db/shop?timeout=soon", "timeout"),
        ("postgresql://db/shop?timeout=10ms", "at least 0.1 s"),
        ("postgresql://db/shop?pooler=yes", "'auto', 'transaction', 'session'"),
        ("postgresql://db:http/shop", "'http' is no port number"),
        ("postgresql://ann:%zz@db/shop", "write %25 for it"),
    ],
)
def test_a_url_that_cannot_be_says_why(url, words):
    with pytest.raises(ConfigurationError, match=words):
        open_store(url)


@pytest.mark.parametrize("url", [f"postgresql://ann:{WRITTEN}x%zz@db/shop", "postgresql://ann:geheim@[db/shop"])
def test_a_url_that_cannot_be_read_does_not_show_its_password(url):
    with pytest.raises(InvalidOption) as caught:
        read_url(url)
    shown = f"{caught.value} {caught.value.__cause__} {caught.value.__context__ if caught.value.__cause__ else ''}"
    assert "geheim" not in shown
    assert WRITTEN not in shown


def test_a_missing_driver_says_what_to_type(monkeypatch):
    import sys

    for name in [name for name in sys.modules if name.startswith("cronsensus.stores.sql.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r'pip install "cronsensus\[postgres\]"'):
        open_store("postgresql://db/shop")
