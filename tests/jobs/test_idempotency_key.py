import itertools
import string
from datetime import UTC, datetime
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronsensus import Run, Scheduler, at, current_run, every
from cronsensus.model.occurrence import LONGEST_IDEMPOTENCY_KEY, idempotency_key

NOON = datetime(2020, 11, 22, 12, tzinfo=UTC)
TRICKY = st.text(st.sampled_from(":%@#/ aAé\n2C3"), min_size=1, max_size=8)


@given(st.tuples(TRICKY, TRICKY, TRICKY), st.tuples(TRICKY, TRICKY, TRICKY))
def test_two_pieces_of_work_never_share_a_key(one, other):
    keys = [idempotency_key(namespace, job, key, None) for namespace, job, key in (one, other)]
    assert (keys[0] == keys[1]) is (one == other)


@given(TRICKY, TRICKY, st.text(max_size=400).filter(lambda text: text.isprintable()))
def test_a_key_is_short_printable_ascii(namespace, job, key):
    text = idempotency_key(namespace, job, key, None)
    assert len(text) <= LONGEST_IDEMPOTENCY_KEY == 255
    assert set(text) <= set(string.printable) - set(string.whitespace)
    if "#" not in text:
        assert [unquote(part) for part in text.split(":", 2)] == [namespace, job, key]


def test_long_keys_that_begin_alike_differ():
    keys = {idempotency_key("n", "j", "x" * 399 + end, None) for end in "abc"}
    assert len(keys) == 3
    assert all(key.startswith("n:j:xxx") for key in keys)


def test_two_jobs_of_one_nominal_time_differ_and_so_do_namespaces():
    found = {idempotency_key(n, j, "@2020-11-22T12:00:00Z", NOON) for n, j in itertools.product("ab", "cd")}
    assert len(found) == 4


def test_whatever_key_a_row_has_its_nominal_time_counts():
    first = idempotency_key("default", "mail", "@2020-11-22T12:00:00Z", NOON)
    assert first == "default:mail:@2020-11-22T12:00:00Z"
    assert idempotency_key("default", "mail", "0f8fad5b-d9cd-469f", NOON) == first


@pytest.mark.parametrize("executor", ["thread", "async"])
def test_a_run_keeps_its_key_over_attempts_backfills_and_retries(executor):
    scheduler = Scheduler("memory://", namespace="shop:1")
    seen = []

    @scheduler.job(at("2020-11-22T12:00:00Z"), name="thread", retries=1, retry_delay=0)
    def charge(run: Run):
        seen.append((run.attempt, run.origin, run.idempotency_key))
        if run.attempt == 1:
            raise ValueError

    @scheduler.job(at("2020-11-22T12:00:00Z"), name="async", retries=1, retry_delay=0)
    async def acharge(run: Run):
        charge.function(run)

    (first,) = scheduler.backfill(executor, NOON, NOON)
    with scheduler:
        end = first.wait("60s")
        again = scheduler.retry(first, again=True)
        again.wait("60s")
    assert end.state == "succeeded"
    mine = [key for _, _, key in seen if f":{executor}:" in key]
    assert len(mine) >= 4  # two of the backfill, two of the retry
    assert set(mine) == {f"shop%3A1:{executor}:@2020-11-22T12:00:00Z"}


def test_enqueued_work_has_its_own_key(tmp_path):
    scheduler = Scheduler(f"sqlite:///{tmp_path}/x.db")

    @scheduler.job()
    def charge() -> str | None:
        run = current_run()
        return None if run is None else run.idempotency_key

    with scheduler:
        assert charge.options(key="order:42").enqueue().result("60s") == "default:charge:order:42"
        assert charge.enqueue().result("60s") != charge.enqueue().result("60s")


def test_a_run_in_a_process_of_its_own_has_the_same_key(tmp_path):
    from tests.payload.typed_jobs import idempotency_key_here

    scheduler = Scheduler(f"sqlite:///{tmp_path}/x.db", namespace="shop")
    job = scheduler.job(every("1d", start=NOON), executor="process")(idempotency_key_here)
    with scheduler:
        key = job.options(key="order:42").enqueue().result("60s")
    assert key == "shop:idempotency_key_here:order:42"
