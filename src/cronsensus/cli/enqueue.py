"""``cronsensus jobs enqueue``: enqueue a run of a job with its own arguments."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, get_args

import click

from cronsensus.cli.app import opened_store
from cronsensus.cli.group import Command, Invocation
from cronsensus.cli.options import DurationType, job_argument, whoami
from cronsensus.cli.output import Output, print_message
from cronsensus.errors import InvalidOption
from cronsensus.insight.as_data import made_data
from cronsensus.insight.live_nodes import describe_missing_node
from cronsensus.insight.lookup import require_job
from cronsensus.insight.time_words import shorten
from cronsensus.jobs import known_keys
from cronsensus.jobs.calls import Call
from cronsensus.jobs.handle import Handle
from cronsensus.model.occurrence import Enqueued, Item, check_key
from cronsensus.once.choices import OnError, OnMismatch


@click.command(cls=Command)
@job_argument
@click.argument("values", nargs=-1, metavar="[ARG]...")
@click.option("--args", "positional", metavar="JSON", help="Arguments by position, as a list.")
@click.option("--kwargs", "named", metavar="JSON", help="Arguments by name, as an object.")
@click.option("--key", metavar="KEY", help="Names the run: a second call with the same key makes no other.")
@click.option("--delay", type=DurationType(), metavar="TIME", help="Not before this time has passed.")
@click.option(
    "--on-mismatch",
    type=click.Choice(get_args(OnMismatch)),
    default="error",
    show_default=True,
    help="Other arguments stand under the key: refuse, or return that run.",
)
@click.option(
    "--on-failed",
    type=click.Choice(get_args(OnError)),
    default="keep",
    show_default=True,
    help="The run under the key ended without success: keep it, or delete it and make a new one.",
)
@click.option("--priority", type=int, metavar="N", help="Higher goes first (default: the job's).")
def enqueue(
    *,
    job: str,
    values: tuple[str, ...],
    positional: str | None,
    named: str | None,
    key: str | None,
    delay: timedelta | None,
    on_mismatch: OnMismatch,
    on_failed: OnError,
    priority: int | None,
) -> None:
    """Ask for one run of a job with arguments of its own.

    Each ARG is read as JSON, and as text where it is none: 42 is a number, invoice is a text, and so is '"42"'.

    cronsensus jobs enqueue send_invoice 42 --key invoice:42
    cronsensus jobs enqueue send_invoice --args '[42]' --kwargs '{"copies": 2}'
    """
    output = Output.current()
    if values and positional is not None:
        raise InvalidOption("arguments by position were given twice; write them after the job's name, or in --args")
    args = tuple(_value(text) for text in values) or tuple(_read(list, "--args", positional))
    kwargs = _read(dict, "--kwargs", named)
    with opened_store() as store:
        view = require_job(store, job)
        code = Invocation.current().scheduler
        run: Enqueued | Handle
        if code is not None:
            options = code.options(
                job, key=key, delay=delay, priority=priority, on_mismatch=on_mismatch, on_failed=on_failed
            )
            run = options.enqueue(*args, **kwargs)
        else:
            if key is not None:
                check_key(key)
            arguments = {"args": args, "kwargs": kwargs} if args or kwargs else {}
            item = Item(job=job, key=key, delay=delay or timedelta(0), priority=priority, **arguments)
            call: Call[Any] = Call(item, on_mismatch, on_failed)
            (run,) = known_keys.enqueue_calls(store, [call], by=whoami())
            if (wrong := known_keys.payload_mismatch(call, run, None, view.spec)) is not None:
                raise wrong
        missing = describe_missing_node(store, view.spec)
    if output.printed_json(made_data(run)):
        return
    what = f"enqueued {run.job}: run {run.id} is" if run.created else f"{run.key} was enqueued before: run {run.id} was"
    output.line(f"{what} {run.state}")
    if missing and not run.state.final:
        print_message(f"note: {missing}")
    print_message(f"follow it: cronsensus runs logs -f {run.id}")


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _read(kind: type, option: str, text: str | None) -> Any:
    """Parse an option as JSON; without text, return an empty value of that kind.

    Raises:
        InvalidOption: it is not JSON of this kind.
    """
    if text is None:
        return kind()
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, kind):
        example = "'[42, \"a\"]'" if kind is list else "'{\"order\": 42}'"
        raise InvalidOption(f"{option} {shorten(text, 60)!r} is no JSON {kind.__name__}; write it like {example}")
    return value
