"""Run a server by hand until Ctrl-C: ``python -m tests.servers postgres|mysql|redis|rabbitmq|cluster [--fast]``."""

import contextlib
import signal
import sys

from tests.servers.cluster import RedisCluster
from tests.servers.sharing import MAKERS

KINDS = MAKERS | {"cluster": RedisCluster}

if not set(sys.argv[1:2]) <= set(KINDS) or len(sys.argv) < 2:
    sys.exit(f"{__doc__}\n--fast: do not wait for the disk (benchmarks need the default)")
with KINDS[sys.argv[1]](durable="--fast" not in sys.argv) as server:
    print(server.url, flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()
