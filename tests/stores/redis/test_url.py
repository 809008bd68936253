"""What the URL of a Redis store may say, and what a wrong one is answered."""

import pytest

from cronsensus.errors import InvalidDuration, InvalidOption, MissingExtra, StoreUnavailable
from cronsensus.stores import missing_driver, open_store
from cronsensus.stores.redis import RedisStore
from cronsensus.stores.redis.redis_url import read_url
from cronsensus.stores.redis.routing import ClusterRoute, Route, SentinelRoute, connection_options, route_to

SECRET = "s3cret/of:the@store?"
QUOTED = "s3cret%2Fof%3Athe%40store%3F"


@pytest.mark.parametrize(
    ("url", "hosts", "database"),
    [
        ("redis://", (("localhost", 6379),), 0),
        ("redis://box", (("box", 6379),), 0),
        ("redis://box:7000/3", (("box", 7000),), 3),
        ("redis://[::1]:7000/3", (("::1", 7000),), 3),
        ("redis://[fe80::2]", (("fe80::2", 6379),), 0),
        ("redis+sentinel://a,b:1/name", (("a", 26379), ("b", 1)), 0),
        ("redis+sentinel://a/name/5", (("a", 26379),), 5),
        ("redis+cluster://a,b:7001", (("a", 6379), ("b", 7001)), 0),
        ("redis+cluster://a/0", (("a", 6379),), 0),
    ],
)
def test_a_url_names_servers(url: str, hosts: object, database: int) -> None:
    parsed = read_url(url)
    assert (parsed.hosts, parsed.database) == (hosts, database)


def test_each_kind_of_url_has_its_route() -> None:
    kinds = [
        type(route_to(read_url(url), "{a}:meta")) for url in ("redis://a", "rediss+sentinel://a/n", "redis+cluster://a")
    ]
    assert kinds == [Route, SentinelRoute, ClusterRoute]


def test_options_say_the_rest() -> None:
    parsed = read_url(
        "rediss://ann:pw@box/1?prefix=shop&min_replicas=2&timeout=9s&connect_timeout=500ms&replica_timeout=2s"
        "&ca_certs=/ca.pem&certfile=/c.pem&keyfile=/k.pem&verify=no"
    )
    assert (parsed.prefix, parsed.min_replicas) == ("shop", 2)
    assert (parsed.timeout, parsed.connect_timeout, parsed.replica_timeout) == (9.0, 0.5, 2.0)
    assert parsed.tls == {
        "ssl_ca_certs": "/ca.pem",
        "ssl_certfile": "/c.pem",
        "ssl_keyfile": "/k.pem",
        "ssl_cert_reqs": "none",
        "ssl_check_hostname": False,
    }


def test_tls_is_checked_unless_told_otherwise() -> None:
    assert read_url("rediss://box").tls == {}
    assert read_url("rediss://box?verify=yes").tls == {}
    assert read_url("redis://box").tls is None


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("redis://box?prefixx=a", "did you mean 'prefix'"),
        ("redis://box?min_replica=1", "did you mean 'min_replicas'"),
        ("redis://box?db=1", "known: "),
        ("redis://box?prefix=", "letters, digits"),
        ("redis://box?prefix={a}", "letters, digits"),
        ("redis://box?min_replicas=-1", "whole number"),
        ("redis://box?timeout=0", "without a limit"),
        ("redis://box?verify=no", "begin the URL with rediss"),
        ("rediss://box?verify=perhaps", "yes or no"),
        ("redis://box:99999", "ports go from 1"),
        ("redis://box/shop", "no number of a database"),
        ("redis://a,b", "names one server"),
        ("redis://a:b:c", "names no server"),
        ("redis+sentinel://a", "call the master"),
        ("redis+sentinel://a/name/x", "no number"),
        ("redis+cluster://a/1", "has no databases"),
        ("redis:box", "begins with redis://"),
        ("redis+socket://box", "begins with redis://"),
    ],
)
def test_a_url_that_is_wrong_says_how_it_is_written(url: str, hint: str) -> None:
    with pytest.raises(InvalidOption, match=hint):
        read_url(url)


def test_a_duration_that_cannot_be_read_names_its_option() -> None:
    with pytest.raises(InvalidDuration, match="connect_timeout"):
        read_url("redis://box?connect_timeout=soon")


def test_the_password_reaches_the_driver_and_nothing_else() -> None:
    url = f"redis+sentinel://ann:{QUOTED}@127.0.0.1:1/name?sentinel_password={QUOTED}&connect_timeout=1s"
    parsed = read_url(url)
    assert connection_options(parsed)["password"] == parsed.sentinel_password == SECRET
    assert connection_options(parsed)["username"] == "ann"
    assert parsed.where == "redis+sentinel://127.0.0.1:1/name/0"
    store = RedisStore(url)
    try:
        with pytest.raises(StoreUnavailable) as caught:
            store.look()
    finally:
        store.close()
    chain: BaseException | None = caught.value
    while chain is not None:
        assert "s3cret" not in str(chain)
        chain = chain.__cause__
    assert "s3cret" not in repr(parsed)


def test_a_wrong_option_beside_a_password_does_not_show_it() -> None:
    for wrong in ("?prefixx=1", "/x", ":99999"):
        with pytest.raises(InvalidOption) as caught:
            read_url(f"redis://ann:{QUOTED}@box{wrong}")
        assert "s3cret" not in str(caught.value)


def test_every_kind_of_url_opens_a_redis_store() -> None:
    for url in ("redis://a", "rediss://a", "redis+sentinel://a/n", "rediss+cluster://a"):
        store = open_store(url)
        store.close()
        assert isinstance(store, RedisStore)


def test_a_missing_driver_says_what_to_type() -> None:
    error = missing_driver(ModuleNotFoundError("No module named 'redis'", name="redis"), "redis", extra="redis")
    assert isinstance(error, MissingExtra)
    assert 'pip install "cronsensus[redis]"' in str(error)


def test_the_driver_sends_nothing_twice_by_itself() -> None:
    # A script whose answer was lost may have run; whoever calls the verb knows whether it may run again.
    assert connection_options(read_url("redis://a"))["retry"]._retries == 0
