"""``lint``: what is legal and rarely meant."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from cronsensus.cli.lint_rules import lint_jobs
from cronsensus.model.job import JobSpec, Policies
from cronsensus.triggers import Trigger, at, cron, every

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def spec(name: str, trigger: Trigger | None, *, function: str = "", **policies: Any) -> JobSpec:
    options = {"timeout": "10s", **policies}
    return JobSpec(name=name, function=function or name, trigger=trigger, policies=Policies.read(options))


def rules(*specs: JobSpec) -> list[str]:
    return [finding.rule for finding in lint_jobs(specs, NOW)]


def test_a_sound_job_gets_no_finding() -> None:
    assert rules(spec("a", cron("0 4 * * *", tz="Europe/Berlin"), retries=3, grace="1h"), spec("b", every("5m"))) == []


@pytest.mark.parametrize(
    ("job", "rule"),
    [
        (spec("a", every("1m"), timeout=None), "no timeout"),
        (spec("a", None, timeout=None), "no timeout"),
        (spec("a", cron("* * * * * *"), timeout="0.5s"), "every second"),
        (spec("a", cron("30 2 * * *", tz="Europe/Berlin")), "clock change"),
        (spec("a", cron("0 1 * * *", tz="America/New_York")), "clock change"),
        (spec("a", every("1m"), timeout="2m"), "timeout longer than interval"),
        (spec("a", every("1m"), timeout="2m", overlap="queue"), "timeout longer than interval"),
        (spec("a", every("1h"), grace="2d"), "grace longer than window"),
        (spec("a", every("1h"), keep="1h"), "kept too short"),
        (spec("a", every("10s"), catch_up="all", timeout="5s"), "storm after downtime"),
        (spec("a", cron("0 0 31 */1 *"), catch_up_window="62d", keep="90d"), "days"),
        (spec("a", cron("0 0 13 * FRI")), "other programs"),
        (spec("a", cron("0 3 * * * *")), "other programs"),
        (spec("a", cron("*/45 * * * *")), "step"),
        (spec("a", cron("0 4 * * SUN")), "window shorter than interval"),
        (spec("a", at("2026-01-01T00:00:00Z")), "over"),
        (spec("a", every("1m"), retries=10), "retries longer than interval"),
    ],
)
def test_each_rule_finds_its_case(job: JobSpec, rule: str) -> None:
    assert rules(job) == [rule]


@pytest.mark.parametrize(
    "job",
    [
        spec("a", cron("30 2 * * *")),
        spec("a", cron("30 2 * * *", tz="Asia/Tokyo")),
        spec("a", cron("*/5 * * * *", tz="Europe/Berlin")),
        spec("a", every("1s"), timeout="1s"),
        spec("a", every("1m"), concurrency=1),
        spec("a", every("1m"), timeout="2m", overlap="allow"),
        spec("a", every("1m"), retries=10, overlap="queue"),
        spec("a", cron("0 0 L * *"), catch_up="none"),
        spec("a", cron("0 4 * * SUN"), catch_up_window="7d"),
        spec("a", cron("0 0 28-31 * *")),
    ],
)
def test_lint_has_no_finding_for_sound_jobs(job: JobSpec) -> None:
    assert rules(job) == []


def test_a_herd_is_found_once_and_jitter_ends_it() -> None:
    herd = [spec(f"job-{number}", cron("0 * * * *")) for number in range(4)]
    (finding,) = lint_jobs(herd, NOW)
    assert finding.rule == "herd"
    assert "4 jobs fire at the same moments, next 2026-11-20 13:00:00Z: job-0, job-1" in finding.text
    spread = [spec(f"job-{number}", cron("0 * * * *", jitter="5m")) for number in range(4)]
    assert rules(*spread) == []


def test_the_same_work_twice_is_found() -> None:
    assert rules(spec("a", every("1h"), function="f"), spec("b", cron("0 * * * *"), function="f")) == [
        "same work twice"
    ]


APP = """
from cronsensus import Scheduler, every
scheduler = Scheduler("memory://")
@scheduler.job(every("1m"), timeout="30s")
def good(): ...
"""
BAD = APP + "@scheduler.job(every('1h'))\ndef bad(): ...\n"


def test_a_chain_is_no_herd_and_what_is_to_say_of_its_schedule_is_said_once(
    command: Callable[..., Any], write: Callable[..., Any]
) -> None:
    chain = """
from cronsensus import Scheduler, cron
scheduler = Scheduler("memory://")
@scheduler.job(cron("0 2 * * *", tz="Europe/Berlin"), timeout="1h")
def extract(): ...
@scheduler.job(after=[extract], timeout="1h")
def load(): ...
@scheduler.job(after=[load], timeout="1h")
def report(): ...
"""
    write("myjobs.py", chain)
    findings = command("lint", "myjobs:scheduler", "-o", "json").data["findings"]
    assert [(one["job"], one["rule"]) for one in findings] == [("extract", "clock change")]


def test_findings_are_no_failure_unless_strict(command: Callable[..., Any], write: Callable[..., Any]) -> None:
    write("myjobs.py", BAD)
    answer = command("lint", "myjobs:scheduler")
    assert answer.code == 0
    assert "bad: no timeout" in answer.out
    assert 'timeout="10m"' in answer.out
    strict = command("lint", "myjobs:scheduler", "--strict", "-o", "json")
    assert strict.code == 1
    assert strict.data["findings"][0]["job"] == "bad"
    assert strict.data["jobs"] == 2


def test_lint_tells_equal_findings_once_and_last(command: Callable[..., Any], write: Callable[..., Any]) -> None:
    jobs = "".join(f"@scheduler.job(overlap='allow')\ndef {name}(): ...\n" for name in ("a", "c"))
    last = "@scheduler.job(every('1h'), timeout='2h')\ndef b(): ...\n"
    write("myjobs.py", f"from cronsensus import Scheduler, every\nscheduler = Scheduler('memory://')\n{jobs}{last}")
    answer = command("lint", "myjobs:scheduler")
    titles = [line for line in answer.out.splitlines() if not line.startswith("  ")]
    assert titles == ["b: timeout longer than interval", "a, c: no timeout", "3 findings in 3 jobs of myjobs:scheduler"]


def test_lint_without_findings_succeeds_when_strict(command: Callable[..., Any], write: Callable[..., Any]) -> None:
    write("myjobs.py", APP)
    answer = command("lint", "--app", "myjobs:scheduler", "--strict")
    assert answer.code == 0
    assert "nothing to say about the 1 job of myjobs:scheduler" in answer.out


@pytest.mark.parametrize(
    ("expression", "text", "advice"),
    [
        ("*/90 * * * *", "*/90 in the minute field is only 0", "write every('90m') if that is meant, else 0"),
        ("0 */36 * * *", "*/36 in the hour field is only 0", "write every('36h') if that is meant, else 0"),
        ("*/75 * * * * *", "*/75 in the second field is only 0", "write every('75s') if that is meant, else 0"),
        ("0 3 */31 * *", "*/31 in the day-of-month field is only 1", "write every('31d') if that is meant, else 1"),
        ("0 3 1 2,*/12 *", "*/12 in the month field is only 1", "write 1"),
        ("5-50/60 * * * *", "5-50/60 in the minute field is only 5", "write every('60m') if that is meant, else 5"),
    ],
)
def test_a_step_that_leads_out_of_its_field_is_found(
    command: Callable[..., Any], expression: str, text: str, advice: str
) -> None:
    found = [finding for finding in lint_jobs([spec("a", cron(expression))], NOW) if finding.text.startswith(text)]
    assert [(finding.rule, finding.advice) for finding in found] == [("step", advice)]
    answer = command("lint", expression, "--strict")
    assert answer.code == 1
    assert answer.out.startswith(f"{expression}: step\n")
    assert text in answer.out
    assert advice in answer.out


@pytest.mark.parametrize("expression", ["0 9 * * 1-5", "*/5 */2 * * *", "5/7 * * * *", "0 0 */2 * * *", "@daily"])
def test_an_expression_that_is_fine_is_explained(command: Callable[..., Any], expression: str) -> None:
    answer = command("lint", expression, "--strict")
    assert answer.code == 0
    assert answer.out.startswith(f"nothing to say about {expression}: ")


def test_an_expression_that_is_none_is_refused_with_what_to_write(command: Callable[..., Any]) -> None:
    answer = command("lint", "*/5 * * *")
    assert answer.code == 2
    assert "has 4 fields, not 5 or 6" in answer.err


def test_an_expression_is_linted_as_json(command: Callable[..., Any]) -> None:
    assert command("lint", "*/90 * * * *", "-o", "json").data["findings"][0]["advice"].startswith("write every('90m')")
