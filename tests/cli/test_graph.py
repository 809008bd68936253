"""Which job comes after which, on the command line."""

import json
from datetime import timedelta

from cronsensus.after.downstream import list_downstream
from cronsensus.insight.graph import graph_of
from cronsensus.model.gate import Rule

PROGRAM = """
from cronsensus import Scheduler, cron
scheduler = Scheduler("memory://")
@scheduler.job(cron("0 2 * * *"))
def extract(): ...
@scheduler.job(cron("0 2 * * *"))
def rates(): ...
@scheduler.job(after=[extract, rates])
def load(): ...
@scheduler.job(cron("0 6 * * *"), after={load: "latest_before"}, when="ended")
def report(): ...
"""


def test_jobs_stand_behind_what_they_come_after(command, write):
    write("nightly.py", PROGRAM)
    answer = command("graph", "nightly:scheduler")
    assert answer.code == 0
    assert answer.out.splitlines() == [
        "extract",
        "rates",
        "    load  ◂ extract, rates",
        "        report  ◂ load (ended) (latest_before)",
    ]


def test_a_diagram_has_each_edge(command, write):
    write("nightly.py", PROGRAM)
    out = command("graph", "nightly:scheduler", "--mermaid").out
    assert out.startswith("flowchart LR")
    assert out.count("-->") == 3
    assert "-- ended latest_before -->" in out


def test_graphviz_gets_each_edge_and_names_that_need_quotes(command, write):
    write("nightly.py", PROGRAM + """\n@scheduler.job(after=[rates], name='say "hi"')\ndef hi(): ...\n""")
    out = command("graph", "nightly:scheduler", "--dot").out
    assert out.startswith("digraph {")
    assert '"load" -> "report" [label="ended latest_before"]' in out
    assert '"rates" -> "say \\"hi\\""' in out
    assert out.rstrip().endswith("}")


def test_around_one_job_there_is_only_what_it_depends_on(command, write):
    write("nightly.py", PROGRAM + "\n@scheduler.job(after=[rates])\ndef other(): ...\n")
    data = json.loads(command("graph", "nightly:scheduler", "load", "-o", "json").out)
    assert data == json.loads(command("--app", "nightly:scheduler", "graph", "--job", "load", "-o", "json").out)
    assert [one["job"] for one in data["jobs"]] == ["extract", "rates", "load", "report"]
    assert data["jobs"][2]["after"][0] == {"job": "extract", "when": "succeeded", "which": "same"}


def test_the_states_of_a_night_stand_beside_the_jobs(cluster, write):
    write("nightly.py", PROGRAM.replace("memory://", cluster.url))
    cluster.join()
    cluster.every("extract", "1h")
    at = cluster.advance(3600)
    cluster.run_once()
    answer = cluster("graph", "nightly:scheduler", "--at", at.isoformat())
    assert "extract  [succeeded]" in answer.out
    answer = cluster("graph", "nightly:scheduler", "--at", (at + timedelta(minutes=1)).isoformat())
    assert "none of these jobs has the nominal time" in answer.err


def test_a_job_that_is_in_no_graph_is_said_to_be_in_none(command, write):
    write("nightly.py", PROGRAM)
    answer = command("graph", "nightly:scheduler", "--job", "nothing")
    assert answer.code == 2
    assert "'nothing' comes after no job" in answer.err


def test_a_chain_may_be_longer_than_calls_nest():
    rules = {f"job{number:04}": [Rule(f"job{number - 1:04}")] for number in range(1, 3000)}
    assert len(graph_of(rules).layers) == 3000
    assert list_downstream(rules, "job0000").jobs[-1] == "job2999"
