"""Definitions: what is refused where it is declared, and what a store gives back."""

import dataclasses
import json
import typing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronsensus.errors import ConfigurationError, InvalidDuration, InvalidOption
from cronsensus.model.gate import After, Rule
from cronsensus.model.job import STORED_DEFAULTS, JobSpec, Policies, UnknownParts, check_name
from cronsensus.triggers import any_of, at, cron, every

T0 = datetime(2026, 3, 1, tzinfo=UTC)

durations = st.timedeltas(timedelta(0), timedelta(days=36_600))
options = st.fixed_dictionaries(
    {},
    optional={
        "overlap": st.sampled_from(["skip", "queue_one", "queue", "cancel_previous", "allow"]),
        "catch_up": st.sampled_from(["none", "latest", "all"]),
        "on_crash": st.sampled_from(["retry", "fail"]),
        "catch_up_window": durations,
        "grace": st.none() | durations,
        "timeout": st.none() | st.timedeltas(timedelta(microseconds=1), timedelta(days=36_600)),
        "max_crashes": st.integers(1, 2**31 - 1),
        "retries": st.integers(0, 2**31 - 1),
        "retry_delay": durations,
        "retry_factor": st.floats(1, 100) | st.integers(1, 100),
        "retry_max_delay": durations,
        "concurrency": st.none() | st.integers(1, 2**31 - 1),
        "priority": st.integers(-(2**31) + 1, 2**31 - 1),
        "keep": durations,
    },
)
letters = st.characters(codec="utf-8", exclude_categories=("C", "Z")) | st.just(" ")
names = st.text(letters, min_size=1, max_size=200).filter(lambda text: text.isprintable() and text == text.strip())
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
triggers = st.sampled_from(
    [
        None,
        every("5m"),
        every("7s", start=T0, jitter="1s"),
        at(T0),
        cron("*/5 2-4 * * MON", tz="Europe/Paris", dst="both"),
        any_of(cron("0 21 * * *", tz="Asia/Shanghai"), every("90m"), jitter="3m"),
    ]
)
specs = st.builds(
    JobSpec,
    name=names,
    function=names,
    trigger=triggers,
    args=st.lists(json_values, max_size=3).map(tuple),
    kwargs=st.dictionaries(st.text(), json_values, max_size=3),
    policies=options.map(Policies.read),
    executor=st.sampled_from(["async", "thread", "process"]),
    source=st.sampled_from(["code", "runtime"]),
    overdue=st.none() | durations,
    slow=st.none() | durations,
)


@given(specs)
def test_a_definition_comes_back_from_json_equal_and_with_an_equal_digest(spec):
    back = JobSpec.from_json(json.loads(json.dumps(spec.to_json())))
    assert back == spec
    assert back.digest == spec.digest


@given(specs, specs)
def test_different_definitions_have_different_digests(one, other):
    assert (one.digest == other.digest) == (json.dumps(one.to_json()) == json.dumps(other.to_json()))


def test_the_digest_does_not_depend_on_the_order_of_arguments():
    def spec(**kwargs):
        return JobSpec(name="job", function="job", kwargs=kwargs)

    assert spec(a=1, b=2).digest == spec(b=2, a=1).digest
    assert spec(a=1, b=2).digest != spec(a=2, b=1).digest


@pytest.mark.parametrize("field", [item.name for item in dataclasses.fields(Policies)])
def test_every_policy_is_part_of_the_digest(field):
    other = {
        "overlap": "allow",
        "catch_up": "all",
        "on_crash": "fail",
        "retry_factor": 3,
        "max_crashes": 9,
        "retries": 9,
        "concurrency": 9,
        "priority": 9,
    }.get(field, "17s")
    policies = Policies.read({field: other})
    assert JobSpec(name="j", function="j", policies=policies).digest != JobSpec(name="j", function="j").digest


def test_json_of_a_newer_release_is_refused_rather_than_half_understood():
    data = JobSpec(name="job", function="job").to_json()
    data["policies"]["quorum"] = 3
    with pytest.raises(UnknownParts, match=r"job 'job' has a part of a newer version of cronsensus \(quorum\)") as told:
        JobSpec.from_json(data)
    assert told.value.known == JobSpec(name="job", function="job")
    with pytest.raises(UnknownParts, match=r"\(after2\)"):
        JobSpec.from_json(JobSpec(name="job", function="job").to_json() | {"after2": {}})


def behind(*upstreams: Rule, **policies: Any) -> JobSpec:
    return JobSpec(
        name="job", function="job", policies=Policies.read({"overlap": "allow", **policies}), after=After(upstreams)
    )


def test_what_a_job_comes_after_is_part_of_its_definition_whatever_the_order():
    one, other = Rule("a", "ended", "all_in_period"), Rule("b")
    assert behind(one, other) == behind(other, one) == JobSpec.from_json(behind(one, other).to_json())
    assert len({behind(one, other).digest, behind(one).digest, behind(Rule("a")).digest}) == 3
    alone = JobSpec(name="job", function="job", policies=Policies(overlap="allow"))
    assert "after" not in alone.to_json()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: behind(Rule("job")), "cannot come after itself"),
        (behind, "1 to 100"),
        (lambda: behind(*(Rule(f"j{n}") for n in range(101))), "1 to 100"),
        (lambda: behind(Rule("a"), overlap="skip"), "stop all behind it"),
    ],
)
def test_what_a_job_cannot_come_after_is_refused(make: Any, words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        make()


@pytest.mark.parametrize("after", [{}, {"wait_for": 1, "upstreams": [["a", "often", "same"]]}, {"upstreams": []}])
def test_an_edge_that_is_none_is_not_half_understood(after: Any) -> None:
    with pytest.raises((ValueError, LookupError, TypeError)):
        JobSpec.from_json(behind(Rule("a")).to_json() | {"after": after})


def test_definition_names_only_the_policies_that_differ_from_what_stored_ones_mean():
    spec = JobSpec(name="job", function="job", policies=Policies.read({"retries": 2, "keep": "30d"}))
    assert spec.to_json()["policies"] == {"retries": 2}


def test_what_a_stored_definition_means_by_what_it_does_not_name_never_changes():
    bare = JobSpec(name="job", function="job").to_json() | {"policies": {}}
    assert JobSpec.from_json(bare).policies == Policies(
        overlap="skip", catch_up="latest", catch_up_window=timedelta(days=1), grace=None, on_crash="retry",
        max_crashes=3, retries=0, retry_delay=timedelta(seconds=1), retry_factor=2.0,
        retry_max_delay=timedelta(hours=1), timeout=None, concurrency=None, priority=0, keep=timedelta(days=30),
    )  # fmt: skip


@pytest.mark.parametrize("field", [item.name for item in dataclasses.fields(Policies)])
def test_every_policy_has_a_meaning_where_it_is_not_named(field):
    assert field in STORED_DEFAULTS


# --- policies ---------------------------------------------------------------------------------------------------------


def test_the_defaults_are_those_that_the_design_decided():
    policies = Policies()
    assert (policies.overlap, policies.catch_up, policies.catch_up_window) == ("skip", "latest", timedelta(days=1))
    assert (policies.grace, policies.timeout, policies.concurrency) == (None, None, None)
    assert (policies.on_crash, policies.max_crashes, policies.retries) == ("retry", 3, 0)
    assert (policies.priority, policies.keep) == (0, timedelta(days=30))


def test_durations_may_be_written_in_any_way():
    policies = Policies.read({"timeout": "10m", "grace": 30, "keep": timedelta(days=2), "retry_delay": 0.5})
    assert policies.timeout == timedelta(minutes=10)
    assert policies.grace == timedelta(seconds=30)
    assert policies.keep == timedelta(days=2)
    assert policies.retry_delay == timedelta(milliseconds=500)


def test_policies_that_are_not_given_stay_as_in_the_base():
    base = Policies.read({"retries": 4, "grace": "5s"})
    assert Policies.read({"grace": None}, base) == Policies.read({"retries": 4})


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({"retrys": 3}, "unknown option 'retrys' for a job; did you mean 'retries'"),
        ({"catchup": "all"}, "did you mean 'catch_up'"),
        ({"zzz": 1}, "unknown option 'zzz' for a job; known: catch_up, "),
        ({"overlap": "sometimes"}, "overlap='sometimes': choose one of 'skip', 'queue_one'"),
        ({"overlap": None}, "choose one of"),
        ({"overlap": ["skip"]}, "choose one of"),
        ({"catch_up": True}, "choose one of 'none', 'latest', 'all'"),
        ({"on_crash": "ignore"}, "choose one of 'retry', 'fail'"),
        ({"retries": -1}, "retries=-1: a whole number, at least 0"),
        ({"retries": 1.0}, "retries=1.0: a whole number"),
        ({"retries": True}, "retries=True: a whole number"),
        ({"retries": None}, "retries=None: a whole number"),
        ({"retries": 2**31}, "a whole number"),
        ({"max_crashes": 0}, "max_crashes=0: a whole number, at least 1"),
        ({"concurrency": 0}, "concurrency=0: a whole number, at least 1"),
        ({"priority": "high"}, "priority='high': a whole number"),
        ({"retry_factor": 0.5}, "a number from 1"),
        ({"retry_factor": float("nan")}, "a number from 1"),
        ({"retry_factor": True}, "a number from 1"),
        ({"retry_factor": "2"}, "a number from 1"),
        ({"timeout": 0}, "an attempt needs some time"),
    ],
)
def test_impossible_policies_are_refused(written, words):
    with pytest.raises(InvalidOption, match=words):
        Policies.read(written)


@pytest.mark.parametrize("field", ["grace", "timeout", "catch_up_window", "retry_delay", "retry_max_delay", "keep"])
@pytest.mark.parametrize("written", ["soon", -1, True])
def test_a_bad_duration_names_its_policy(field, written):
    with pytest.raises(InvalidDuration, match=f"^{field}="):
        Policies.read({field: written})


@pytest.mark.parametrize("field", ["catch_up_window", "retry_delay", "retry_max_delay", "keep"])
def test_a_duration_that_must_be_there_is_not_none(field):
    with pytest.raises(InvalidDuration, match=f"^{field}="):
        Policies.read({field: None})


def test_every_policy_can_be_read():
    hints = typing.get_type_hints(Policies)
    written = {name: getattr(Policies(), name) for name in hints}
    assert Policies.read(written) == Policies()


# --- names ------------------------------------------------------------------------------------------------------------


@given(names)
def test_printable_text_is_a_name(name):
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", " ", " a", "a ", "a\nb", "a\0b", "a\x1b[2Jb", "\ud800", "a" * 201, None, 3, b"a", ["a"]],
    ids=repr,
)
def test_impossible_name_is_refused(name):
    with pytest.raises(InvalidOption, match=r"^job name ") as refused:
        JobSpec(name=name, function="job")
    assert len(str(refused.value)) < 200
    with pytest.raises(ConfigurationError, match=r"^function "):
        JobSpec(name="job", function=name)
