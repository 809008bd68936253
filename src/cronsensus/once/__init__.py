"""Run a function once for each key, whoever calls it, and however often."""
