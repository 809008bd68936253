"""The sessions of this process: opened, renewed by one heartbeat for each store, trusted for a while, ended."""
