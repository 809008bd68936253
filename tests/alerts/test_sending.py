"""What is said to a receiver, what it may answer, and what a target may be."""

import base64
import contextlib
import socket
import threading
from datetime import timedelta

import pytest

from cronsensus import Alert, Scheduler
from cronsensus.alerts import sending
from cronsensus.alerts.alert import read_alerts
from cronsensus.alerts.events import Event
from cronsensus.alerts.message_words import events_as_data
from cronsensus.alerts.sending import Message, send_message
from cronsensus.config import load_settings
from cronsensus.errors import AlertNotSent, Cancel, InvalidOption
from cronsensus.testing.conformance.fixtures import START
from tests.alerts.receivers import mails, webhooks


def a_message() -> Message:
    events = [Event(key="run:7", event="failed", at=START, job="backup", run=7)]
    return Message("ops", "default", events, "backup failed", "backup failed", events_as_data(events), events)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_receiver_that_sends_elsewhere_did_not_take_the_message(status):
    """A POST would arrive there as a GET without its body, and be answered with 200."""
    with webhooks() as got:
        got.answers = [status]
        with pytest.raises(AlertNotSent, match="it sends elsewhere: write the URL to which it does"):
            send_message(got.url, a_message(), None)


@pytest.mark.parametrize(
    ("asked", "after"),
    [
        ("10", 10),
        ("86400", sending.LONGEST_WAIT),
        ("Fri, 31 Dec 2100 23:59:59 GMT", sending.LONGEST_WAIT),
        ("soon", None),
    ],
)
def test_a_receiver_may_ask_to_be_left_alone_for_a_while(asked, after):
    with webhooks() as got:
        got.answers, got.retry_after = [429], asked
        with pytest.raises(AlertNotSent, match="429") as refused:
            send_message(got.url, a_message(), None)
    assert refused.value.after == after


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 200 OK\r\nX-A: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", b"220 "]
)
def test_a_receiver_that_sends_a_byte_now_and_then_is_cut_off(answer, monkeypatch):
    monkeypatch.setattr(sending, "MESSAGE_SECONDS", 0.5)
    over = threading.Event()

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(answer)
            while not over.wait(0.05):
                connection.sendall(b"" if answer.endswith(b"\r\n\r\n") else b"a")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        place = f"127.0.0.1:{listener.getsockname()[1]}"
        dripping = threading.Thread(target=drip, args=(listener,))
        dripping.start()
        monkeypatch.setenv(sending.SMTP_VARIABLE, f"smtp://{place}")
        target = "mailto://ops@example.org" if answer.startswith(b"220") else f"http://{place}/hook"
        with pytest.raises(AlertNotSent, match=r"it did not end within 0\.5 s"):
            send_message(target, a_message(), None)
        over.set()
        dripping.join(10)


def test_a_password_in_the_url_of_a_webhook_is_sent_and_not_told():
    with webhooks() as got:
        target = got.url.replace("://", "://ada:p%40ss@")
        send_message(target, a_message(), None)
    assert got.headers[0]["Authorization"] == "Basic " + base64.b64encode(b"ada:p@ss").decode()
    with pytest.raises(AlertNotSent) as told:
        send_message(target, a_message(), None)
    assert "p%40ss" not in str(told.value)


def test_no_password_goes_to_a_server_of_mail_before_the_tls_that_it_offers(monkeypatch):
    heard: list[str] = []
    with mails(heard=heard, offers="STARTTLS") as (server, got):
        monkeypatch.setenv(sending.SMTP_VARIABLE, server.replace("://", "://ada:secret@"))
        with pytest.raises(AlertNotSent, match="not now"):
            send_message("mailto://ops@example.org", a_message(), None)
    assert heard[:2] == ["EHLO", "STARTTLS"]
    assert "AUTH" not in heard
    assert got == []


def test_a_server_of_mail_that_is_none_is_not_taken_for_the_one_on_this_host(monkeypatch):
    monkeypatch.setenv(sending.SMTP_VARIABLE, "mail.example.org:587")
    with pytest.raises(AlertNotSent, match=r"CRONSENSUS_SMTP_URL='mail\.example\.org:587' is no server of mail"):
        send_message("mailto://ops@example.org", a_message(), None)


def test_a_mail_that_was_taken_is_not_sent_again_because_of_what_is_said_at_the_end(monkeypatch, caplog):
    with mails(bye="500 what") as (server, got):
        monkeypatch.setenv(sending.SMTP_VARIABLE, server)
        send_message("mailto://ops@example.org,nobody@example.org", a_message(), None)
    assert len(got) == 1
    assert "refused nobody@example.org" in caplog.text


def test_a_function_cannot_end_the_run_that_watches():
    def page(events: object) -> None:
        raise Cancel("not today")

    with pytest.raises(AlertNotSent, match="its function raised Cancel"):
        send_message(page, a_message(), None)


async def page(events: object) -> None: ...


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Alert(page), "it is async"),
        (lambda: Alert("x.y/T0"), "give a URL"),
        (lambda: Alert("https://x.y:port/T0"), "host or port cannot be"),
        (lambda: Alert("https://x.y/T0 B0"), "neither spaces nor"),
        (lambda: Alert("https://x.y/T\xe90"), "neither spaces nor"),
        (lambda: Alert("mailto://ada:T0@mail.example.org"), "CRONSENSUS_SMTP_URL=smtp://user:password"),
        (lambda: Alert("https://x.y", on=7), "7 is no text; write on="),  # type: ignore[arg-type]
        (lambda: Alert("https://x.y", jobs=[print]), "is no text; write jobs="),  # type: ignore[list-item]
        (lambda: Alert("https://x.y", secret=7), "write text in quotes"),  # type: ignore[arg-type]
        (lambda: read_alerts("https://x.y/T0 on=failed, missed"), "write on=failed,missed without spaces"),
    ],
)
def test_a_mistake_is_told_at_once_and_without_what_is_secret(make, words):
    with pytest.raises(InvalidOption, match=words) as told:
        make()
    assert "T0" not in str(told.value)


def test_one_table_of_the_settings_is_told_what_to_write_without_its_secrets(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.cronsensus.alerts]\ntarget = 'https://x.y/T0'\n")
    with pytest.raises(InvalidOption, match=r"\[\[tool.cronsensus.alerts\]\] with two brackets") as told:
        load_settings(env={}, start=tmp_path)
    assert "T0" not in str(told.value)


def test_each_test_of_an_alert_is_another_message():
    with webhooks() as got:
        alerts = Scheduler("memory://", alerts=[Alert(got.url, name="ops")]).alerts
        assert alerts is not None
        for _ in range(2):
            assert alerts.try_out(alerts.by_name["ops"], "default") is None
    first, second = got.bodies
    assert first["id"] != second["id"]


def test_a_message_of_another_store_that_numbers_its_runs_alike_has_another_id():
    one = Event(key="run:7", event="failed", at=START, job="backup", run=7)
    other = Event(key="run:7", event="failed", at=START + timedelta(days=1), job="mails", run=7)
    messages = [Message("ops", "default", [event], "", "", events_as_data([event]), [event]) for event in (one, other)]
    assert len({message.id for message in messages}) == 2
