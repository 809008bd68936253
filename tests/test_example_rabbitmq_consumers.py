"""The example with RabbitMQ: three consumers, of which one is killed, and everything is published twice."""

import os
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parent.parent / "examples" / "rabbitmq_consumers.py"


def test_each_order_is_charged_once_although_a_consumer_is_killed(rabbitmq_url: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), rabbitmq_url],
        check=True,
        capture_output=True,
        text=True,
        timeout=110,
        env={**os.environ, "CRONSENSUS_URL": f"sqlite:///{tmp_path}/shop.db"},
    )
    assert "400 messages, 200 charges of 200 orders" in done.stdout
    assert done.stdout.count("killing") == 1
