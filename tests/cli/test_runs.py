"""``runs``: list, show, retry, cancel, logs."""

from datetime import timedelta
from typing import Any

import pytest

from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Item, Note, RunError
from cronsensus.model.states import State
from cronsensus.testing.conformance.steps import say


@pytest.fixture
def history(cluster: Any) -> Any:
    """Three nominal times: succeeded; failed after a retry elsewhere; still running."""
    cluster.every("tick", "1m", retries=1)
    cluster.join("node-1")
    cluster.join("node-2")
    cluster.advance(60)
    cluster.good = cluster.run_once()
    cluster.advance(58)
    cluster.fire()
    (first,) = cluster.claim("session-of-node-1")
    cluster.log(first, "connecting", "no answer\x1b[1m")
    cluster.advance(3)
    error = RunError(type="TimeoutError", message="no answer", traceback="")
    cluster.finish(first, State.PENDING, retry_in=timedelta(seconds=1), error=error)
    cluster.advance(1)
    (second,) = cluster.claim("session-of-node-2")
    cluster.log(second, "trying again")
    cluster.advance(2)
    cluster.fail(second)
    cluster.bad = second
    cluster.advance(54)
    cluster.fire()
    (cluster.running,) = cluster.claim()
    cluster.advance(5)
    return cluster


def test_the_list_is_newest_first(history: Any) -> None:
    data = history("runs", "list", "-o", "json").data
    assert [run["state"] for run in data["runs"]] == ["running", "failed", "succeeded"]
    assert data["runs"][1]["error"] == {"type": "OSError", "message": "no route to mail server"}
    assert data["runs"][2]["seconds"] == 2.0
    plain = history("runs", "list").out
    assert "OSError: no route to mail server" in plain
    assert "5s so far" in plain


def test_the_list_can_be_filtered_and_paged(history: Any) -> None:
    def states(*options: str) -> list[str]:
        return [run["state"] for run in history("runs", "list", *options, "-o", "json").data["runs"]]

    assert states("--state", "failed") == ["failed"]
    assert states("--state", "failed", "--state", "running") == ["running", "failed"]
    assert states("--since", "1m30s") == ["running", "failed"]
    assert states("--since", "10s") == ["running"]
    first = history("runs", "list", "--limit", "2", "-o", "json").data
    assert states("--after", str(first["after"])) == ["succeeded"]
    assert f"--after {first['after']}" in history("runs", "list", "--limit", "2").err


def test_an_unknown_job_or_state_is_a_usage_error(history: Any) -> None:
    assert "did you mean 'tick'?" in history("runs", "list", "--job", "tik").err
    wrong = history("runs", "list", "--state", "broken")
    assert wrong.code == 2
    assert "'succeeded'" in wrong.err


def test_show_tells_the_story_in_order(history: Any) -> None:
    answer = history("runs", "show", str(history.bad.id))
    assert answer.code == 0
    story = ["nominal time", "attempt 1 started on node-1", "attempt 1 failed, to be tried again", "due",
             "attempt 2 started on node-2", "attempt 2 failed"]  # fmt: skip
    lines = [line for line in answer.out.splitlines() if line.startswith("2026")]
    assert [next(word for word in story if line.endswith(word)) for line in lines[: len(story)]] == story
    assert "Traceback (most recent call last)" in answer.out
    assert "#1 INFO    no answer\\x1b[1m" in answer.out
    assert "#2 INFO    trying again" in answer.out
    assert "TimeoutError: no answer" in answer.out


def test_show_as_json_has_attempts_tokens_and_logs(history: Any) -> None:
    data = history("runs", "show", str(history.bad.id), "-o", "json").data
    assert [(run["attempt"], run["node"], run["end"]) for run in data["attempts"]] == [
        (1, "node-1", "retry"),
        (2, "node-2", "failed"),
    ]
    tokens = [run["token"] for run in data["attempts"]]
    assert tokens == sorted(set(tokens))
    assert [line["text"] for line in data["logs"]] == ["connecting", "no answer\x1b[1m", "trying again"]


def test_run_view_shows_the_timeout_before_the_traceback(cluster: Any) -> None:
    cluster.every()
    cluster.join()
    cluster.advance(60)
    cluster.fire()
    (claim,) = cluster.claim()
    where = '  File "jobs.py", line 9, in tick\n    lock.acquire()'
    error = RunError(type="TimeoutError", message="ran longer than timeout=2s; it goes on\nunseen", traceback=where)
    cluster.finish(claim, State.FAILED, reason="timeout", error=error)
    answer = cluster("runs", "show", str(claim.id))
    assert "TimeoutError: ran longer than timeout=2s; it goes on\nunseen\n" + where in answer.out


def test_progress_that_json_cannot_say_breaks_no_list(cluster: Any) -> None:
    cluster.every()
    cluster.join()
    cluster.advance(60)
    cluster.fire()
    (claim,) = cluster.claim()
    say(cluster.store, [Note(claim.id, claim.token, (1.0, float("inf")), ())])
    (run,) = cluster("runs", "list", "-o", "json").data["runs"]
    assert run["progress"] == [1.0, None]
    assert cluster("runs", "show", str(claim.id), "-o", "json").code == 0
    assert cluster("runs", "list").code == 0


def test_show_has_arguments_and_result_of_enqueued_work(cluster: Any) -> None:
    cluster.declare("invoice")
    cluster.join()
    cluster.store.enqueue([Item(job="invoice", key="invoice:42", args=(42,), kwargs={"copy": True})])
    (claim,) = cluster.claim()
    cluster.finish(claim, State.SUCCEEDED, result='{"sent":true}')
    answer = cluster("runs", "show", str(claim.id))
    assert "invoice:42" in answer.out
    assert '[[42],{"copy":true}]' in answer.out
    assert '{"sent":true}' in answer.out
    data = cluster("runs", "show", str(claim.id), "-o", "json").data
    assert (data["args"], data["kwargs"], data["result"]) == ([42], {"copy": True}, {"sent": True})


def test_retry_makes_a_new_run_that_is_linked(history: Any) -> None:
    answer = history("runs", "retry", str(history.bad.id), "--reason", "network is back", "-o", "json")
    (made,) = answer.data["runs"]
    assert made["retry_of"] == history.bad.id
    assert history.store.occurrence(made["id"]).retry_of == history.bad.id
    assert history("runs", "show", str(history.bad.id), "-o", "json").data["retried_as"] == made["id"]
    assert f"tried again as  run {made['id']}" in history("runs", "show", str(history.bad.id)).out


def test_a_second_retry_says_what_the_first_one_made_and_how_to_have_one_more(history: Any) -> None:
    number = str(history.bad.id)
    (made,) = history("runs", "retry", number, "-o", "json").data["runs"]
    answer = history("runs", "retry", number)
    assert answer.code == 0
    assert f"run {number} was tried again already as run {made['id']} (pending)" in answer.out
    for more in ([], ["--again"]):  # it waits: another one beside it is not meant
        (same,) = history("runs", "retry", number, *more, "-o", "json").data["runs"]
        assert (same["id"], same["created"]) == (made["id"], False)
    history.finish(history.running)  # it stands in its way
    for claim in history.claim():
        history.finish(claim)
    answer = history("runs", "retry", number)
    assert f"as run {made['id']} (succeeded)" in answer.out
    assert f"runs retry {number} --again" in answer.out
    (more,) = history("runs", "retry", number, "--again", "-o", "json").data["runs"]
    assert (more["created"], history.store.occurrence(more["id"]).retry_of) == (True, made["id"])


def test_what_succeeded_is_tried_again_only_with_again(history: Any) -> None:
    before = history("runs", "list", "-o", "json").data
    answer = history("runs", "retry", str(history.bad.id), str(history.good.id))
    assert answer.code == 1
    assert f"runs retry {history.good.id} --again" in answer.err
    assert history("runs", "list", "-o", "json").data == before  # of several none, if one cannot be
    assert history("runs", "retry", str(history.good.id), "--again").code == 0


def test_retry_of_an_active_run_is_refused(history: Any) -> None:
    answer = history("runs", "retry", str(history.bad.id), str(history.running.id))
    assert answer.code == 1
    assert f"run {history.running.id} is running" in answer.err
    assert len(history("runs", "list", "-o", "json").data["runs"]) == 3


def test_cancel_asks_what_runs_to_stop_and_ends_what_waits(history: Any) -> None:
    waiting = history.store.trigger("tick", by="me")
    answer = history("runs", "cancel", str(history.running.id), str(waiting.id), "--reason", "wrong month")
    assert answer.code == 0
    assert f"run {history.running.id} is asked to stop" in answer.out
    assert f"run {waiting.id} is cancelled" in answer.out
    assert "running, asked to stop" in history("runs", "list").out


def test_a_cancel_that_came_too_late_stays_visible(history: Any) -> None:
    number = str(history.running.id)
    history("runs", "cancel", number, "--reason", "wrong month", "--by", "ada")
    history.finish(history.running)
    answer = history("runs", "show", number)
    assert "cancel by ada: wrong month" in answer.out
    (act,) = history("runs", "show", number, "-o", "json").data["trail"]
    assert (act["by"], act["why"]) == ("ada", "wrong month")


def test_cancel_of_a_final_run_is_refused(history: Any) -> None:
    answer = history("runs", "cancel", str(history.good.id), "--reason", "x")
    assert answer.code == 1
    assert "is succeeded already" in answer.err


def test_cancel_wants_a_reason(history: Any) -> None:
    assert history("runs", "cancel", "1").code == 2


@pytest.mark.parametrize("what", ["show", "logs", "retry"])
def test_an_unknown_run_is_named(history: Any, what: str) -> None:
    answer = history("runs", what, "999")
    assert answer.code == 2
    assert "there is no run 999" in answer.err
    assert "runs list" in answer.err


@pytest.mark.parametrize("number", ["0", "-1", "x", str(2**63)])
def test_run_id_that_is_no_number_is_a_usage_error(history: Any, number: str) -> None:
    assert history("runs", "show", "--", number).code == 2


def test_logs_are_printed_in_order(history: Any) -> None:
    answer = history("runs", "logs", str(history.bad.id))
    assert [line.split("INFO    ")[1] for line in answer.out.splitlines()] == [
        "connecting",
        "no answer\\x1b[1m",
        "trying again",
    ]


def test_logs_of_a_silent_run_say_so(history: Any) -> None:
    assert "has logged nothing yet" in history("runs", "logs", str(history.running.id)).err
    assert "has logged nothing\n" in history("runs", "logs", str(history.good.id)).err


def test_following_ends_with_the_run(history: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run goes on only while the command waits for it, so nothing that it prints can come too early."""
    from cronsensus.stores.memory import MemoryStore

    steps = iter([lambda: history.log(history.running, "half"), lambda: history.log(history.running, "whole"),
                  lambda: history.finish(history.running)])  # fmt: skip

    def go_on(_store: Any, _timeout: float) -> bool:
        next(steps)()
        return True

    monkeypatch.setattr(MemoryStore, "wait", go_on)
    answer = history("runs", "logs", "-f", str(history.running.id))
    assert [line.split()[-1] for line in answer.out.splitlines()] == ["half", "whole"]
    assert f"run {history.running.id} succeeded" in answer.err


def test_following_and_json_do_not_go_together(history: Any) -> None:
    assert history("runs", "logs", "-f", "1", "-o", "json").code == 2


def test_what_failed_is_shown_by_error_and_run_again_in_one_act(history: Any) -> None:
    (group,) = history("runs", "failed", "-o", "json").data["groups"]
    assert group["runs"] == [history.bad.id]
    assert history("runs", "failed", "--since", "1s").err.endswith("nothing that failed is left\n")
    shown = history("runs", "retry", "--failed", "--error", group["error"], "--dry-run", "-o", "json").data
    assert [one["id"] for one in shown["runs"]] == [history.bad.id]
    answer = history("runs", "retry", "--failed", "--job", "tick", "--yes", "--reason", "mended", "-o", "json")
    assert [one["retry_of"] for one in answer.data["runs"]] == [history.bad.id]
    assert history("runs", "retry", "--failed", "--yes", "-o", "json").data == {"runs": []}


def test_what_waits_is_cancelled_in_one_act(history: Any) -> None:
    waiting = [history.store.trigger("tick", by="me").id for _ in range(2)]
    history.store.define_jobs([JobSpec(name="cronsensus:alert:team", function="watch")], release="r", by="n")
    [watch] = history.store.enqueue([Item(job="cronsensus:alert:team", key="watch")])
    answer = history("runs", "cancel", "--pending", "--yes", "--reason", "wrong month", "-o", "json")
    assert sorted(one["id"] for one in answer.data["runs"]) == waiting
    assert history.store.occurrence(watch.id).state is State.PENDING, "nobody queued what watches for an alert"
    assert history.store.occurrence(history.running.id).cancel_requested is False


def test_a_bulk_act_in_a_pipe_cannot_ask_and_does_nothing(history: Any) -> None:
    answer = history("runs", "retry", "--failed")
    assert answer.code != 0
    assert "--yes" in answer.err
    assert history("runs", "show", str(history.bad.id), "-o", "json").data["retried_as"] is None


@pytest.mark.parametrize(
    "arguments",
    [
        ("retry",),
        ("retry", "1", "--failed"),
        ("retry", "1", "--job", "tick"),
        ("cancel", "--job", "x", "--reason", "x"),
    ],
)
def test_runs_are_named_in_one_way(history: Any, arguments: tuple[str, ...]) -> None:
    answer = history("runs", *arguments)
    assert answer.code == 2
    assert "--failed" in answer.err or "--pending" in answer.err
