"""Secrets are taken out of what people see."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cronsensus.security.masking import mask, mask_data, mask_target

URLS = [
    ("postgresql://ada:s3cr3t@db/app", "postgresql://ada:***@db/app"),
    ("redis://:s3cr3t@cache:6379/0", "redis://:***@cache:6379/0"),
    ("mysql://db/app?user=ada&password=s3cr3t&ssl=1", "mysql://db/app?user=ada&password=***&ssl=1"),
    ("mysql://db/app?sslpassword=s3cr3t", "mysql://db/app?sslpassword=***"),
    ("https://host/?access_token=s3cr3t&x=1", "https://host/?access_token=***&x=1"),
    ("https://host/?X-Amz-Signature=s3cr3t&x=1", "https://host/?X-Amz-Signature=***&x=1"),
    ("https://x-access-token:s3cr3t@git/repo.git", "https://x-access-token:***@git/repo.git"),
    # What SQLAlchemy still takes for a password.
    ("postgresql://ada:p@s3cr3t@db/app", "postgresql://ada:***@db/app"),
    ("postgresql://ada:p/s3cr3t@db/app", "postgresql://ada:***@db/app"),
    ("postgresql://ada:12/s3cr3t@db/app", "postgresql://ada:***@db/app"),
    ("postgresql://ada:p?s3cr3t@db/app", "postgresql://ada:***@db/app"),
    ("postgresql://ada:p@ s3cr3t@db/app", "postgresql://ada:***@db/app"),
    ("postgresql://ada:my s3cr3t word@db/app", "postgresql://ada:***@db/app"),
    ("postgresql://ada:s3cr3t@db/app?options=a@b", "postgresql://ada:***@db/app?options=a@b"),
    ("mysql://a:s3cr3t@b and redis://:s3cr3t@c", "mysql://a:***@b and redis://:***@c"),
]
NAMED = [
    ("PGPASSWORD=s3cr3t psql", "PGPASSWORD=*** psql"),
    ("AWS_SECRET_ACCESS_KEY=123 aws", "AWS_SECRET_ACCESS_KEY=*** aws"),
    ("(token=s3cr3t), and more", "(token=***), and more"),
    ("pwd=s3cr3t; PASSWORD=a&b;", "pwd=***; PASSWORD=***;"),
    ("api_key=s3cr3t apiKey: 's3 cr3t'", "api_key=*** apiKey: '***'"),
    ("password: s3cr3t.", "password: ***."),
    ("İ has a small letter of two: PASSWORD=s3cr3t", "İ has a small letter of two: PASSWORD=***"),
    ('{"password": "s3 \\" cr3t", "n": 1}', '{"password": "***", "n": 1}'),
    (r"{\"password\": \"s3 cr3t\", \"n\": 1}", r"{\"password\": \"***\", \"n\": 1}"),
    ("{'tokens': ['s3', 'cr3t'], 'n': 1}", "{'tokens': ***, 'n': 1}"),
    ("os.environ['DB_PASSWORD'] = b's3cr3t'", "os.environ['DB_PASSWORD'] = b'***'"),
    ("def f(password: str = 's3cr3t')", "def f(password: ***"),
    ("['--password', 's3 cr3t', 'db']", "['--password', '***', 'db']"),
    ("vault --token s3cr3t login --password='s3 cr3t'", "vault --token *** login --password='***'"),
    ("Authorization: Bearer s3cr3t) refused", "Authorization: Bearer ***) refused"),
    ("-H 'Authorization: Basic s3cr3t=='", "-H 'Authorization: Basic ***'"),
    ("authorization: Digest username=a, response=s3cr3t", "authorization: ***"),
    ("(b'authorization', b'Bearer s3cr3t')", "(b'authorization', b'***')"),
    ("Cookie: id=s3cr3t; a=s3cr3t\nHost: x", "Cookie: ***\nHost: x"),
    ("Set-Cookie: id=s3cr3t; Path=/\r\nHost: x", "Set-Cookie: ***\r\nHost: x"),
    ("sent Bearer eyJhbGciOi1.s3cr3t.x to it", "sent Bearer *** to it"),
    ("token_count=3 max_tokens: 512 token_count=s3cr3t", "token_count=3 max_tokens: 512 token_count=***"),
]


@pytest.mark.parametrize(("text", "shown"), URLS)
def test_a_secret_of_a_url_is_never_shown(text: str, shown: str) -> None:
    assert mask(text) == mask(shown) == shown
    assert mask(f"cannot reach {text} (ask ada@example.org") == f"cannot reach {shown} (ask ada@example.org"


TARGETS = [
    ("https://hooks.example/T0/B0", "https://hooks.example/***"),
    ("https://ada:s3cr3t@hooks.example:8443?x=s3cr3t", "https://hooks.example:8443/***"),
    ("http://[::1]:8080", "http://[::1]:8080"),
    ("https://ada:12/s3cr3t@hooks.example/", "https://***"),
    ("https://hooks.example:s3cr3t/", "https://***"),
    ("slack://s3cr3t/s3cr3t", "slack://***"),
    ("hooks.example/s3cr3t", "hooks.example/***"),
    ("mailto:ops@example.org,ada@example.org", "mailto:ops@example.org,ada@example.org"),
    ("mailto://ada:s3cr3t@example.org", "mailto:***"),
]


@pytest.mark.parametrize(("url", "shown"), TARGETS)
def test_of_a_url_with_a_secret_path_scheme_and_host_are_shown(url: str, shown: str) -> None:
    assert mask_target(url) == shown


def test_a_secret_that_is_told_is_masked_wherever_it_stands() -> None:
    assert mask("it says pass and passport", secrets=["pass", "", None, "passport"]) == "it says *** and ***"


@pytest.mark.parametrize(("text", "shown"), NAMED)
def test_what_is_called_like_a_secret_is_never_shown(text: str, shown: str) -> None:
    assert mask(text) == mask(shown) == shown
    assert mask(f"line 1\n{text}\nline 3") == f"line 1\n{shown}\nline 3"


@pytest.mark.parametrize(
    "text",
    [
        "sqlite:///jobs.db",
        "http://host:8080/path",
        "http://host:8080 (ask ada@example.org)",
        "postgresql://db/app",
        "token 17 of ada@example.org",
        "no secrets here",
        "Unexpected token: }",
        "tokenizer=bpe secretary: Ann compass=9 bypass: x",
        "if token == expected:",
        "Access denied for user 'ada'@'db' (using password: NO)",
        "render_as_string(hide_password=False)",
        "bearer authentication is required",
        '{"password": "", "tokens": []}',
    ],
)
def test_masking_leaves_text_without_secrets_alone(text: str) -> None:
    assert mask(text) == text


@given(st.text(st.characters(codec="utf-8", exclude_characters="=:%,-")).filter(lambda text: "ba" not in text.lower()))
def test_masking_leaves_words_alone_that_nothing_is_said_of(text: str) -> None:
    text = f"the token and the password {text} of it"
    assert mask(text) == text


SECRETS = st.text(min_size=1).map(lambda text: f"{text}s3cr3t")


@given(SECRETS, st.sampled_from(["password", "accessToken", "AWS_SECRET_ACCESS_KEY", "x-api-key", "cookies"]))
def test_json_with_a_secret_is_the_same_json_without_it(secret: str, name: str) -> None:
    data = {"a": 1, name: secret, "z": ["text", None]}
    shown = {"a": 1, name: "***", "z": ["text", None]}
    assert json.loads(mask(json.dumps(data))) == shown
    assert json.loads(mask(json.dumps(data, separators=(",", ":"), ensure_ascii=False))) == shown
    assert mask_data(data) == shown
    nested = json.dumps(json.dumps(data))
    assert "s3cr3t" not in mask(f"failed: {data!r} at {nested} or {json.dumps(nested)}")


@given(st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1).filter(lambda text: "&" not in text))
def test_a_value_without_spaces_is_masked_whatever_it_holds(secret: str) -> None:
    # After a & there may stand the next parameter of a URL.
    text = mask(f"run with PGPASSWORD=s3cr3t{secret}s3cr3t now")
    assert "s3cr3t" not in text
    assert text.endswith("now")


def test_data_is_masked_by_name_at_any_depth_and_else_as_text() -> None:
    data = {
        "token": 5,
        "max_tokens": 512,
        "deep": [{"PassWord": {"a": 1}}],
        "url": "redis://:x@c",
        "tokens": ("a",),
        "pwd": None,
    }
    assert mask_data(data) == {
        "token": "***", "max_tokens": 512, "deep": [{"PassWord": "***"}], "url": "redis://:***@c", "tokens": "***",
        "pwd": None,
    }  # fmt: skip


LONG = [
    "x", "://a:", "://a:b ", "://a:b@ ", "://a:b@c", "a@://b:", "://b:?", "://b:?@", "token", "token ", "token=",
    "token=)", "token=[", "token='", "token=\\'", "pass_", "--", "--a", "--token ", "cookie:)", "cookie: )\n",
    "bearer a", "&a", "token = = ", "a_key of a token: no; ", '"token","',
]  # fmt: skip


@pytest.mark.parametrize("piece", LONG)
def test_a_long_text_takes_no_time(piece: str) -> None:
    text = piece * (300_000 // len(piece))
    begun = time.process_time()
    mask(f"token={text}")
    mask(f"{text} token")
    assert time.process_time() - begun < 5  # of quadratic time it would be much more; a busy machine is slow
