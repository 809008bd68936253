"""What a hostile row can do: nothing that the code of the node does not."""

import json
import threading
from contextlib import closing
from pathlib import Path

import pytest

from cronsensus import Scheduler
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item
from cronsensus.payload.codec import loads
from cronsensus.stores import open_store


def test_a_row_cannot_have_a_node_run_what_its_code_does_not_declare(tmp_path: Path) -> None:
    url, seen = f"sqlite:///{tmp_path}/jobs.db", tmp_path / "seen"
    ran = threading.Event()
    scheduler = Scheduler(url)

    @scheduler.job(name="tidy")
    def tidy(text: str) -> None:
        """Its definition will be written over."""

    @scheduler.job(name="clean")
    def clean() -> None:
        ran.set()

    with closing(open_store(url)) as store, scheduler:
        touch = f"touch {seen}"
        for name in ("tidy", "os:system", "evil"):
            store.define_jobs([JobSpec(name=name, function="os:system", args=(touch,))], release="evil")
        # The one that is to run comes last: the others had their turn.
        known = store.enqueue([Item(job=name, key="k") for name in ("os:system", "evil", "tidy", "clean")])
        assert ran.wait(20)
        assert not seen.exists()
        assert [found.state for one in known[:2] if (found := store.occurrence(one.id))] == ["pending", "pending"]


@pytest.mark.parametrize(
    "text",
    [
        '{"py/object": "os.system", "py/reduce": ["touch x"]}',
        '{"__class__": "subprocess.Popen", "args": ["touch", "x"]}',
        '{"$type": "os.system"}',
    ],
)
def test_what_a_store_holds_is_read_without_running_anything(text: str) -> None:
    assert loads(text) == json.loads(text)
