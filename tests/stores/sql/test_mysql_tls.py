"""TLS where the server offers it, as PyMySQL has it; and no certificate is read that nobody asked to trust."""

import shutil
import ssl
import subprocess
from collections.abc import Iterator

import pytest

from cronsensus.errors import StoreUnavailable
from cronsensus.stores.sql.mysql import MysqlStore
from cronsensus.stores.sql.mysql.mysql_driver import open_connection, run_text
from cronsensus.stores.sql.mysql.mysql_url import read_url
from tests.servers.fixtures import with_query
from tests.servers.mariadb import MariadbServer
from tests.servers.mysql import mysql_or_mariadb
from tests.servers.programs import ServiceMissing


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariadbServer]:
    """A server with a certificate that no system trusts."""
    if not shutil.which("openssl"):
        pytest.skip("service missing: openssl is not on PATH; scripts/servers installs it")
    try:
        made = mysql_or_mariadb(durable=False)
    except ServiceMissing as missing:
        pytest.skip(str(missing))
    try:
        key, certificate = made.folder / "key.pem", made.folder / "certificate.pem"
        made.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1",
             "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
        )  # fmt: skip
        made.settings |= {"ssl-key": str(key), "ssl-cert": str(certificate)}
        made.settings |= {"tls-version": "TLSv1.2,TLSv1.3"}  # our MySQL has none otherwise
        yield made.start()
    finally:
        made.end()


def cipher_of(url: str) -> str:
    connection = open_connection(read_url(url))
    try:
        return str(run_text(connection, "SHOW STATUS LIKE 'Ssl_cipher'")[0][1])
    finally:
        connection.close()


def test_tls_is_used_where_the_server_offers_it(server):
    assert cipher_of(server.url)
    assert not cipher_of(with_query(server.url, ssl_disabled="true"))


def test_tls_certificate_is_checked_where_a_ca_is_given(server, tmp_path):
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes((server.folder / "certificate.pem").read_bytes())
    assert cipher_of(with_query(server.url, ssl_ca=str(trusted), ssl_verify_cert="true"))
    other = tmp_path / "other.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=other",
         "-keyout", tmp_path / "other.key", "-out", other],
        check=True, capture_output=True,
    )  # fmt: skip
    with pytest.raises(StoreUnavailable):
        MysqlStore(with_query(server.url, ssl_ca=str(other), ssl_verify_cert="true")).now()


def test_the_certificates_of_the_system_are_not_read_for_every_connection(server, monkeypatch):
    """It takes 20 ms, which is more than everything else that a connection takes."""

    def read_them_all(*_: object, **__: object) -> None:
        raise AssertionError("it read the certificates of the system")

    monkeypatch.setattr(ssl, "create_default_context", read_them_all)
    assert cipher_of(server.url)
