"""Arguments and results: as JSON in a store, and as what the annotations of a function name."""
