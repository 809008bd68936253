"""What people write who come from elsewhere, or for the first time: each mistake says what to write instead."""

import asyncio
import re
from typing import Any

import pytest

from cronsensus import Scheduler, Skip, cron, every
from cronsensus.errors import ConfigurationError, InvalidOption, InvalidTrigger


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler("memory://newcomers")


@pytest.fixture
def invoice(scheduler: Scheduler) -> Any:
    @scheduler.job()
    def invoice(customer: int, copies: int = 1) -> None: ...

    return invoice


@pytest.mark.parametrize(
    ("attribute", "instead"),
    [
        ("delay", r"invoice\.enqueue\("),
        ("apply_async", r'invoice\.options\(delay="5m"\)'),
        ("si", r"after=\[invoice\]"),
    ],
)
def test_the_words_of_other_libraries_are_answered_with_ours(invoice: Any, attribute: str, instead: str) -> None:
    with pytest.raises(AttributeError, match=f"job 'invoice' has no {attribute}; write .*{instead}"):
        getattr(invoice, attribute)
    with pytest.raises(AttributeError, match=r"'Job' object has no attribute 'dealy'$"):
        invoice.dealy  # noqa: B018


def test_a_handle_that_is_awaited_says_what_can_be(invoice: Any) -> None:
    async def main() -> None:
        with pytest.raises(TypeError, match=re.escape("is enqueued); write await handle.aresult() for its result")):
            await invoice.enqueue(1)
        assert (await (await invoice.aenqueue(1)).alook()).args == (1,)

    asyncio.run(main())


def test_run_in_a_coroutine_is_refused_at_once(scheduler: Scheduler) -> None:
    async def main() -> None:
        scheduler.run()

    with pytest.raises(ConfigurationError, match=r"would block its event loop .* write async with scheduler"):
        asyncio.run(main())


def test_what_is_to_be_raised_and_is_returned_says_so() -> None:
    scheduler = Scheduler("memory://newcomers-skip")

    @scheduler.job()
    def nightly() -> Any:
        return Skip("holiday")

    with scheduler:
        ended = nightly.enqueue().wait("20s")
    assert ended.error is not None
    assert "is a cronsensus.errors.Skip, which is not JSON; raise it" in ended.error.message


@pytest.mark.parametrize("act", ["pause", "apause"])
def test_an_act_without_its_reason_says_how_to_give_one(scheduler: Scheduler, invoice: Any, act: str) -> None:
    def call() -> None:
        made = getattr(invoice, act)()
        if act == "apause":
            asyncio.run(made)

    with pytest.raises(InvalidOption, match=r'pause\(\) needs a reason.*; write reason="…"'):
        call()
    methods: list[Any] = [scheduler.pause, scheduler.cancel, scheduler.break_lock]
    for method in methods:
        with pytest.raises(InvalidOption, match="needs a reason"):
            method("invoice")


def test_a_namespace_without_its_name_says_how_to_write_it() -> None:
    with pytest.raises(InvalidOption, match=r"Scheduler\(url, 'shop'\).*write namespace="):
        Scheduler("memory://", "shop")  # type: ignore[arg-type]


def test_arguments_that_do_not_fit_say_which_do(invoice: Any) -> None:
    with pytest.raises(
        InvalidOption, match=r"missing a required argument: 'customer'; it takes \(customer: int, copies"
    ):
        invoice.enqueue()


def test_full_width_characters_are_named_and_replaced() -> None:
    with pytest.raises(InvalidTrigger, match=r"\(U\+FF0A\); write '0 3 \* \* \*'"):
        cron("0 3 * * \uff0a")


def test_after_needs_no_brackets_for_one_job(scheduler: Scheduler) -> None:
    extract = scheduler.job(every("1h"), name="extract")(lambda: None)
    load, send = (scheduler.job(after=one, name=f"after {one}")(lambda: None) for one in (extract, "extract"))
    assert load.spec.after == send.spec.after == scheduler.job(after=[extract], name="same")(lambda: None).spec.after
    assert load.rule == extract.rule


def test_a_trigger_is_the_rule_of_a_job_and_trigger_the_verb(scheduler: Scheduler) -> None:
    job = scheduler.job(every("1h"), name="hourly")(lambda: None)
    assert job.rule == every("1h")
    with pytest.raises(AttributeError, match=r"write hourly\.trigger\(…\)"):
        job.trigger_now()  # type: ignore[attr-defined]
