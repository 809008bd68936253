"""The sessions of this process: how they are opened, renewed, trusted for a while, and ended."""
