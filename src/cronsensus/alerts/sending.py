"""Send a message: to a webhook, by mail, to a function of the program, or by ``apprise`` to anything else.

If an answer is lost, it is not known what the receiver did. So a message has an id that is made of its events. It is
the same when the message is sent again, so a receiver that remembers ids can drop the second copy.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from cronsensus.alerts.events import Event
from cronsensus.alerts.exchange import Exchange
from cronsensus.declared.functions import is_async
from cronsensus.errors import AlertNotSent, InvalidOption, MissingExtra, TaskControl
from cronsensus.process.logger import Logger
from cronsensus.security.masking import mask, mask_target
from cronsensus.timing.clock import SystemClock
from cronsensus.timing.instants import to_micros

ANSWER_SECONDS = 10.0
"""Seconds that a receiver may take for each answer."""
MESSAGE_SECONDS = 20.0
"""Seconds that a message may take, from the first byte to the last answer."""
LONGEST_WAIT = 900.0
"""Most seconds that a receiver may ask to wait for. A run that waits longer does so by a wrong clock (``watching``)."""
SMTP_VARIABLE = "CRONSENSUS_SMTP_URL"
_SMTP_DEFAULT = "smtp://localhost:25"

_log = Logger("cronsensus.alerts")
Target = str | Callable[[Sequence[Event]], Any]


@dataclass(frozen=True, slots=True)
class Message:
    """A message of an alert.

    Attributes:
        alert: the name of the alert.
        events: its events.
        subject: in one line.
        text: in full, as plain text.
        data: in full, as JSON values.
        named_by: the events that it was first made of. Events that are muted meanwhile are left out of ``events``.
    """

    alert: str
    namespace: str
    events: Sequence[Event]
    subject: str
    text: str
    data: list[dict[str, Any]]
    named_by: Sequence[Event]

    @property
    def id(self) -> str:
        """The id of the message: the same when it is sent again; another in a store that numbers its runs anew."""
        keys = "\n".join(sorted(f"{event.key} {to_micros(event.at)}" for event in self.named_by))
        return hashlib.sha256(f"{self.namespace}\n{self.alert}\n{keys}".encode()).hexdigest()[:32]


def check_target(target: Any) -> None:
    """Raise unless messages can be sent there.

    Raises:
        InvalidOption: neither a URL nor a function.
        MissingExtra: it needs ``apprise``, which is not installed.
    """
    if callable(target):
        if is_async(target):
            raise InvalidOption(
                f"Alert({target!r}): it is async, and is called in a thread without an event loop; pass a plain "
                "function, such as one that calls asyncio.run(…)"
            )
        return
    if not isinstance(target, str) or ":" not in target:
        shown = mask_target(target) if isinstance(target, str) else target
        raise InvalidOption(
            f"Alert({shown!r}): give a URL, as 'https://hooks.example/…' or 'mailto://ops@example.org', or a function"
        )
    scheme = target.partition(":")[0].lower()
    if scheme in {"http", "https"}:
        _check_web(target)
    elif scheme == "mailto":
        if not _recipients_of(target):
            raise InvalidOption(f"Alert({target!r}): name who gets the mail, as 'mailto://ops@example.org'")
        if any(":" in recipient for recipient in _recipients_of(target)):
            raise InvalidOption(
                f"Alert({mask_target(target)!r}): name only who gets the mail, as 'mailto://ops@example.org'; "
                f"the server and its password go into {SMTP_VARIABLE}=smtp://user:password@mail.example.org:587"
            )
    elif not _import_apprise().Apprise().add(target):
        raise InvalidOption(
            f"Alert({mask_target(target)!r}): apprise knows no such URL; https://github.com/caronc/apprise/wiki"
        )


def _check_web(target: str) -> None:
    try:
        url = urlsplit(target)
        host, _ = url.hostname, url.port
    except ValueError:
        # Show neither the error nor the URL: both may hold secrets.
        raise InvalidOption("Alert('https://…'): the URL's host or port cannot be; write https://host:443/…") from None
    if not host:
        raise InvalidOption(f"Alert({mask_target(target)!r}): the URL names no host")
    if re.search(r"[\x00-\x20\x7f]", target) or not (url.path + url.query).isascii():
        raise InvalidOption(
            f"Alert({mask_target(target)!r}): a URL has neither spaces nor letters beyond ASCII; write %20, or what "
            "urllib.parse.quote makes of them"
        )


def send_message(target: Target, message: Message, secret: str | None) -> None:
    """Send a message, within ``MESSAGE_SECONDS``. The caller sends it again after an error.

    Not prevented: a function of the program, or a service behind ``apprise``, that takes longer.

    Raises:
        AlertNotSent: it was not taken, as far as is known.
        Exception: what a function of the program raises.
    """
    if callable(target):
        try:
            target(message.events)
        except TaskControl as error:  # it would steer the run that watches: a Cancel would end it for good
            raise AlertNotSent(f"{message.alert}: its function raised {type(error).__name__}") from error
        return
    scheme = target.partition(":")[0].lower()
    try:
        with Exchange(MESSAGE_SECONDS) as exchange:
            if scheme in {"http", "https"}:
                _post_message(target, message, secret, exchange)
            elif scheme == "mailto":
                _mail_message(target, message, exchange)
            elif not _by_apprise(target, message):
                raise OSError("apprise could not send it")
    except (OSError, HTTPException) as error:
        refused = AlertNotSent(f"{mask_target(target)} did not take a message ({message.subject}): {error}")
        refused.after = _asked_wait(error)
        raise refused from error


def _asked_wait(error: Exception) -> float | None:
    """Return the seconds that a receiver asked to wait for (RFC 9110, Retry-After), at most ``LONGEST_WAIT``."""
    if not isinstance(error, HTTPError) or error.code not in {429, 503}:
        return None
    retry_after = (error.headers.get("Retry-After") or "").strip()
    try:
        seconds = (
            float(retry_after)
            if retry_after.isdigit()
            else (parsedate_to_datetime(retry_after) - SystemClock().now()).total_seconds()
        )
    except (TypeError, ValueError):  # neither a number nor a date; or one without a zone
        return None
    return min(max(seconds, 0.0), LONGEST_WAIT)


class _Stay(HTTPRedirectHandler):
    """Follows no redirect: a POST would arrive there as a GET without its body, and be lost."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _post_message(url: str, message: Message, secret: str | None, exchange: Exchange) -> None:
    body = json.dumps(
        {
            "id": message.id,
            "alert": message.alert,
            "namespace": message.namespace,
            "subject": message.subject,
            "text": message.text,
            "total": len(message.events),
            "events": message.data,
        }
    ).encode()
    headers = {"Content-Type": "application/json", "Idempotency-Key": message.id, "User-Agent": "cronsensus"}
    if secret is not None:
        headers["X-Cronsensus-Signature"] = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    parts = urlsplit(url)
    if parts.username is not None:
        credentials = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = "Basic " + b64encode(credentials.encode()).decode()
        url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    request = Request(url, data=body, headers=headers, method="POST")  # noqa: S310 - http or https, as checked
    try:
        with build_opener(_Stay, *exchange.url_handlers()).open(request, timeout=ANSWER_SECONDS) as answer:
            answer.read(1)
    except HTTPError as error:
        error.close()  # it is the answer, and holds the connection
        if 300 <= error.code < 400:
            raise OSError(f"{error}; it sends elsewhere: write the URL to which it does") from None
        raise


def _mail_message(target: str, message: Message, exchange: Exchange) -> None:
    import smtplib
    import ssl
    from contextlib import suppress
    from email.message import EmailMessage
    from email.utils import formatdate
    from functools import partial

    server = _mail_server()
    options = parse_qs(server.query)
    mail = EmailMessage()
    mail["Subject"] = f"[cronsensus] {message.subject}"
    mail["To"] = ", ".join(_recipients_of(target))
    mail["From"] = options.get("from", ["cronsensus@localhost"])[0]
    mail["Date"] = formatdate(localtime=False)
    mail["Message-ID"] = f"<{message.id}@cronsensus>"
    mail.set_content(message.text + "\n")
    secure = server.scheme == "smtps"
    # A password is for the server of that name only.
    tls = None if server.username is None else ssl.create_default_context()
    connect: Callable[..., smtplib.SMTP] = exchange.mail_connection(smtplib.SMTP)
    if secure:
        connect = partial(exchange.mail_connection(smtplib.SMTP_SSL), context=tls)
    with connect(server.hostname or "", server.port or (465 if secure else 25), timeout=ANSWER_SECONDS) as smtp:
        smtp.ehlo_or_helo_if_needed()  # before, it is not known what is offered
        if (not secure and smtp.has_extn("starttls")) or options.get("starttls"):
            smtp.starttls(context=tls)
            exchange.watch_connection(smtp.sock)  # the one that was there is inside of it
        if server.username is not None:
            smtp.login(unquote(server.username), unquote(server.password or ""))
        refused = smtp.send_message(mail)
        with suppress(OSError):  # it has taken the mail, whatever it says to this
            smtp.quit()
        smtp.close()
    if refused:  # not sent again: the others have it
        _log.warning("alert %s: the server of mail refused %s", message.alert, ", ".join(refused))


def _mail_server() -> SplitResult:
    url = os.environ.get(SMTP_VARIABLE, _SMTP_DEFAULT)
    try:
        server = urlsplit(url)
        is_usable = server.scheme in {"smtp", "smtps"} and bool(server.hostname) and server.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise AlertNotSent(
            f"{SMTP_VARIABLE}={mask(url)!r} is no server of mail; write smtp://user:password@mail.example.org:587"
        )
    return server


def _recipients_of(target: str) -> list[str]:
    addresses = target.partition(":")[2].removeprefix("//").partition("?")[0]
    return [address for address in map(unquote, addresses.split(",")) if "@" in address]


def _by_apprise(target: str, message: Message) -> bool:
    sender = _import_apprise().Apprise()
    sender.add(target)
    return bool(sender.notify(title=message.subject, body=message.text, body_format="text"))


def _import_apprise() -> Any:
    try:
        import apprise  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise MissingExtra(
            "alerts by other URLs than http, https and mailto go through apprise, which is not installed; type: "
            'pip install "cronsensus[alerts]"'
        ) from None
    return apprise
