"""Runs of processes that only observe a schedule of another program: recorded, and counted for the audit."""
