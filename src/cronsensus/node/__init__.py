"""The running participant: a crank, a keeper, a listener, and executors."""
