"""Applications configure their logging when they like; lines of runs are kept all the same, and theirs are printed."""

import logging
import logging.config

from cronsensus import Scheduler
from tests.user_code.programs import started


def test_an_application_may_configure_its_logging_after_the_start(tmp_path):
    text = """
        import logging.config
        log = logging.getLogger("shop")

        @scheduler.job()
        def work(number: int):
            log.warning("line %d", number)

        scheduler.start()
        def lines_of(number):
            one = work.enqueue(number).wait("60s")
            return [line.text for _, _, line in scheduler.store.logs(one.id)]

        say(lines_of(1))  # warnings go to standard error, as in any program without a configuration
        logging.basicConfig(level="INFO", stream=sys.stdout, format="basic %(message)s")
        logging.getLogger("app").info("hello")
        say(lines_of(2))
        logging.basicConfig(level="INFO", stream=sys.stdout, format="forced %(message)s", force=True)
        say(lines_of(3))
        logging.config.dictConfig({
            "version": 1, "disable_existing_loggers": False,
            "formatters": {"plain": {"format": "dict %(message)s"}},
            "handlers": {"out": {"class": "logging.StreamHandler", "stream": sys.stdout, "formatter": "plain"}},
            "root": {"level": "WARNING", "handlers": ["out"]},
        })
        say(lines_of(4))
        scheduler.stop()
        say(logging.getLogger().parent)
    """
    with started(tmp_path, text) as program:
        assert program.end() == 0, program.errors()
        said = [line for line in program.lines if "run 2 of" not in line and "run 3 of" not in line]
        assert [line for line in said if "left" not in line and "new in" not in line] == [
            "['line 1']", "basic hello", "basic line 2", "['line 2']", "forced line 3", "['line 3']", "dict line 4",
            "['line 4']", "None",
        ]  # fmt: skip
        assert program.errors() == "line 1\n"


def test_several_nodes_of_a_process_leave_the_root_logger_as_it_was():
    root = logging.getLogger()
    before = list(root.handlers), root.parent
    one, two = Scheduler("memory://logging-one"), Scheduler("memory://logging-two")
    one.start()
    two.start()
    one.stop()
    assert root.parent is not None
    two.stop()
    assert (list(root.handlers), root.parent) == before
