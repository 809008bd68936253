"""An option that a trigger does not have is answered with what to write."""

import inspect
from typing import Any

import pytest

from cronsensus import Scheduler, at, cron, every
from cronsensus.errors import InvalidOption, InvalidTrigger


@pytest.mark.parametrize(
    ("make", "args", "options", "write"),
    [
        (every, (), {"minutes": 5}, r"unknown option 'minutes' for every\(\); write every\('5m'\)"),
        (every, (), {"weeks": 1}, r"write every\('5w'\)"),
        (every, ("5m",), {"anchor": "2026-01-01T00:00:00Z"}, "write start="),
        (every, ("5m",), {"jiter": "1s"}, "did you mean 'jitter'"),
        (every, ("5m",), {"timezone": "UTC"}, r"cron\('0 3 \* \* \*', tz="),
        (cron, ("0 3 * * *",), {"timezone": "UTC"}, r"unknown option 'timezone' for cron\(\); write tz="),
        (cron, (), {"hour": 3, "minute": 30}, r"'hour'.*'minute' for cron\(\); write it into the text"),
        (cron, ("0 3 * * *",), {"dts": "skip"}, "did you mean 'dst'"),
        (at, (), {"run_date": "2026-01-01"}, r"write the instant first: at\('2026-"),
        (at, ("2026-01-01T00:00:00Z",), {"grace": "1s"}, "known: instant, jitter"),
    ],
)
def test_an_unknown_option_of_a_trigger_names_the_right_one(
    make: Any, args: tuple[str, ...], options: dict[str, Any], write: str
) -> None:
    with pytest.raises(InvalidTrigger, match=write):
        make(*args, **options)


@pytest.mark.parametrize("written", ["every('5w')", "every('5d')", "every('5h')", "every('5m')", "every('5s')"])
def test_what_is_to_be_written_can_be_read(written: str) -> None:
    eval(written, {"every": every})


def test_a_trigger_keeps_its_signature_and_its_own_mistakes() -> None:
    assert list(inspect.signature(every).parameters) == ["interval", "start", "end", "jitter"]
    with pytest.raises(TypeError, match="interval"):
        every()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("option", "write"),
    [
        ("overlap_policy", "did you mean 'overlap'"),
        ("minutes", r"write the trigger first: every\('5m'\)"),
        ("hour", r"write the trigger first: cron\("),
        ("max_instances", "write concurrency="),
        ("timezone", "write it into the trigger"),
        ("rate_limit", "write concurrency="),
    ],
)
def test_an_unknown_option_of_a_job_names_the_right_one(option: str, write: str) -> None:
    wrong: Any = {option: 1}
    with pytest.raises(InvalidOption, match=f"unknown option '{option}' for a job; {write}"):
        Scheduler("memory://").job(every("5m"), **wrong)
