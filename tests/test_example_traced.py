"""The example of OpenTelemetry prints a picture in which each attempt belongs to the request that enqueued it."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parent.parent / "examples" / "traced.py"


def test_a_request_both_attempts_and_what_they_asked_are_one_picture() -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=True, timeout=60)
    lines = dict(line.split("  ", 1) for line in done.stdout.splitlines())
    by_name = {words: number for number, words in lines.items()}
    request = by_name["POST /invoices/42"]
    first = by_name[f"process charge | attempt 1 | retry | ConnectionError | enqueued: {request}"]
    second = by_name[f"process charge | attempt 2 | succeeded | enqueued: {request} | attempt before: {first}"]
    assert sorted(lines.values())[1:3] == sorted(f"ask the bank | in {number}" for number in (first, second))
