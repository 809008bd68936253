"""Who may see and who may act: on every route, whatever the application around it says."""

import base64
import logging
from typing import Any

import pytest
from starlette.requests import Request
from starlette.routing import Mount, Route, Router

from cronsensus.dashboard import dashboard
from cronsensus.dashboard.access import Access
from cronsensus.dashboard.passwords import Token, from_environment
from cronsensus.errors import ConfigurationError, StoreUnavailable
from tests.dashboard.browser import Browser, Form
from tests.hand_cluster import HandCluster

TOKEN = "0123456789abcdef"
AFAR = ("10.0.0.7", 1)


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


@pytest.fixture
def cluster() -> HandCluster:
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.every("tick", "1m")
    cluster.advance(60)
    cluster.run_once()
    return cluster


def routes_of(app: Any) -> list[tuple[str, str]]:
    """Return each method and path that the application has, with something in the place of what varies."""
    inner = app
    while isinstance(inner, Access):
        inner = inner._app
    found = []
    for route in inner.routes:
        if isinstance(route, Mount):
            found.append(("GET", f"{route.path}/style.css"))
        else:
            assert isinstance(route, Route)
            path = route.path.replace("{number}", "1").replace("{action}", "pause")
            found += [(method, path) for method in route.methods or ()]
    return found


def test_every_route_is_closed_to_others_and_no_writing_one_is_open_to_readers(cluster: HandCluster) -> None:
    closed = dashboard(cluster.store, auth=lambda request: None)
    reader = dashboard(cluster.store, auth=lambda request: "read")
    routes = routes_of(closed)
    assert len(routes) > 15
    assert ("POST", "/do/{action}".replace("{action}", "pause")) in routes
    for method, path in routes:
        assert Browser(closed).ask(method, path).status_code == 403, path
        assert Browser(dashboard(cluster.store), AFAR).ask(method, path).status_code == 403, path
        if method not in {"GET", "HEAD"}:
            assert Browser(reader).ask(method, path).status_code == 403, path


def test_a_reader_sees_no_buttons_and_no_forms(cluster: HandCluster) -> None:
    browser = Browser(dashboard(cluster.store, auth=lambda request: "read"), AFAR)
    for path in ("/", "/job?name=tick", "/runs/1", "/nodes", "/locks"):
        assert "/do/" not in browser.get(path).text
    assert "read-only" in browser.get("/").text
    answer = browser.get("/do/pause?job=tick")
    assert answer.status_code == 403
    assert "You may look, and not act" in answer.text


def test_read_only_takes_the_right_to_act_from_everybody(cluster: HandCluster) -> None:
    given = Form(Browser(dashboard(cluster.store)).get("/do/pause?job=tick").text).fields
    browser = Browser(dashboard(cluster.store, read_only=True))
    assert browser.ask("POST", "/do/pause", {**given, "reason": "x"}).status_code == 403
    assert browser.get("/do/pause?job=tick").status_code == 403
    assert cluster.store.trail() == []


def test_auth_may_be_async_and_says_who_acts(cluster: HandCluster) -> None:
    async def auth(request: Request) -> str | None:
        request.state.user = request.headers.get("x-user")
        return "operate" if request.state.user else None

    app = dashboard(cluster.store, auth=auth)  # type: ignore[arg-type]
    assert Browser(app, AFAR).get("/").status_code == 403
    Browser(app, AFAR, x_user="ann").do("/do/pause?job=tick", reason="move")
    assert cluster.store.trail()[0].by == "ann"


@pytest.mark.parametrize("said", ["raises", "admin", True])
def test_auth_that_fails_or_says_something_else_refuses(
    cluster: HandCluster, said: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def auth(request: Request) -> Any:
        if said == "raises":
            raise RuntimeError("no session")
        return said

    with caplog.at_level(logging.ERROR):
        assert Browser(dashboard(cluster.store, auth=auth)).get("/").status_code == 403
    assert "auth= of the dashboard" in caplog.text


def test_a_token_opens_the_pages_from_elsewhere_and_names_who_acts(
    cluster: HandCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CRONSENSUS_DASHBOARD_TOKEN", TOKEN)
    app = dashboard(cluster.store)
    for given in ("", basic("ann", "x" * 16), "Basic ?", TOKEN):
        answer = Browser(app, authorization=given).get("/")
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Basic ")
    assert Browser(app, AFAR, authorization=f"Bearer {TOKEN}", x_forwarded_for="1.2.3.4").get("/").status_code == 200
    ann = Browser(app, AFAR, authorization=basic("ann", TOKEN), host="cron.example")
    ann.do("/do/pause?job=tick", reason="move")
    assert cluster.store.trail()[0].by == "ann"


def test_a_user_and_a_password_are_both_asked_for(cluster: HandCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRONSENSUS_DASHBOARD_USER", "ops")
    monkeypatch.setenv("CRONSENSUS_DASHBOARD_PASSWORD", TOKEN)
    app = dashboard(cluster.store)
    assert Browser(app, authorization=basic("ops", TOKEN)).get("/").status_code == 200
    for wrong in (basic("ann", TOKEN), basic("ops", "x" * 16), f"Bearer {TOKEN}"):
        assert Browser(app, authorization=wrong).get("/").status_code == 401


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"CRONSENSUS_DASHBOARD_TOKEN": "short"}, "can be guessed"),
        ({"CRONSENSUS_DASHBOARD_TOKEN": ""}, "can be guessed"),
        ({"CRONSENSUS_DASHBOARD_USER": "ops"}, "go together"),
        ({"CRONSENSUS_DASHBOARD_PASSWORD": TOKEN}, "go together"),
        ({"CRONSENSUS_DASHBOARD_TOKEN": TOKEN, "CRONSENSUS_DASHBOARD_USER": "ops"}, "both set"),
    ],
)
def test_half_a_password_is_refused(env: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        from_environment(env)


def test_a_probe_needs_no_password_and_learns_nothing(cluster: HandCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    closed = dashboard(cluster.store, auth=lambda request: None)
    answer = Browser(closed, AFAR).ask("GET", "/healthz")
    assert (answer.status_code, answer.text) == (200, "ok: the store answers\n")
    assert Browser(closed, AFAR).ask("POST", "/healthz").status_code == 403

    def away() -> None:
        raise StoreUnavailable("postgresql://ann@db.internal/shop: no server listens there")

    monkeypatch.setattr(cluster.store, "now", away)
    fresh = dashboard(cluster.store, auth=lambda request: None)
    answer = Browser(fresh, AFAR).ask("GET", "/healthz")
    assert (answer.status_code, answer.text) == (503, "fail: the store does not answer\n")


# --- the token that a dashboard makes itself --------------------------------------------------------------------------

PAGE = {"accept": "text/html,*/*"}


def test_a_dashboard_without_a_password_asks_for_the_token_that_it_made(cluster: HandCluster) -> None:
    token = Token()
    app = dashboard(cluster.store, auth=token, by="ann")
    for method, path in routes_of(app):
        answer = Browser(app).ask(method, path)
        assert answer.status_code == (200 if path.startswith("/static") else 401), path
    # As a proxy on this machine that hides itself, or an application that fetches what it is told to.
    answer = Browser(app, host="127.0.0.1:8080").get("/", **PAGE)
    assert answer.status_code == 401
    assert "open the URL that it printed" in answer.text
    assert "tick" not in answer.text
    assert Browser(app).get("/", authorization=f"Bearer {token.token}").status_code == 200
    assert Browser(app).get(f"/api/jobs?limit=5&key={token.token}").json()["jobs"][0]["name"] == "tick"
    assert Browser(app, AFAR).get(f"/?key={token.token}").status_code == 403


def test_the_url_with_the_token_opens_the_page_and_leaves_it_out_of_the_address(cluster: HandCluster) -> None:
    token = Token()
    browser = Browser(dashboard(cluster.store, auth=token, by="ann"))
    answer = browser.get(f"/job?name=tick&key={token.token}", **PAGE)
    assert (answer.status_code, answer.headers["location"]) == (303, "./job?name=tick")
    kept = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(kept.split("; "))
    assert token.token not in kept
    assert "tick" in browser.get("/job?name=tick", **PAGE).text
    browser.do("/do/pause?job=tick", reason="move")
    assert cluster.store.trail()[0].by == "ann"


def test_below_a_prefix_the_cookie_is_of_the_prefix_and_no_other_token_opens(cluster: HandCluster) -> None:
    token = Token()
    app = Router([Mount("/cron", dashboard(cluster.store, auth=token))])
    kept = Browser(app).get(f"/cron/?key={token.token}", **PAGE).headers["set-cookie"]
    assert "Path=/cron;" in f"{kept};"
    browser = Browser(app)
    for wrong in ("x", "", token.token[:-1], "%00"):
        assert browser.get(f"/cron/jobs?q=a&key={wrong}", **PAGE).status_code == 401
    page = browser.get('/cron/jobs?q="><script>&key=x', **PAGE)
    assert "<script>" not in page.text
    assert "&lt;script&gt;" in page.text
    assert not browser.cookies


def test_without_auth_a_form_that_was_sent_from_a_page_of_another_host_is_refused(cluster: HandCluster) -> None:
    app = dashboard(cluster.store)
    given = Form(Browser(app).get("/do/pause?job=tick").text).fields
    answer = Browser(app, origin="https://cron.example.org", sec_fetch_site="same-origin").ask(
        "POST", "/do/pause", given
    )
    assert answer.status_code == 403
    assert "page of another host" in answer.text
    assert Browser(app, host="[::1].evil.example").get("/").status_code == 403


def test_a_page_of_another_site_loads_nothing_and_may_lead_here(cluster: HandCluster) -> None:
    browser = Browser(dashboard(cluster.store, auth=lambda request: "operate"), sec_fetch_site="cross-site")
    assert browser.get("/ledger?span=1d", sec_fetch_mode="no-cors").status_code == 403
    assert browser.get("/ledger?span=1d", sec_fetch_mode="navigate").status_code == 200
