"""A schedule in words on a Chinese page."""

import pytest

from cronsensus import any_of, at, cron, every
from cronsensus.dashboard import dashboard
from cronsensus.dashboard.chinese_schedules import schedule_in_chinese
from tests.dashboard.browser import Browser
from tests.hand_cluster import HandCluster


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("* * * * *", "每分钟"),
        ("*/5 * * * *", "每 5 分钟"),
        ("7 * * * *", "每小时的第 7 分"),
        ("*/7 * * * *", "每小时的第 0 至 56 分（间隔 7 分）"),
        ("15 */2 * * *", "00:15 至 22:15 每 2 小时"),
        ("*/15 9-17 * * 1-5", "每周一至周五 09:00 至 17:45 每 15 分钟"),
        ("0-10 3 * * *", "03:00 至 03:10 每分钟"),
        ("*/10 8,20 * * *", "第 8、20 时，每 10 分钟"),
        ("30 9,12,18 * * *", "每天 09:30、12:30、18:30"),
        ("0 9 * * SAT,SUN", "每周六、周日 09:00"),
        ("0 9 * 1 TUE", "每年 1 月的每周二 09:00"),
        ("0 0 * * 5L,MON#3", "每月第三个周一、最后一个周五 00:00"),
        ("0 0 15,L * *", "每月 15 日和最后一天 00:00"),
        ("0 0 */2 * *", "每月 1 至 31 日（间隔 2 天）00:00"),
        ("0 0 29 2 *", "每年 2 月 29 日 00:00"),
        ("0 12 * 6-8 *", "每年 6 至 8 月每天 12:00"),
        ("0 0 13 * FRI", "每月 13 日，以及每周五 00:00"),
        ("0 0 1-7 * */7", "每月 1 至 7 日中的周日 00:00"),
        ("0 0 31 2 MON", "每年 2 月的每周一 00:00"),
        ("*/10 * 9-17 * * *", "09:00:00 至 17:59:50 每 10 秒"),
        ("0,20,50 * * * * *", "每分钟的第 0、20、50 秒"),
    ],
)
def test_a_cron_text_is_said_by_the_values_that_it_allows(text: str, words: str) -> None:
    assert schedule_in_chinese(cron(text)) == f"{words}，UTC"


def test_the_other_kinds_and_options_are_said() -> None:
    fortnight = cron("0 9 * * MON", every="2 weeks", start="2027-01-04", tz="Europe/Berlin")
    assert schedule_in_chinese(fortnight) == "自 2027-01-04 起每 2 周：周一 09:00，Europe/Berlin"
    thrice = cron("0 9 * * *", dst="both", start="2027-01-04T01:00:00Z", end="2028-01-01", jitter="90s")
    assert schedule_in_chinese(thrice) == (
        "每天 09:00，UTC，时钟回拨时运行两次，自 2027-01-04T01:00:00Z 起，至 2028-01-01T00:00:00Z 为止，最多延迟 1m30s"
    )
    assert schedule_in_chinese(at("2026-11-20T21:00:00Z")) == "仅一次：2026-11-20T21:00:00Z"
    both = any_of(every("90m", jitter="3s"), cron("@daily"))
    assert schedule_in_chinese(both) == "每天 00:00，UTC；以及每 1 小时 30 分钟，最多延迟 3s"


def test_a_page_of_a_job_has_its_schedule_in_the_language_of_the_page() -> None:
    cluster = HandCluster()
    cluster.every("tick", "5m")
    browser = Browser(dashboard(cluster.store))
    assert "每 5 分钟" in browser.get("/job?name=tick&lang=zh").text
    assert "every 5 minutes" in browser.get("/job?name=tick&lang=en").text
