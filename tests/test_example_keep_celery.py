"""The example with Celery: three beats and two workers, of which one of either is killed."""

import os
import re
import subprocess
import sys
from collections import Counter
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

EXAMPLE = Path(__file__).parent.parent / "examples" / "keep_celery.py"


def test_each_second_has_one_line_although_a_beat_and_a_worker_are_killed(redis_server_url):
    server = redis_server_url.partition("?")[0].rpartition("/")[0]
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), server],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "C_FORCE_ROOT": "1"},
    )
    times = [datetime.fromisoformat(found[1]) for found in re.finditer(r"tick of (\S+) in process", done.stdout)]
    assert len(times) >= 8
    assert max(Counter(times).values()) == 1
    assert {later - earlier for earlier, later in pairwise(sorted(times))} == {timedelta(seconds=1)}
    assert done.stdout.count("killing") == 2
