"""A seeded simulation of a cluster on the memory store: same seed, same night. Floor 6."""
