"""``compose.yaml`` and the page that tells how to use it speak of the same servers. Docker itself is not asked."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cronsensus.stores.redis.redis_url import read_url as read_redis
from cronsensus.stores.sql.mysql.mysql_url import read_url as read_mysql
from cronsensus.stores.sql.postgres.postgres_url import read_url as read_postgres

ROOT = Path(__file__).parent.parent
COMPOSE = (ROOT / "compose.yaml").read_text()
PAGE = (ROOT / "docs" / "stores.md").read_text()
READERS = {"postgresql": read_postgres, "mysql": read_mysql, "redis": read_redis}


def services() -> dict[str, str]:
    """Return the text of each service: what is indented by two under ``services:``, up to the next top-level word."""
    block = COMPOSE.split("\nservices:\n", 1)[1].split("\nvolumes:\n", 1)[0]
    parts = re.split(r"(?m)^  ([a-z]+):\n", block)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def urls_on_the_page() -> dict[str, str]:
    """Return the URLs of the table, by service."""
    return dict(re.findall(r"(?m)^\| `(\w+)` \| `(\w+://\S+)` \|$", PAGE))


def test_the_page_has_a_url_for_each_server_and_for_nothing_else():
    assert urls_on_the_page().keys() == services().keys() - {"node"} == {"postgres", "mariadb", "valkey"}


@pytest.mark.parametrize("service", sorted(urls_on_the_page()))
def test_a_url_of_the_page_is_what_the_service_answers_to(service):
    url, text = urls_on_the_page()[service], services()[service]
    parts = urlsplit(url)
    READERS[parts.scheme](url)  # raises if a store would not take it
    assert f'ports: ["127.0.0.1:{parts.port}:' in text
    if parts.username is not None:
        for word, wanted in {
            "USER": parts.username,
            "PASSWORD": parts.password,
            "D(?:B|ATABASE)": parts.path[1:],
        }.items():
            assert re.search(rf"(?m)^ +(?:POSTGRES|MARIADB)_{word}: {wanted}$", text)


def test_the_nodes_find_their_store_and_their_application():
    node = services()["node"]
    inside = urls_on_the_page()["postgres"].replace("127.0.0.1", "postgres")
    assert f"${{CRONSENSUS_URL:-{inside}}}" in node
    assert "replicas: 3" in node
    assert "run quickstart:scheduler" in node
    assert (ROOT / "examples" / "quickstart.py").exists()
    copied = re.findall(r"/source/([\w.]+)", node)
    assert {"pyproject.toml", "README.md", "LICENSE", "src", "examples"} == set(copied)
    assert all((ROOT / name).exists() for name in copied)


def test_no_port_is_open_to_other_machines():
    ports = re.findall(r'ports: \["([^"]+)"\]', COMPOSE)
    assert len(ports) == 3
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_the_page_names_the_commands_that_the_file_knows():
    assert "docker compose --profile nodes up" in PAGE
    assert 'profiles: ["nodes"]' in COMPOSE
    assert "noeviction" in services()["valkey"]
