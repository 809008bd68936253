"""The pages, asked by HTTP, of a store that has a history."""

import re
from datetime import timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from cronsensus import Scheduler
from cronsensus.dashboard import dashboard
from cronsensus.dashboard.access import require_loopback
from cronsensus.dashboard.catalogue import CHINESE
from cronsensus.dashboard.language import choose_language
from cronsensus.errors import InvalidOption, StoreUnavailable
from cronsensus.model.acquiring import Ask
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Claim, Item, RunError
from cronsensus.model.states import State
from cronsensus.security.loopback import is_loopback
from cronsensus.triggers import every
from tests.dashboard.browser import HERE, Browser, words_of
from tests.hand_cluster import HandCluster

BAD = "<script>alert('x')</script>"
BAD_NAME = "<img src=x onerror=alert(1)>"


@pytest.fixture
def cluster() -> HandCluster:
    """Return a cluster in which one job succeeded and failed, and another with a hostile name is pending."""
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.every("tick", "1m")
    cluster.every(BAD_NAME, "1h")
    cluster.declare("queue")
    cluster.advance(60)
    cluster.run_once()
    return cluster


@pytest.fixture
def failed(cluster: HandCluster) -> Claim:
    """Return a run that logged and failed with what looks like HTML."""
    cluster.advance(60)
    cluster.fire()
    (claim,) = cluster.claim()
    cluster.log(claim, f"from {BAD}")
    cluster.advance(3)
    cluster.fail(claim, BAD)
    return claim


@pytest.fixture
def pages(cluster: HandCluster) -> Browser:
    return Browser(dashboard(cluster.store))


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/jobs",
        "/job?name=tick",
        "/ledger?job=tick",
        "/ledger?span=1d",
        "/runs/{run}",
        "/nodes",
        "/queue",
        "/jobs?q=tick",
    ],
)
@pytest.mark.parametrize(("language", "word"), [("en", "Jobs"), ("zh-CN,zh;q=0.9,en;q=0.5", "任务")])
def test_each_page_answers_in_both_languages(
    pages: Browser, failed: Claim, path: str, language: str, word: str
) -> None:
    answer = pages.get(path.format(run=failed.id), accept_language=language)
    assert answer.status_code == 200
    assert f"</svg>{word}</a>" in answer.text
    assert f'lang="{language[:5]}"' in answer.text


def test_now_says_alive_what_failed_and_what_is_next(pages: Browser, failed: Claim) -> None:
    text = pages.get("/").text
    assert "Alive: last decision 3s ago" in words_of(text)
    assert f'href="/runs/{failed.id}">See the run' in text
    assert "next: tick in 55s" in words_of(text)


def test_a_failure_that_was_made_good_is_said_so(pages: Browser, cluster: HandCluster, failed: Claim) -> None:
    assert "has succeeded since" not in pages.get("/").text
    cluster.advance(57)
    cluster.run_once()
    assert "has succeeded since" in pages.get("/").text


def test_now_without_a_node_says_so_and_what_to_type(pages: Browser, cluster: HandCluster) -> None:
    cluster.store.close_session("session-of-node-1")
    cluster.advance(180)
    text = pages.get("/").text
    assert "No node is alive" in text
    assert "cronsensus run MODULE:ATTR" in text
    assert "is overdue" in text


def test_a_missed_time_is_counted_and_needs_attention(pages: Browser, cluster: HandCluster) -> None:
    cluster.declare("strict", every("1m"), grace="1s", catch_up="all")
    cluster.advance(150)
    cluster.fire()
    text = pages.get("/").text
    assert "strict</a> was missed 2 times" in text
    assert '<b>2</b><span class="what">Missed, 24 h' in text


def test_jobs_show_words_next_time_and_last_verdict(pages: Browser, failed: Claim) -> None:
    text = pages.get("/jobs").text
    row = text[text.index("<b>tick</b>") :]
    assert "every minute" in row
    assert "in 55s" in row
    assert row.index("#i-fail") < row.index('"s-ok"') < row.index('"s-fail"')


def test_jobs_are_found_by_a_part_of_the_name(pages: Browser) -> None:
    text = pages.get("/jobs?q=QUE").text
    assert "<b>queue</b>" in text
    assert "<b>tick</b>" not in text
    assert "No job matches nothing-like-it." in pages.get("/jobs?q=nothing-like-it").text


def test_jobs_by_the_number_of_a_run_lead_to_the_run(pages: Browser, failed: Claim) -> None:
    answer = pages.get(f"/jobs?q={failed.id}")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{failed.id}")


def test_jobs_of_many_pages_are_each_on_one(cluster: HandCluster, pages: Browser) -> None:
    names = [f"many-{number:02}" for number in range(60)]
    for name in names:
        cluster.declare(name)
    path, found = "/jobs", list[str]()
    for _ in range(4):
        text = pages.get(path).text
        found += re.findall(r"<b>(many-\d\d)</b>", text)
        more = re.search(r'href="(/jobs\?q=&amp;only=&amp;after=[^"]+)"', text)
        if more is None:
            break
        path = more[1].replace("&amp;", "&")
    assert found == names


def test_a_job_shows_ten_next_times_and_its_runs(pages: Browser, failed: Claim) -> None:
    text = pages.get("/job?name=tick").text
    times = re.findall(r"2026-11-20 12:\d\d:00Z</td><td class=\"num muted nowrap\"><time [^>]*>in ", text)
    assert len(times) == 10
    assert f'href="/runs/{failed.id}"' in text


def test_a_run_shows_its_way_token_log_error_and_why(pages: Browser, failed: Claim) -> None:
    text = pages.get(f"/runs/{failed.id}").text
    assert "It ran and failed" in text
    assert "See its error" not in text  # it stands there, above the log
    assert 0 < text.find('id="error"') < text.find('id="log"')
    assert str(failed.token) in text
    assert "Traceback (most recent call last)" in text
    for station in ("Scheduled", "Due", "Decided", "Claimed, started", "Finished"):
        assert f"<b>{station}</b>" in text


def test_arguments_that_are_called_like_secrets_are_hidden(pages: Browser, cluster: HandCluster) -> None:
    item = Item(job="queue", kwargs={"api_key": "hunter2", "deep": {"password": "hunter3"}, "shop": "north"})
    (made,) = cluster.store.enqueue([item])
    text = pages.get(f"/runs/{made.id}").text
    assert "north" in text
    assert "hunter" not in text


def test_what_another_program_keeps_is_not_shown_as_a_job_that_nobody_runs() -> None:
    cluster = HandCluster()
    name = "apscheduler:report"
    cluster.store.define_jobs([JobSpec(name=name, function=name, source="runtime")], release="r1")
    session = cluster.join("node-1")
    cluster.store.acquire(session, [Ask(name, (cluster.store.now(),))], lease=timedelta(seconds=9))
    cluster.store.close_session(session)
    pages = Browser(dashboard(cluster.store))
    assert "kept by APScheduler" in pages.get("/jobs").text
    for path in ("/", "/jobs", f"/job?name={name}"):
        text = pages.get(path).text
        assert re.search("APScheduler keeps (its|the) times", text), path
        for wrong in (
            "it runs when it is told to",
            "does not fire by itself",
            "nothing is due",
            "none is needed",
            "Run now",
        ):
            assert wrong not in text, (path, wrong)


def test_what_looks_like_html_stays_text(pages: Browser, cluster: HandCluster, failed: Claim) -> None:
    (made,) = cluster.store.enqueue([Item(job="queue", key=f"k{BAD}", args=(BAD,), kwargs={BAD: BAD})])
    paths = ["/", "/jobs", f"/jobs?q={BAD}", "/nodes", f"/job?name={BAD_NAME}", f"/job?name={BAD}"]
    for path in [
        *paths,
        f"/jobs?only={BAD}",
        f"/ledger?job={BAD_NAME}",
        "/job?name=tick",
        f"/runs/{failed.id}",
        f"/runs/{made.id}",
        f"/?lang={BAD}&x={BAD}",
    ]:
        text = pages.get(path).text
        assert text.count("<script") == text.count('<script src="/static/dashboard.js"') == 1, path
        assert "<img" not in text, path
    assert "&lt;script&gt;" in pages.get(f"/runs/{failed.id}").text


@pytest.mark.parametrize("path", ["/job?name=nobody", "/job", "/runs/4711", "/runs/99999999999999999999", "/nowhere"])
def test_what_is_not_there_has_a_page_that_says_so(pages: Browser, path: str) -> None:
    answer = pages.get(path)
    assert answer.status_code == 404
    assert "See all jobs" in answer.text


@pytest.mark.parametrize(
    ("client", "headers", "said"),
    [
        (("10.0.0.7", 1), {}, "from another machine"),
        (HERE, {"host": "evil.example"}, "another host name"),
        (HERE, {"host": "localhost.evil.example:8080"}, "another host name"),
        (HERE, {"x-forwarded-for": "127.0.0.1"}, "through a proxy"),
        (HERE, {"forwarded": "for=127.0.0.1"}, "through a proxy"),
    ],
)
def test_only_a_browser_of_this_machine_is_answered(
    cluster: HandCluster, client: tuple[str, int], headers: dict[str, str], said: str
) -> None:
    for path in ("/", "/static/style.css", "/nowhere"):
        answer = Browser(dashboard(cluster.store), client).get(path, **headers)
        assert answer.status_code == 403
        assert said in answer.text
        assert "ssh -L" in answer.text


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:8080", "LOCALHOST"])
def test_each_name_of_this_machine_is_answered(pages: Browser, host: str) -> None:
    assert pages.get("/", host=host).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "example.org", ""])
def test_a_public_address_is_refused_before_listening(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(InvalidOption, match="other machines"):
        require_loopback(host)


def test_every_answer_tells_the_browser_to_keep_to_itself(pages: Browser) -> None:
    for path in ("/", "/jobs", "/nowhere", "/static/style.css"):
        headers = pages.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["x-frame-options"] == "DENY"


class Tags(HTMLParser):
    """Collects what a browser would take for elements and attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements = set[str]()
        self.attributes = list[tuple[str, str]]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if (tag, dict(attrs).get("src")) != ("script", "/static/dashboard.js"):
            self.elements.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]


def test_no_page_has_code_or_style_of_its_own_or_asks_another_host(pages: Browser, failed: Claim) -> None:
    for path in ("/", "/jobs", "/job?name=tick", "/ledger?job=tick", f"/runs/{failed.id}", "/nodes"):
        tags = Tags(pages.get(path).text)
        assert "main" in tags.elements
        assert not tags.elements & {"script", "style", "img", "iframe", "object"}, path
        assert not [name for name, _ in tags.attributes if name == "style" or name.startswith("on")], path
        addresses = [value for name, value in tags.attributes if name in {"href", "src", "action"}]
        assert all(re.match(r"/(?!/)|#|\?", address) for address in addresses), path


def test_nothing_changes_by_asking_in_another_way(pages: Browser) -> None:
    for path in ("/", "/jobs", "/job", "/ledger", "/runs/1", "/nodes"):
        assert pages.ask("POST", path).status_code == 405


def test_a_chosen_language_is_kept(pages: Browser) -> None:
    assert "任务" in pages.get("/jobs?lang=zh").text
    assert "任务" in pages.get("/jobs", accept_language="en").text
    assert "任务" not in pages.get("/jobs?lang=en").text


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [("", "en"), ("zh", "zh"), ("de,zh;q=0.5,en;q=0.3", "zh"), ("en,zh;q=0.9", "en"), ("zh;q=x", "en"), ("de", "en")],
)
def test_the_language_is_the_one_that_the_browser_likes_best(accepted: str, chosen: str) -> None:
    assert choose_language(None, None, accepted) == chosen


def test_every_word_of_the_templates_has_a_chinese_one() -> None:
    folder = Path(dashboard.__code__.co_filename).parent / "templates"
    said = {
        text
        for file in folder.glob("*.html")
        for text in re.findall(r"""\bt\("([^"]+)\"""", file.read_text(encoding="utf-8"))
    }
    assert len(said) > 60
    assert said - set(CHINESE) == set()


def test_mounted_under_a_prefix_every_link_stays_below_it(cluster: HandCluster, failed: Claim) -> None:
    app = Starlette(routes=[Mount("/ops/cron", dashboard(cluster.store))])
    client = Browser(app)
    for path in ("/", "/jobs", "/job?name=tick", "/ledger?job=tick", f"/runs/{failed.id}", "/nodes"):
        text = client.get(f"/ops/cron{path}").text
        links = re.findall(r'(?:href|action)="(/[^"]*)"', text)
        assert links
        assert all(link.startswith("/ops/cron/") for link in links), path
    assert client.get("/ops/cron/static/style.css").status_code == 200


def test_a_store_that_is_away_has_a_page_that_says_what_to_do(
    cluster: HandCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away() -> None:
        raise StoreUnavailable("cannot reach postgresql://ada:hunter2@db/app; start it")

    monkeypatch.setattr(cluster.store, "now", away)
    answer = Browser(dashboard(cluster.store)).get("/")
    assert answer.status_code == 503
    assert "The store does not answer" in answer.text
    assert "start it" in answer.text
    assert "hunter2" not in answer.text


def test_a_scheduler_on_sqlite_shows_what_it_really_ran(tmp_path: Path) -> None:
    scheduler = Scheduler(f"sqlite:///{tmp_path}/jobs.db", node="web-1")

    @scheduler.job()
    def good() -> str:
        return "fine"

    @scheduler.job()
    def bad() -> None:
        raise ValueError(BAD)

    scheduler.store.migrate()
    with scheduler:
        assert good.enqueue().result(30) == "fine"
        handle = bad.enqueue()
        assert handle.wait(30).state is State.FAILED
        client = Browser(dashboard(scheduler))
        assert "Alive" in client.get("/").text
        text = client.get(f"/runs/{handle.id}").text
    assert "ValueError: &lt;script&gt;" in text
    assert "web-1" in text


# --- a run ------------------------------------------------------------------------------------------------------------


def test_a_run_shows_its_attempts_to_scale_and_the_lines_that_were_asked_for() -> None:
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.every("tick", "1m", retries=1)
    cluster.advance(60)
    number = cluster.run_once().id
    cluster.advance(60)
    cluster.fire()
    (first,) = cluster.claim()
    cluster.log(first, "before", "the disk is full")
    cluster.advance(30)
    error = RunError(type="OSError", message="full", traceback="")
    cluster.finish(first, State.PENDING, error=error, retry_in=timedelta(0))
    cluster.advance(10)
    (second,) = cluster.claim()
    cluster.log(second, "again", "the disk is fine")
    cluster.advance(60)
    cluster.finish(second)
    browser = Browser(dashboard(cluster.store))
    text = browser.get(f"/runs/{first.id}").text
    found = re.findall(r'class="b b-\w+" x="([\d.]+)%" y="\d+" width="([\d.]+)%"', text)
    bars = [(float(x), float(width)) for x, width in found]
    assert bars == [(2.0, 24.0), (34.0, 48.0)]
    assert f'rel="prev" href="/runs/{number}"' in text
    assert "last 4 of 4 lines" in text
    assert "last 1 of 1 lines" in browser.get(f"/runs/{first.id}?log=DISK&attempt=2").text
    assert "No line is so." in browser.get(f"/runs/{first.id}?log=tape").text
