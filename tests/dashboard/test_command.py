"""``cronsensus dashboard``: what it refuses before it serves."""

import socket

from click.testing import CliRunner

from cronsensus.cli import cli


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
