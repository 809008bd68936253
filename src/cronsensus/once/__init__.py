"""Run a function once for each key, in whatever process it is called, and however often."""
