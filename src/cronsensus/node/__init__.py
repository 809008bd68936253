"""The running participant: rounds, a listener, and executors."""
