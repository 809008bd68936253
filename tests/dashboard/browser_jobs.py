"""What the nodes run while a browser looks at them."""

from cronsensus import Run, Scheduler, every

scheduler = Scheduler()

BAD = "<script>alert('x')</script>"
BAD_NAME = "<img src=x onerror=alert(1)_in_a_long_name_without_any_place_to_break>"


@scheduler.job(every("1s"))
def tick() -> None:
    """What goes well all the time."""


@scheduler.job(every("1h"))
def quiet() -> None:
    """What can be told to run, and is not due while a test lasts."""


@scheduler.job(name=BAD_NAME)
def hostile(text: str = "") -> str:
    """Whose name, arguments, result and error look like HTML."""
    if not text:
        raise ValueError(BAD)
    return text


@scheduler.job(on_crash="retry")
def hold(run: Run) -> None:
    """Runs until it is cancelled, and a second attempt only for a moment."""
    if run.attempt == 1:
        run.cancelled.wait(100)
        run.check()
