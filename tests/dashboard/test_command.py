"""``cronsensus dashboard``: what it refuses before it serves."""

import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from cronsensus import Scheduler
from cronsensus.cli import cli
from cronsensus.dashboard.serving import Server
from tests.dashboard.browser import signed_in


def test_an_address_that_others_reach_is_refused() -> None:
    result = CliRunner().invoke(cli, ["dashboard", "--host", "0.0.0.0", "--url", "memory://dashboard"])
    assert result.exit_code == 2
    assert "can be reached from other machines" in result.stderr
    assert "ssh -L" in result.stderr


def test_a_port_that_is_taken_says_how_to_get_another() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(cli, ["dashboard", "--port", port, "--url", "memory://dashboard"])
    assert result.exit_code == 2
    assert f"cannot listen on 127.0.0.1:{port}" in result.stderr
    assert "--port 0" in result.stderr


def test_beside_a_node_it_shows_what_that_runs_and_ends_with_it(tmp_path: Path) -> None:
    scheduler = Scheduler(f"sqlite:///{tmp_path}/jobs.db", node="web-1")
    scheduler.store.migrate()
    server = Server(scheduler, port=0, by="ann")
    with scheduler, server.beside(), signed_in(server) as client:
        text = client.get("nodes").text
    assert "web-1" in text
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.url)


def test_before_the_first_node_it_waits_for_the_schema(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    command = [sys.executable, "-m", "cronsensus", "--url", url, "dashboard", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert process.stderr.readline().startswith("waiting for the first node: there is no file")
            Scheduler(url).store.migrate()
            shown = process.stderr.readline()
            assert shown.startswith("dashboard: http://127.0.0.1:")
            assert "who has this URL may look and act" in shown
            url = shown.split()[1]
            assert httpx.get(url).status_code == 200
            assert httpx.get(url.partition("?")[0]).status_code == 401
        finally:
            process.kill()


def test_below_a_prefix_pages_and_their_links_stand_there(tmp_path: Path) -> None:
    scheduler = Scheduler(f"sqlite:///{tmp_path}/jobs.db")
    scheduler.store.migrate()
    server = Server(scheduler, port=0, prefix="cron/")
    assert server.url.endswith("/cron/")
    with server.beside(), signed_in(server) as client:
        page = client.get("jobs")
        assert page.status_code == 200
        assert 'href="/cron/static/' in page.text
        assert httpx.get(f"{server.url}healthz").text == "ok: the store answers\n"
        assert httpx.get(server.url.removesuffix("cron/") + "jobs").status_code == 404
    scheduler.store.close()
