"""A password with characters that end it in a URL: the error names the character, and nothing of the password."""

import pytest

from cronsensus.errors import InvalidOption
from cronsensus.stores import open_store
from cronsensus.stores.credentials import check_credentials

SCHEMES = ["postgresql", "mysql", "redis", "rediss"]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    ("character", "quoted"), [("@", "%40"), ("/", "%2F"), ("?", "%3F"), ("#", "%23"), ("%", "%25")]
)
def test_password_with_special_character_is_refused_without_showing_it(scheme: str, character: str, quoted: str):
    with pytest.raises(InvalidOption, match="user name or password") as caught:
        open_store(f"{scheme}://ada:sec{character}zret@127.0.0.1:1/app")
    said = str(caught.value)
    assert f"write {quoted} for it" in said
    assert "sec" not in said
    assert "zret" not in said


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:p%40ss@host:1,other:2/app?application_name=a%40b",
        "postgresql:///app?host=/var/run/postgresql",
        "postgresql://host/app?options=-c%20x",
        "mysql://host/app?ssl_ca=/etc/a@b.pem",
        "redis://:p%23@host:6379/0",
        "redis://host",
    ],
)
def test_url_that_is_well_written_is_left_alone(url: str):
    check_credentials(url)
