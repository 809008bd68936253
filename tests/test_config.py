"""Settings: which source wins, what each may be, and what an error says."""

from datetime import timedelta
from pathlib import Path

import pytest

from cronsensus import Scheduler
from cronsensus.config import UNSET, Settings, load_settings, misspelt
from cronsensus.errors import ConfigurationError, InvalidDuration, InvalidOption


def project(folder: Path, table: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(table)
    return folder


def test_the_highest_source_that_says_something_wins(tmp_path):
    start = project(tmp_path, '[tool.cronsensus]\nlease = "1s"\nnode = "d"\nnamespace = "d"\nrelease = "d"\n')
    env = {"CRONSENSUS_LEASE": "2s", "CRONSENSUS_NODE": "c", "CRONSENSUS_NAMESPACE": "c"}
    settings = load_settings({"lease": "4s"}, {"lease": "3s", "node": "b"}, env=env, start=start)
    assert (settings.lease, settings.source("lease")) == (timedelta(seconds=4), "flag")
    assert (settings.node, settings.source("node")) == ("b", "argument")
    assert (settings.namespace, settings.source("namespace")) == ("c", "CRONSENSUS_NAMESPACE")
    assert (settings.release, settings.source("release")) == ("d", str(start / "pyproject.toml"))
    assert (settings.concurrency, settings.source("concurrency")) == (20, "default")


@pytest.mark.parametrize("nothing", [None, UNSET])
def test_what_is_not_given_hides_nothing_below_even_if_that_equals_the_default(tmp_path, nothing):
    settings = load_settings({"lease": nothing}, {"lease": nothing}, env={"CRONSENSUS_LEASE": "10s"}, start=tmp_path)
    assert settings.source("lease") == "CRONSENSUS_LEASE"
    settings = load_settings(None, {"lease": "10s"}, env={"CRONSENSUS_LEASE": "3s"}, start=tmp_path)
    assert settings.lease == timedelta(seconds=10)


def test_an_empty_variable_says_nothing(tmp_path):
    assert load_settings(env={"CRONSENSUS_URL": ""}, start=tmp_path).source("url") == "default"


def test_the_nearest_project_file_counts_and_stops_the_search(tmp_path):
    project(tmp_path, "[tool.cronsensus]\nconcurrency = 3\n")
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert load_settings(env={}, start=inner).concurrency == 3
    project(tmp_path / "a", "[tool.other]\n")
    assert load_settings(env={}, start=inner).concurrency == 20


def test_the_project_file_may_write_names_with_hyphens_and_numbers_as_numbers(tmp_path):
    start = project(tmp_path, "[tool.cronsensus]\ndrain-timeout = 5\nfast-evidence = false\nkeep = '90d'\n")
    settings = load_settings(env={}, start=start)
    assert settings.drain_timeout == timedelta(seconds=5)
    assert settings.fast_evidence is False
    assert settings.keep == timedelta(days=90)


def test_the_url_of_the_application_s_database_is_not_taken(tmp_path):
    settings = load_settings(env={"DATABASE_URL": "postgresql://db/app"}, start=tmp_path)
    assert settings.url == "sqlite:///cronsensus.db"


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[tool.cronsensus]\nleese = 3\n", "unknown option 'leese' for .tool.cronsensus. in .*; did you mean 'lease'?"),
        ("[tool]\ncronsensus = 3\n", "not a table"),
        ("[tool.cronsensus\n", "is not TOML"),
        ("[tool.cronsensus]\nlease = '0.5s'\n", "lease in .*pyproject.toml: lease='0.5s'.*from 1s to 1h"),
        ("[tool.cronsensus]\nurl = 3\n", "url=3 is no URL; write one such as sqlite:///cronsensus.db"),
        ("[tool.cronsensus]\napp = 3\n", "write some text"),
    ],
)
def test_a_wrong_project_file_is_an_error_that_names_it(tmp_path, table, said):
    start = project(tmp_path, table)
    with pytest.raises(ConfigurationError, match=said):
        load_settings(env={}, start=start)


@pytest.mark.parametrize(
    ("name", "value", "kind", "said"),
    [
        ("lease", "soon", InvalidDuration, "CRONSENSUS_LEASE='soon'"),
        ("lease", "2h", InvalidOption, "from 1s to 1h"),
        ("concurrency", "0", InvalidOption, "CRONSENSUS_CONCURRENCY='0': a whole number from 1 to 10,000"),
        ("concurrency", "²", InvalidOption, "a whole number"),
        ("fast_evidence", "perhaps", InvalidOption, "write true or false"),
        ("log_format", "xml", InvalidOption, "choose one of 'text', 'json'"),
        ("app", "jobs.py", InvalidOption, "write MODULE:ATTR, for example jobs:scheduler"),
        ("namespace", " a", InvalidOption, "CRONSENSUS_NAMESPACE"),
        ("url", " ", InvalidOption, "CRONSENSUS_URL=' ' is no URL"),
        ("drain_timeout", "-1s", InvalidDuration, "CRONSENSUS_DRAIN_TIMEOUT"),
    ],
)
def test_an_impossible_value_is_an_error_that_names_its_source(tmp_path, name, value, kind, said):
    with pytest.raises(kind, match=said):
        load_settings(env={f"CRONSENSUS_{name.upper()}": value}, start=tmp_path)


@pytest.mark.parametrize(("word", "value"), [("yes", True), ("0", False), ("ON", True), ("False", False)])
def test_a_switch_is_read_from_the_usual_words(tmp_path, word, value):
    assert load_settings(env={"CRONSENSUS_FAST_EVIDENCE": word}, start=tmp_path).fast_evidence is value


def test_an_unknown_name_is_an_error_with_the_nearest_one(tmp_path):
    with pytest.raises(InvalidOption, match="did you mean 'namespace'"):
        load_settings({"namspace": "x"}, env={}, start=tmp_path)
    with pytest.raises(InvalidOption, match="did you mean 'url'"):
        Settings().value("ulr")
    with pytest.raises(InvalidOption, match="did you mean 'lease'"):
        Settings().source("leas")


def test_a_variable_that_is_nearly_a_setting_is_pointed_out():
    env = {"CRONSENSUS_LEESE": "3s", "CRONSENSUS_LEASE": "3s", "CRONSENSUS_TEST_MYSQL_URL": "x", "PATH": "/bin"}
    assert misspelt(env) == ["CRONSENSUS_LEESE is no setting; did you mean CRONSENSUS_LEASE?"]
    service = {"CRONSENSUS_LOG_PORT": "tcp://10.0.0.1:80", "CRONSENSUS_LOG_SERVICE_HOST": "10.0.0.1"}
    assert misspelt(service) == []


def test_a_secret_in_a_url_is_never_shown():
    assert Settings(url="postgresql://ada:s3cr3t@db/app").shown("url") == "postgresql://ada:***@db/app"
    assert Settings(heartbeat_url="https://u:p@hc-ping.com/UUID").shown("heartbeat_url") == "https://hc-ping.com/***"
    alerts = "https://ada:secret@hooks.x/T0/B0 secret=s3cr3t on=failed; mailto:ops@x.y; slack://TokenA/TokenB jobs=x"
    shown = "https://hooks.x/*** secret=*** on=failed; mailto:ops@x.y; slack://*** jobs=x"
    assert Settings(alerts=alerts).shown("alerts") == shown


def test_every_setting_can_be_shown_and_read_back(tmp_path):
    settings = load_settings(env={}, start=tmp_path)
    env = {f"CRONSENSUS_{name.upper()}": settings.shown(name) for name in settings.names()}
    assert load_settings(env=env, start=tmp_path) == settings


def test_a_scheduler_takes_its_settings_from_all_of_them(tmp_path, monkeypatch):
    project(tmp_path, "[tool.cronsensus]\nconcurrency = 3\nnode = 'p'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CRONSENSUS_LEASE", "7s")
    scheduler = Scheduler("memory://", node="a")
    assert (scheduler.settings.lease, scheduler.settings.concurrency) == (timedelta(seconds=7), 3)
    assert scheduler.node_name == "a"
    scheduler.configure({"lease": "8s", "concurrency": None})
    assert (scheduler.settings.lease, scheduler.settings.concurrency) == (timedelta(seconds=8), 3)


def test_a_path_instead_of_a_url_is_told_what_to_write(tmp_path):
    with pytest.raises(InvalidOption, match=rf"write one such as sqlite:///{tmp_path}/a.db"):
        Scheduler(tmp_path / "a.db")
