"""A job for each customer: python one_job_per_customer.py 42 "0 6 * * *" Europe/Paris, beside a node or two"""

import sys

from cronsensus import Run, Scheduler, cron

scheduler = Scheduler("sqlite:///cronsensus.db")


@scheduler.function  # what nodes may be asked to run; no job yet
def report(run: Run, customer: int) -> None:
    print(f"report for customer {customer}, {run.local_time:%H:%M:%S}", flush=True)


if __name__ == "__main__":  # where a customer chooses a time
    customer, expression, zone = sys.argv[1:]
    scheduler.add_job(report, cron(expression, tz=zone), name=f"report:{customer}", args=(int(customer),))
