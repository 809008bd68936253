"""Jobs that fork, by themselves or by ``multiprocessing``: the child is no node, and the node notices nothing."""

import signal
import subprocess

import pytest

from tests.user_code.programs import started

JOBS = """
import asyncio, logging, multiprocessing, os, time, warnings
warnings.simplefilter("ignore", DeprecationWarning)
from cronsensus import Run, Scheduler, current_run
scheduler = Scheduler("sqlite:///jobs.db?synchronous=normal", node="it")
log = logging.getLogger("shop")

def work_there(number):
    run = current_run()
    log.warning("line from a child")
    if run is not None:  # a child by fork is inside of the run, too
        run.progress(number, 9)
    return number * number

def pooled(method):
    context = multiprocessing.get_context(method)
    with context.Pool(2) as pool:  # leaves by terminate(): SIGTERM to each of its processes
        squares = pool.map(work_there, range(4))
    process = context.Process(target=work_there, args=(3,))
    process.start()
    process.join(30)
    stuck = context.Process(target=time.sleep, args=(300,))
    stuck.start()
    stuck.terminate()
    stuck.join(30)
    return [squares, process.exitcode, stuck.exitcode]

@scheduler.job()
def in_thread(method: str): return pooled(method)

@scheduler.job()
async def in_loop(method: str): return pooled(method)

@scheduler.job(executor="process")
def in_process(method: str): return pooled(method)

def forks():
    if os.fork() == 0:
        log.warning("from the child")
        current_run().progress(1, 2)
        return "child"
    return [os.getpid(), os.waitstatus_to_exitcode(os.wait()[1])]

def raises():
    if os.fork() == 0:
        raise ValueError("in the child")
    return [os.getpid(), os.waitstatus_to_exitcode(os.wait()[1])]

def leaves():
    if os.fork() == 0:
        raise SystemExit(5)
    return [os.getpid(), os.waitstatus_to_exitcode(os.wait()[1])]

async def awaits():
    if os.fork() == 0:
        await asyncio.sleep(0.01)
        return "child"
    return await asyncio.to_thread(lambda: [os.getpid(), os.waitstatus_to_exitcode(os.wait()[1])])

async def in_a_task():
    async def forking():
        if os.fork() == 0:
            await asyncio.sleep(0.01)
            return "child"
        return await asyncio.to_thread(lambda: [os.getpid(), os.waitstatus_to_exitcode(os.wait()[1])])
    return await asyncio.create_task(forking())

@scheduler.job()
def fork_in_thread(how: str): return globals()[how]()

@scheduler.job()
async def fork_in_loop(how: str):
    found = globals()[how]()
    return await found if asyncio.iscoroutine(found) else found

@scheduler.job(executor="process")
def fork_in_process(how: str): return globals()[how]()

@scheduler.job()
def writes():
    with current_run().transaction() as connection:
        pid = os.fork()
        if pid == 0:
            return "child"  # out of the block: it would commit here
        os.waitpid(pid, 0)
        if os.fork() == 0:
            try:
                current_run().complete_in(connection)
            except Exception as error:
                os._exit(9 if "parent" in str(error) else 1)
        return current_run().complete(os.waitstatus_to_exitcode(os.wait()[1]))

@scheduler.job()
def enqueues():
    if os.fork() == 0:
        scheduler.stop()  # no node here
        plain.options(key="from the child").enqueue(7)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.wait()[1])

@scheduler.job()
async def plain(number: int): return number
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A node that runs until it is told to stop, whose program calls jobs by lines on its input."""
    folder = tmp_path_factory.mktemp("forks")
    (folder / "shop.py").write_text(JOBS)
    text = """
        import shop
        scheduler = shop.scheduler
        logging.getLogger().addHandler(logging.NullHandler())
        def obey():
            for line in sys.stdin:
                job, *arguments = line.split()
                ended = getattr(shop, job).enqueue(*arguments).wait("60s")
                lines = [text.text for _, _, text in scheduler.store.logs(ended.id)]
                say(repr((str(ended.state), ended.attempt, ended.result, ended.error and ended.error.message, lines)))
        if __name__ == "__main__":
            say("pid", os.getpid())
            threading.Thread(target=obey, daemon=True).start()
            say("run", scheduler.run("20s"))
    """
    with started(folder, text, stdin=subprocess.PIPE) as program:
        program.read_until("pid")

        def call(*words):
            program.tell(" ".join(words))
            return eval(program.read_until("("))

        program.call = call  # type: ignore[attr-defined]
        yield program
        assert program.process.poll() is None, program.lines
        program.process.send_signal(signal.SIGTERM)
        assert program.end() == 0, program.errors()
        assert program.lines[-1] == "run True"


def test_multiprocessing_works_in_each_executor_by_each_start_method(node):
    for job in ("in_thread", "in_loop", "in_process"):
        for method in ("fork", "spawn", "forkserver"):
            state, attempt, result, error, lines = node.call(job, method)
            assert (state, attempt, error) == ("succeeded", 1, None), (job, method)
            assert result == "[[0,1,4,9],0,-15]", (job, method)
            if (job, method) == ("in_process", "fork"):
                assert lines.count("line from a child") == 5


def test_a_forked_child_that_comes_back_ends_and_only_its_parent_speaks_for_the_run(node):
    for job, ways in {
        "fork_in_thread": ("forks", "raises", "leaves"),
        "fork_in_loop": ("forks", "raises", "leaves", "awaits", "in_a_task"),
        "fork_in_process": ("forks", "raises", "leaves"),
    }.items():
        for how in ways:
            state, attempt, result, error, _ = node.call(job, how)
            assert (state, attempt, error) == ("succeeded", 1, None), (job, how)
            pid, code = eval(result)
            # A coroutine that awaits in a forked child has no loop there.
            assert code in {"raises": {1}, "leaves": {5}, "awaits": {0, 1}}.get(how, {0}), (job, how)
            assert (pid == node.pid) == (job != "fork_in_process")
            assert node.call("plain", "3")[2] == '"3"'  # the loop turns
    assert "ValueError: in the child" in node.errors()


def test_a_transaction_is_committed_by_the_process_of_the_run_only(node):
    assert node.call("writes")[:3] == ("succeeded", 1, "9")


def test_a_forked_child_may_use_the_scheduler_and_is_no_node(node):
    assert node.call("enqueues")[2] == "0"
    assert node.occurrences()["from the child"].job == "plain"


def test_children_log_and_say_how_far_they_are_while_threads_of_the_parent_do(tmp_path):
    text = """
        end = threading.Event()
        log = logging.getLogger("shop")
        logging.getLogger().addHandler(logging.NullHandler())

        @scheduler.job()
        def talks(number: int, run: Run):
            while not end.is_set():
                for done in range(50):
                    log.warning("line")
                    run.progress(done, 50)

        def in_child(run):
            for done in range(5):
                log.warning("from the child")
                run.progress(done, 5)

        @scheduler.job()
        def forks(run: Run):
            context, codes = multiprocessing.get_context("fork"), []
            for _ in range(60):
                process = context.Process(target=in_child, args=(run,))
                process.start()
                process.join(20)
                codes.append(process.exitcode)
                process.kill()
            end.set()
            return codes

        with scheduler:
            for number in range(3):
                talks.enqueue(number)
            say("codes", *forks.enqueue().result("60s"))
    """
    with started(tmp_path, text) as program:
        assert program.end() == 0, program.errors()
        assert program.lines == ["codes " + " ".join(["0"] * 60)]


@pytest.mark.parametrize(
    ("url", "warnings"), [("memory://", 1), ("memory://shop", 1), ("sqlite:///{folder}/other.db", 0)]
)
def test_a_forked_worker_whose_store_is_in_memory_warns_once(tmp_path, url, warnings):
    text = """
        logging.basicConfig(level="WARNING")
        scheduler = Scheduler(URL)
        with scheduler.lock("before"):
            pass
        def work():
            for name in ("one", "two"):
                with scheduler.lock(name):
                    pass
        worker = multiprocessing.get_context("fork").Process(target=work)
        worker.start()
        worker.join(60)
        say("ended", worker.exitcode)
    """
    with started(tmp_path, text.replace("URL", repr(url.format(folder=tmp_path)))) as program:
        assert program.read_until("ended") == "ended 0"
        program.end()
        assert program.errors().count("memory:// is not shared with other processes") == warnings
