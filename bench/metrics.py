"""A scrape of 4,000 series over 800 jobs: with what was read in the last two seconds, and with the store asked anew."""

from __future__ import annotations

import time

from bench.options import Options
from bench.places import Places
from bench.table import Row, milliseconds, quantile
from cronsensus import Scheduler, every
from cronsensus.metrics import Metrics, collector

JOBS = 800
WITHIN = 0.020


def bench(places: Places, options: Options) -> list[Row]:
    """Run each job once, so that each has its five series, and scrape in turns."""
    scheduler = Scheduler(places.fresh(), node="bench")
    metrics = Metrics(scheduler)
    for number in range(JOBS):
        scheduler.add_job(nothing, every("1h"), name=f"job-{number:03}")
    with scheduler:
        handles = [scheduler.trigger(f"job-{number:03}") for number in range(JOBS)]
        for handle in handles:
            handle.result("60s")
        # What ended just now is read each time, and in an ordinary hour that is not all jobs at once.
        time.sleep(2 if options.quick else 12)
        kept, anew = [], []
        for _ in range(options.rounds or (10 if options.quick else 100)):
            kept.append(_scrape(metrics))
            shown, collector.READ_EVERY = collector.READ_EVERY, 0.0
            anew.append(_scrape(metrics))
            collector.READ_EVERY = shown
            time.sleep(0.02)
        page = metrics.page()
    series = sum(not line.startswith(b"#") for line in page.splitlines())
    return [
        Row("metrics", f"a scrape of {series:,} series, the store read before it, p50", *_judged(quantile(kept, 0.5))),
        Row("metrics", "the same, p95", milliseconds(quantile(kept, 0.95)), "", None),
        Row("metrics", "the store read in the scrape, p50", milliseconds(quantile(anew, 0.5)), "", None),
        Row("metrics", "the same, p95", milliseconds(quantile(anew, 0.95)), "", None),
    ]


def _judged(seconds: float) -> tuple[str, str, bool]:
    return milliseconds(seconds), f"≤ {WITHIN * 1000:.0f} ms", seconds <= WITHIN


def _scrape(metrics: Metrics) -> float:
    begun = time.perf_counter()
    metrics.page()
    return time.perf_counter() - begun


def nothing() -> None:
    """Do nothing."""
