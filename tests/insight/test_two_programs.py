"""Two programs in one namespace by mistake: a job that both declare is said at start and by ``doctor``."""

import logging
from pathlib import Path

import pytest

from cronsensus import Scheduler, every
from cronsensus.insight.doctor import examine_store
from cronsensus.stores.base import Store


def program(url: str, module: str, *jobs: str) -> Scheduler:
    scheduler = Scheduler(url, node=module)
    for name in jobs:

        def function() -> None: ...

        function.__module__, function.__qualname__ = module, name
        scheduler.job(every("1h"), name=name)(function)
    return scheduler


def programs(store: Store) -> list[str]:
    return [one.text for one in examine_store(store) if one.name == "programs"]


def test_a_job_of_two_programs_is_said_at_start_and_by_doctor_while_both_live(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    said = "cleanup is declared by mailer_jobs.cleanup() on mailer_jobs and by billing_jobs.cleanup() on billing_jobs"
    with program(url, "billing_jobs", "cleanup") as billing:
        with caplog.at_level(logging.WARNING), program(url, "mailer_jobs", "cleanup"):
            assert said in caplog.text
            assert "namespace='…'" in caplog.text
            assert programs(billing.store) == [f"{said}: each of its times runs in whichever is first"]
        assert programs(billing.store) == []


def test_two_nodes_of_one_program_are_not_taken_for_two(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    # A script's module is named otherwise where it is imported.
    with program(url, "shop.jobs", "cleanup") as one, program(url, "jobs", "cleanup"):
        assert programs(one.store) == []
    assert "is declared by" not in caplog.text


def test_programs_of_which_each_has_jobs_of_its_own_are_named_by_doctor(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    with program(url, "app", "cleanup", "charge") as billing, program(url, "app", "cleanup", "newsletter"):
        [told] = programs(billing.store)
    assert "app alone declares newsletter, app alone charge" in told
