"""Where gunicorn starts the scheduler: in each worker, after the fork, so that --preload changes nothing."""


def post_worker_init(worker):
    from app import scheduler

    scheduler.start()
    worker.log.info("keeping the schedule in %d", worker.pid)


def worker_exit(_server, _worker):
    from app import scheduler

    if scheduler.running:
        scheduler.shutdown()
