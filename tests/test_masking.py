"""Secrets are taken out of what people see."""

import pytest

from cronsensus.masking import mask

TEXTS = [
    ("postgresql://ada:s3cr3t@db/app", "postgresql://ada:***@db/app"),
    ("redis://:s3cr3t@cache:6379/0", "redis://:***@cache:6379/0"),
    ("mysql://db/app?user=ada&password=s3cr3t&ssl=1", "mysql://db/app?user=ada&password=***&ssl=1"),
    ("mysql://db/app?sslpassword=s3cr3t", "mysql://db/app?sslpassword=***"),
    ("https://host/?access_token=s3cr3t&x=1", "https://host/?access_token=***&x=1"),
    # What SQLAlchemy still takes for a password.
    ("postgresql://ada:p@s3cr3t@db/app", "postgresql://ada:***@db/app"),
    ("postgresql://ada:p/s3cr3t@db/app", "postgresql://ada:***@db/app"),
    ("postgresql://ada:12/s3cr3t@db/app", "postgresql://ada:***@db/app"),
    ("postgresql://ada:p?s3cr3t@db/app", "postgresql://ada:***@db/app"),
    ("postgresql://ada:s3cr3t@db/app?options=a@b", "postgresql://ada:***@db/app?options=a@b"),
    ("mysql://a:s3cr3t@b and redis://:s3cr3t@c", "mysql://a:***@b and redis://:***@c"),
]


@pytest.mark.parametrize(("text", "shown"), TEXTS)
def test_a_secret_is_never_shown(text: str, shown: str) -> None:
    assert mask(text) == shown
    assert mask(f"cannot reach {text} (ask ada@example.org") == f"cannot reach {shown} (ask ada@example.org"


@pytest.mark.parametrize(
    "text",
    [
        "sqlite:///jobs.db",
        "http://host:8080/path",
        "postgresql://db/app",
        "token 17 of ada@example.org",
        "no secrets here",
    ],
)
def test_masking_leaves_text_without_secrets_alone(text: str) -> None:
    assert mask(text) == text


def test_a_long_text_takes_no_time() -> None:
    text = "x" * 200_000 + "://" + "a:" * 100_000
    assert mask(text) == text
