"""Send a message: to a webhook, by mail, to a function of the program, or by ``apprise`` to anything else.

What a receiver did with a message whose answer was lost is not known. So a message has an id, made of what it tells: it
is the same when it is sent again, and a receiver that remembers it tells the second from the first.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from cronsensus.alerts.events import Event
from cronsensus.errors import AlertNotSent, InvalidOption, MissingExtra
from cronsensus.masking import mask

PATIENCE = 10.0
"""Seconds that a receiver may take."""
SMTP_VARIABLE = "CRONSENSUS_SMTP_URL"
_SMTP_DEFAULT = "smtp://localhost:25"

Target = str | Callable[[Sequence[Event]], Any]


@dataclass(frozen=True, slots=True)
class Message:
    """What is sent.

    Attributes:
        alert: the name of the alert.
        events: what it tells of.
        subject: in one line.
        text: in full, as plain text.
        data: in full, as JSON values.
    """

    alert: str
    namespace: str
    events: Sequence[Event]
    subject: str
    text: str
    data: list[dict[str, Any]]

    @property
    def id(self) -> str:
        """What names the message: the same when it is sent again."""
        keys = "\n".join(sorted(one.key for one in self.events))
        return hashlib.sha256(f"{self.namespace}\n{self.alert}\n{keys}".encode()).hexdigest()[:32]


def show(target: str) -> str:
    """Return a URL as anybody may see it: the paths of webhooks and the hosts of most other services are secrets.

    Example:
        >>> show("https://hooks.slack.com/services/T0/B0/XYZ"), show("slack://TokenA/TokenB"), show("mailto://a@b.c")
        ('https://hooks.slack.com/…', 'slack://…', 'mailto://a@b.c')
    """
    scheme = target.partition(":")[0].lower()
    if scheme == "mailto":
        return target
    if scheme not in {"http", "https"}:
        return f"{scheme}://…"
    url = urlsplit(target)
    port = "" if url.port is None else f":{url.port}"
    return f"{scheme}://{url.hostname}{port}" + ("/…" if url.path.strip("/") or url.query else "")


def check_target(target: Any) -> None:
    """Raise unless messages can be sent there.

    Raises:
        InvalidOption: neither a URL nor a function.
        MissingExtra: it needs ``apprise``, which is not installed.
    """
    if callable(target):
        return
    if not isinstance(target, str) or ":" not in target:
        raise InvalidOption(
            f"Alert({target!r}): give a URL, as 'https://hooks.example/…' or 'mailto://ops@example.org', or a function"
        )
    scheme = target.partition(":")[0].lower()
    if scheme in {"http", "https"}:
        if not urlsplit(target).hostname:
            raise InvalidOption(f"Alert({mask(target)!r}): the URL names no host")
    elif scheme == "mailto":
        if not _recipients(target):
            raise InvalidOption(f"Alert({target!r}): name who gets the mail, as 'mailto://ops@example.org'")
    elif not _apprise().Apprise().add(target):
        raise InvalidOption(
            f"Alert({show(target)!r}): apprise knows no such URL; https://github.com/caronc/apprise/wiki"
        )


def send(target: Target, message: Message, secret: str | None) -> None:
    """Send a message; it may take ``PATIENCE``, and is sent again after an error.

    Raises:
        AlertNotSent: it was not taken, as far as is known.
        Exception: what a function of the program raises.
    """
    if callable(target):
        target(message.events)
        return
    scheme = target.partition(":")[0].lower()
    try:
        if scheme in {"http", "https"}:
            _post(target, message, secret)
        elif scheme == "mailto":
            _mail(target, message)
        elif not _by_apprise(target, message):
            raise OSError("apprise could not send it")
    except OSError as error:
        raise AlertNotSent(f"{show(target)} did not take a message ({message.subject}): {error}") from error


def _post(url: str, message: Message, secret: str | None) -> None:
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

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
    request = Request(url, data=body, headers=headers, method="POST")  # noqa: S310 - http or https, as checked
    try:
        with urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310 - as above
            answer.read(1)
    except HTTPError as error:
        error.close()  # it is the answer, and holds the connection
        raise


def _mail(target: str, message: Message) -> None:
    import smtplib
    from email.message import EmailMessage
    from email.utils import formatdate

    server = urlsplit(os.environ.get(SMTP_VARIABLE, _SMTP_DEFAULT))
    asked = parse_qs(server.query)
    mail = EmailMessage()
    mail["Subject"] = f"[cronsensus] {message.subject}"
    mail["To"] = ", ".join(_recipients(target))
    mail["From"] = asked.get("from", ["cronsensus@localhost"])[0]
    mail["Date"] = formatdate(localtime=False)
    mail["Message-ID"] = f"<{message.id}@cronsensus>"
    mail.set_content(message.text + "\n")
    secure = server.scheme == "smtps"
    kind = smtplib.SMTP_SSL if secure else smtplib.SMTP
    with kind(server.hostname or "localhost", server.port or (465 if secure else 25), timeout=PATIENCE) as smtp:
        if (not secure and smtp.has_extn("starttls")) or asked.get("starttls"):
            smtp.starttls()
        if server.username is not None:
            smtp.login(unquote(server.username), unquote(server.password or ""))
        smtp.send_message(mail)


def _recipients(target: str) -> list[str]:
    rest = target.partition(":")[2].removeprefix("//").partition("?")[0]
    return [one for one in map(unquote, rest.split(",")) if "@" in one]


def _by_apprise(target: str, message: Message) -> bool:
    sender = _apprise().Apprise()
    sender.add(target)
    return bool(sender.notify(title=message.subject, body=message.text))


def _apprise() -> Any:
    try:
        import apprise  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise MissingExtra(
            "alerts by other URLs than http, https and mailto go through apprise, which is not installed; type: "
            'pip install "cronsensus[alerts]"'
        ) from None
    return apprise
